"""TAG's affinities against their definition; that they are looked at leaves no trace in what is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from two_workers import PLUGINS, two_workers

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import Experiment, Run, UserError, load_plugin
from mtlscale.data import Batch, Losses, PreparedData, Samples, Workers
from mtlscale.training import Partition, Trainer, task_affinity

Job = tuple[Run, PreparedData]
TRAINING = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, checkpoint_seconds: 0%s}"


class Line(MultiTaskModule):
    """x ↦ x·w for every task."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, size, dtype=torch.float64))


class Squares:
    """Sums of squared errors of two tasks with one input; the third has no label."""

    names: tuple[str, ...] = ("a", "b", "c")
    of_tasks = True

    def __init__(self, model: Line) -> None:
        self.model = model

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        for batch in micro:
            outputs = batch.inputs @ self.model.w
            sums = [(outputs - batch.samples.targets[name]).square().sum() for name in ("a", "b")]
            nothing = 0.0 * outputs.sum()
            yield Losses([0, 1, 2], [*sums, nothing], [torch.tensor(float(len(outputs)))] * 2 + [torch.tensor(0.0)])

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return [1.0] * 3


def test_two_linear_tasks_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 4, generator=generator).double(), torch.randn(2, 12, generator=generator).double()
    model, lr = Line(4), 0.05
    w = model.w.detach().clone()
    error = x @ w - y  # [2, 12]
    losses, gradients = error.square().mean(1), 2 / 12 * error @ x
    expected = torch.full((3, 3), torch.nan, dtype=torch.float64)
    for i in range(2):
        for j in range(2):
            expected[i, j] = 1 - (x @ (w - lr * gradients[i]) - y[j]).square().mean() / losses[j]
    assert float(expected[0, 0]) > 0
    partition = Partition([model.w], [[], [], []])
    for parts in (1, 3):
        cut = [(a, b) for a, b in zip(x.tensor_split(parts), y.tensor_split(parts, dim=1), strict=True)]
        micros = [[Batch("all", Samples(a, {"a": b[0], "b": b[1]}), 12)] for a, b in cut]
        found = task_affinity(model, partition, Squares(model), micros, lr, Workers(), torch.device("cpu"))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15, equal_nan=True)
    assert torch.equal(model.w, w) and model.w.grad is None


def test_a_loss_of_zero_has_no_affinity() -> None:
    """Whatever a step does to it, its relative change is no number."""
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    model = Line(4)
    batch = Batch("all", Samples(x, {"a": torch.zeros(6).double(), "b": (x @ model.w).detach()}), 6)
    partition = Partition([model.w], [[], [], []])
    found = task_affinity(model, partition, Squares(model), [[batch]], 0.1, Workers(), torch.device("cpu"))
    assert found.isnan().tolist() == [[False, True, True], [False, True, True], [True] * 3]
    assert float(found[1, 0]) == 0.0, "a step for a task at its optimum moves nothing"


@pytest.fixture
def job(small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Any) -> Callable[..., Job]:
    def make(method: str, shared: bool = True, more: str = "", dropout: float = 0.0) -> Job:
        for plugin in PLUGINS:
            load_plugin(plugin)
        data = uneven(shared=shared)
        experiment = small(
            plugins=f"[{', '.join(map(str, PLUGINS))}]",
            datasets=f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]",
            methods=f"[{method}]",
            model=f"{{dropout: {dropout}}}",
            training=TRAINING % more,
        )
        return run_of(experiment, data), data

    return make


def tables(work: Job, workers: Workers) -> list[Tensor]:
    trainer = Trainer(*work, workers=workers)
    for _ in trainer.train():
        pass
    found: list[Tensor] = trainer.model.tables  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("every", [1, 2])
def test_looking_changes_nothing_that_is_trained(every: int, job: Callable[..., Job]) -> None:
    """Dropout draws what it would have drawn, statistics and parameters are those of a run that nobody looked at."""
    trainers = [Trainer(*job(f"{{name: watched, norm: true, every: {n}}}", dropout=0.3)) for n in (0, every)]
    for trainer in trainers:
        for _ in trainer.train():
            pass
    plain, watched = (trainer.model.state_dict() for trainer in trainers)
    assert all(torch.equal(value, watched[name]) for name, value in plain.items())
    found: list[Tensor] = trainers[1].model.tables  # type: ignore[assignment]
    assert trainers[0].model.tables == [] and len(found) == -(-trainers[1].at.step // every)
    assert all(bool(table.isfinite().all()) and bool((table.diagonal() > 0).any()) for table in found)


def test_two_workers_and_micro_batches_find_what_one_finds(job: Callable[..., Job]) -> None:
    jobs = [
        job("watched"),
        job("watched", shared=False),
        job("{name: watched, norm: true}", shared=False),
        job("watched", more=", accumulate: 2"),
    ]
    alone = [tables(one, Workers()) for one in jobs]
    for rank in two_workers(tables, jobs):
        for one, other in zip(alone, rank, strict=True):
            torch.testing.assert_close(torch.stack(other), torch.stack(one), rtol=1e-9, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(torch.stack(alone[3]), torch.stack(alone[0]), rtol=1e-9, atol=1e-12, equal_nan=True)


def test_a_resumed_run_looks_at_the_same_steps(job: Callable[..., Job], tmp_path: Path) -> None:
    run, data = job("{name: watched, every: 5}", dropout=0.3)
    whole = tables((run, data), Workers())
    first = Trainer(run, data, folder=tmp_path)
    epochs = first.train()
    next(epochs), next(epochs)
    before: list[Tensor] = first.model.tables  # type: ignore[assignment]
    later = Trainer(run, data, folder=tmp_path)
    for _ in later.train():
        pass
    found = [*before, *later.model.tables]  # type: ignore[misc]
    assert len(found) == len(whole)
    assert all(torch.equal(one, other) for one, other in zip(whole, found, strict=True))


@pytest.mark.parametrize(("method", "message"), [("stl", "shares no parameters")])
def test_a_network_without_shared_parameters_is_refused(method: str, message: str, job: Callable[..., Job]) -> None:
    session = Trainer(*job(method)).session
    updater = session.main
    with pytest.raises(UserError, match=message):
        task_affinity(session.model, updater.update.partition, updater.source, [], 0.1, Workers(), torch.device("cpu"))
