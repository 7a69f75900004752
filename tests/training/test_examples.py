"""The engine carries what it was built for: the methods of docs/examples, each one file, distributed and resumable.

Two workers end as one, and a process killed with -9 in any phase, resumed by another, ends as undisturbed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import call
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from two_workers import PLUGINS, two_workers

from mtlscale.architectures import OptimizerSpec, Phase, Turn
from mtlscale.config import Experiment, Run, UserError, component, load_experiment, load_plugin
from mtlscale.data import PreparedData, Workers, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer, finish

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TRAINING = "{epochs: 3, batch_size: 16, lr: 1e-2, dtype: float64, checkpoint_seconds: 0, optimizer: sgd, momentum: 0.9}"
# Name -> (data set, method, epochs of all phases).
METHODS = {
    "bilevel": ("uneven", "{architecture: gated, balancer: getmtl}", 3),
    "two phases": ("uneven", "{architecture: searched_sharing, balancer: mgda}", 5),
    "unlabelled": ("shifted", "{name: mean_matching, strength: 0.5}", 3),
}

Job = tuple[Run, PreparedData]


@pytest.fixture(scope="module")
def data_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], PreparedData]:
    for plugin in PLUGINS:
        load_plugin(plugin)
    home = tmp_path_factory.mktemp("home")
    return lambda name: load_prepared(prepare(name, {}, None, home))


@pytest.fixture
def job(experiment_file: Callable[..., Path], data_of: Callable[[str], PreparedData]) -> Callable[..., Job]:
    """The run of an example, or of another method on its data."""

    def make(name: str, method: str | None = None, **lines: str) -> Job:
        dataset, usual, _ = METHODS[name]
        data = data_of(dataset)
        content = {
            "plugins": f"[{', '.join(map(str, PLUGINS))}]",
            "datasets": f"[{dataset}]",
            "methods": f"[{method or usual}]",
            "training": TRAINING,
            **lines,
        }
        experiment: Experiment = load_experiment(experiment_file(**content))
        return next(experiment.runs({dataset: data.manifest.fingerprint})), data

    return make


def end_of(job: Job, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Parameters, metrics and losses at the end."""
    trainer = Trainer(*job, workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    return {
        **trainer.model.state_dict(),
        "losses": torch.tensor(losses, dtype=torch.float64),
        "loss": torch.tensor([found["loss"] for found in record.metrics["test"].values()], dtype=torch.float64),
    }


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert (value - right[key]).norm() <= 1e-9 * value.norm().clamp(min=1e-12), key


def test_an_example_is_one_short_file() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) >= 3
    assert all(len(file.read_text().splitlines()) <= 120 for file in files)


def test_two_workers_end_as_one(job: Callable[..., Job]) -> None:
    jobs = [job(name) for name in METHODS]
    for one, found in zip(jobs, two_workers(end_of, jobs)[0], strict=True):
        assert_close(end_of(one), found)


def _until_killed(rank: int, job: Job, folder: Path, epochs: int) -> None:
    """Train that many epochs, begin another, and die in it."""
    for plugin in PLUGINS:
        load_plugin(plugin)
    torch.set_num_threads(1)
    trainer = Trainer(*job, folder=folder)
    steps = trainer.train()
    for _ in range(epochs):
        next(steps)
    calls = [0]

    def die(*_: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(die)
    next(steps)


@pytest.mark.parametrize(("name", "epochs"), [(n, e) for n, (*_, total) in METHODS.items() for e in range(1, total)])
def test_a_run_killed_in_any_phase_ends_as_undisturbed(
    name: str, epochs: int, job: Callable[..., Job], tmp_path: Path
) -> None:
    one = job(name)
    with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
        call(_until_killed, (one, tmp_path / "run", epochs))
    assert (tmp_path / "run" / "checkpoint.pt").exists()
    resumed = Trainer(*one, folder=tmp_path / "run")
    left = resumed.train()
    next(left)
    assert len(resumed.at.epochs) == epochs + 1  # not from the start
    undisturbed = end_of(one)
    assert_close(undisturbed, end_of(one, folder=tmp_path / "run"))


def test_the_second_phase_is_built_from_what_the_first_has_found(job: Callable[..., Job], tmp_path: Path) -> None:
    record = finish(Trainer(*job("two phases"), folder=tmp_path))
    assert [epoch.phase for epoch in record.epochs] == ["search"] * 2 + ["retrain"] * 3
    [search] = record.phases
    assert (search.name, search.epochs, search.reused) == ("search", 2, False)
    assert search.seconds > 0 and record.seconds > search.seconds


def test_a_search_is_done_once_for_runs_that_differ_in_what_it_does_not_see(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    kept = tmp_path / "phases"
    method = "{architecture: searched_sharing, balancer: %s}"
    first = finish(Trainer(*job("two phases", method % "mgda"), phases=kept))
    other = finish(Trainer(*job("two phases", method % "cagrad", seeds="[7]"), phases=kept))
    longer = finish(
        Trainer(*job("two phases", "{architecture: {name: searched_sharing, search_epochs: 3}}"), phases=kept)
    )
    assert [record.phases[0].reused for record in (first, other, longer)] == [False, True, False]
    assert other.phases[0].phase_id == first.phases[0].phase_id != longer.phases[0].phase_id
    assert len(list(kept.glob("*.pt"))) == 2
    assert [epoch.phase for epoch in other.epochs] == ["retrain"] * 3
    alone = finish(Trainer(*job("two phases", method % "cagrad", seeds="[7]"), phases=tmp_path / "elsewhere"))
    assert alone.metrics == other.metrics  # reused or not


def test_the_two_halves_are_disjoint_and_each_update_sees_its_own(job: Callable[..., Job]) -> None:
    trainer = Trainer(*job("bilevel"))
    weights, gates = trainer.session.updaters
    assert weights.share is not None and gates.share is not None
    for stream, size in trainer.batches.sizes.items():
        first, second = set(weights.share[stream].tolist()), set(gates.share[stream].tolist())
        assert not first & second and first | second == set(range(size))
    (indices, _), *_ = weights.steps(1)
    assert all(set(index.tolist()) <= set(weights.share[stream].tolist()) for stream, index in indices.items())
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.session.step(gates, trainer.batches.micros(indices, 1))
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {f"gates.{place}" for place in range(3)}


def test_an_objective_over_an_unlabelled_stream_pulls_the_means_together(job: Callable[..., Job]) -> None:
    def distance(strength: float) -> float:
        trainer = Trainer(*job("unlabelled", f"{{name: mean_matching, strength: {strength}}}"))
        finish(trainer)
        whole = trainer.batches.whole("this test")
        with torch.no_grad():
            means = [
                torch.cat([trainer.model.encoder(samples.inputs) for stream, samples in whole.items()
                           if (stream == "extra") is extra]).mean(0)
                for extra in (True, False)
            ]  # fmt: skip
        return float((means[0] - means[1]).norm())

    assert distance(2.0) < 0.5 * distance(0.0)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"groups": ("none",)}, "turn main trains nothing"),
    "unknown group": ({"groups": ("nobody",)}, "moves a group 'nobody'; the network has: weights, gates, none"),
    "unknown source": ({"source": "dreams"}, "asks for a source 'dreams'; there are: tasks, foreign"),
    "foreign source": ({"source": "foreign"}, "a loss 'z', but uneven has no such task; its tasks are: a, b, c"),
    "not a turn's setting": ({"optimizer": OptimizerSpec(training={"epochs": 3})}, "cannot set epochs"),
    "both halves": ({"share": "first"}, "meta_weighting needs both halves"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_phase_that_does_not_fit_is_refused_in_a_line(
    case: str, job: Callable[..., Job], data_of: Callable[[str], PreparedData]
) -> None:
    balancer = "meta_weighting" if case == "both halves" else "equal"
    run, data = job("bilevel", f"{{architecture: gated, balancer: {balancer}}}")
    turn, message = WRONG[case]
    gated = component("architectures", "gated")

    class Foreign:
        names, of_tasks = ("z",), True

    def build(self: Any, *args: Any) -> Any:
        model = gated.build(self, *args)
        model.groups = lambda: {**type(model).groups(model), "none": []}
        model.sources = lambda: {"foreign": Foreign()}
        return model

    phases = (Phase(turns=(Turn(**turn),)),)
    odd = type("Odd", (gated,), {"phases": lambda self: phases, "build": build, "name": "odd"})
    run.parts.__dict__["architecture"] = odd()
    with pytest.raises(UserError, match=message) as raised:
        Trainer(run, data)
    assert "\n" not in str(raised.value)


def test_two_optimisers_over_one_parameter_are_refused(job: Callable[..., Job]) -> None:
    run, data = job("bilevel")
    phases = (Phase(turns=(Turn(name="one"), Turn(name="two", groups=("gates",)))),)
    odd = type("Odd", (component("architectures", "gated"),), {"phases": lambda self: phases, "name": "odd"})
    run.parts.__dict__["architecture"] = odd()
    with pytest.raises(UserError, match=r"gates\.0 is moved by two optimisers, of the turns one and two"):
        Trainer(run, data)


def test_a_half_without_a_label_of_a_task_is_refused(job: Callable[..., Job]) -> None:
    run, data = job("bilevel")
    target = data.splits["train"]["c"].targets["c"]
    target[1:] = float("nan")
    with pytest.raises(UserError, match="half of the training data has no label of task c"):
        Trainer(run, data)


def test_a_step_term_needs_the_whole_step(job: Callable[..., Job]) -> None:
    run, data = job("unlabelled", training=TRAINING.replace("}", ", accumulate: 2}"))
    with pytest.raises(UserError, match="mean_matching looks at a whole step at once: set accumulate to 1"):
        Trainer(run, data)
