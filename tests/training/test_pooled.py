"""Batches of the samples of all tasks together: what they estimate, and what must not change it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from two_workers import two_workers

from mtlscale.data import PreparedData, Workers
from mtlscale.spec import Experiment, Run, UserError, components
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

NEEDED = {"static": ", weights: [0.5, 0.3, 0.2]"}
BALANCERS = [n for n in components.names("balancers") if components.component("balancers", n).needs != "validation"]
# Of four samples, some steps lack a task.
POOLED = "{batches: pooled, epochs: 2, batch_size: 4, lr: 1e-2, dtype: float64, optimizer: sgd, weight_decay: 0.01%s}"


def method(name: str) -> str:
    return f"[{{name: {name}{NEEDED.get(name, '')}}}]"


def parameters_after(run: Run, data: PreparedData, workers: Workers | None = None) -> dict[str, Tensor]:
    trainer = Trainer(run, data, workers=workers)
    for _ in trainer.train():
        pass
    return trainer.model.state_dict()


def close(left: dict[str, Tensor], right: dict[str, Tensor], what: str = "") -> None:
    for key, value in left.items():
        assert (value - right[key]).norm() <= 1e-9 * value.norm().clamp(min=1e-12), (what, key)


def test_the_steps_of_an_epoch_add_up_to_a_tasks_mean_loss(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    """(N / B) Σ_b L_b / N_t, weighted by the steps' shares B / N, of a task without missing labels and with parameters
    that stay as they are."""
    data = uneven()
    trainer = Trainer(run_of(small(methods="[{name: equal, reduction: sum}]", training=POOLED % ""), data), data)
    sizes = {name: len(samples) for name, samples in data.splits["train"].items()}
    total, mover, shared = sum(sizes.values()), trainer.session.main, trainer.model.shared_parameters()
    found, lacking = [torch.zeros_like(p) for p in shared], 0
    for indices, _ in mover.steps(1):
        factors, share = mover.sampler.factors(indices), sum(map(len, indices.values())) / total
        micros = trainer.batches.micros({"b": indices["b"]}, 1, factors=factors)
        if not micros[0]:
            lacking += 1
            continue
        mover.update([mover.source(micro) for micro in micros])
        for gradient, parameter in zip(found, shared, strict=True):
            gradient += share * (parameter.grad if parameter.grad is not None else torch.zeros(()))
    assert lacking and mover.sampler.steps == -(-total // 4)
    batch = trainer.batches.micros({"b": torch.arange(sizes["b"])}, 1)[0][0]
    loss = nn.functional.cross_entropy(trainer.model(batch).predictions["b"], batch.samples.targets["b"])
    for gradient, expected in zip(found, torch.autograd.grad(loss, shared), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_neither_workers_nor_micro_batches_matter(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data, runs, some = uneven(), {}, ", steps_per_epoch: 12"
    for name in BALANCERS:
        at = components.component("balancers", name).at
        for parts in (1, 3) if at == "parameters" else (1,):
            training = POOLED % f"{some}, accumulate: {parts}"
            runs[name, parts] = run_of(small(methods=method(name), training=training), data)
    sampler = Trainer(runs["equal", 1], data).session.main.sampler
    assert any(len(indices) == 0 for step in sampler.epoch(1) for indices in step.values())  # of a task that is absent
    jobs = [(run, data) for (_, parts), run in runs.items() if parts == 1]
    one = {key: parameters_after(run, data) for key, run in runs.items()}
    for (run, _), found in zip(jobs, two_workers(_trained, jobs)[0], strict=True):
        close(one[run.method, 1], found, f"{run.method}, two workers")
    for (name, parts), state in one.items():
        if parts > 1:
            close(one[name, 1], state, f"{name}, micro-batches")


def _trained(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    return parameters_after(*job, workers)


@pytest.mark.parametrize("name", ["separate", "tomato_el", "inter_task_l2", "dmtrl", "mrn", "cross_stitch", "mmoe"])
def test_a_run_cut_off_ends_as_if_it_had_not_been_whatever_reads(
    name: str, small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    data = uneven()
    own = {"inter_task_l2": ", architecture: shared_bottom", "mrn": ", architecture: shared_bottom"}.get(name, "")
    lines = {"methods": f"[{{name: {name}{own}}}]", "model": "{encoder: {name: mlp, hidden: [8]}, dropout: 0.3}"}
    found = []
    for number, reader in enumerate(("device", "memory", "mapped")):
        more = f", checkpoint_seconds: 0, reader: {reader}"
        run = run_of(small(**lines, training=POOLED % more), data)
        if number:
            list(itertools.islice(Trainer(run, data, folder=tmp_path / reader).train(), 2))
        trainer = Trainer(run, data, folder=tmp_path / reader)
        for _ in trainer.train():
            pass
        found.append(trainer.model.state_dict())
    for other in found[1:]:
        assert all(torch.equal(value, other[key]) for key, value in found[0].items())


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        ({"datasets": "[{name: uneven, options: {shared: true}}]"}, "every sample of uneven has the labels"),
        ({"methods": "[auto_lambda]"}, "auto_lambda halves the training data"),
        ({"training": "{batches: pooled, reader: stream}"}, "the reader stream"),
    ],
)
def test_what_cannot_be_pooled_is_refused_in_a_line(
    lines: dict[str, str], refusal: str, small: Small, uneven: Uneven, run_of: RunOf
) -> None:
    data = uneven(shared="datasets" in lines)
    with pytest.raises(UserError, match=refusal) as caught:
        Trainer(run_of(small(**{"methods": "[equal]", "training": POOLED % "", **lines}), data), data)
    assert "\n" not in str(caught.value) and "set it to per_task" in str(caught.value)


def test_the_way_of_drawing_is_part_of_the_run(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    plain, per_task, pooled = (
        run_of(small(methods="[equal]", training=f"{{epochs: 2{more}}}"), data).run_id
        for more in ("", ", batches: per_task", ", batches: pooled")
    )
    assert plain == per_task != pooled
