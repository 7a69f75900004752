"""Searches among candidate nodes, whole runs: one worker or two, undisturbed or cut off in any phase."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from two_workers import PLUGINS

from mtlscale.architectures.branching._routing import RoutedModule
from mtlscale.config import Run, load_experiment, load_plugin
from mtlscale.data import PreparedData, Workers, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer, finish

TRAINING = "{epochs: 2, batch_size: 16, lr: 2e-2, dtype: float64, checkpoint_seconds: 0}"
# Name -> (method, phases of its epochs)
_PHASES = ["warm-up"] * 2 + ["search"] * 2 + ["retrain"] * 2
METHODS = {
    "bmtas": ("{name: bmtas, search_epochs: 4, warmup: 0.5}", _PHASES),
    "ltb": ("{name: ltb, search_epochs: 4, warmup: 0.5}", _PHASES),
}
Job = tuple[Run, PreparedData]
every = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    for plugin in PLUGINS:
        load_plugin(plugin)
    return load_prepared(prepare("uneven", {}, None, tmp_path_factory.mktemp("home")))


@pytest.fixture
def job(experiment_file: Callable[..., Path], data: PreparedData) -> Callable[..., Job]:
    def make(name: str, **lines: str) -> Job:
        content = {
            "plugins": f"[{', '.join(map(str, PLUGINS))}]",
            "datasets": "[uneven]",
            "methods": f"[{{architecture: {METHODS[name][0]}, balancer: mgda}}]",
            "model": "{encoder: {name: mlp, hidden: [6, 5], activation: tanh}}",
            "training": TRAINING,
            **lines,
        }
        return next(load_experiment(experiment_file(**content)).runs({"uneven": data.manifest.fingerprint})), data

    return make


def end_of(job: Job, workers: Workers | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Parameters, losses and what the search has seen at the end."""
    trainer = Trainer(*job, workers=workers, folder=folder)
    record = finish(trainer)
    assert record.status == "finished", record.error
    losses = [list(epoch.train_loss.values()) for epoch in record.epochs]
    routing = [torch.tensor(epoch.traces["routing"]).flatten() for epoch in record.epochs if "routing" in epoch.traces]
    return {
        **trainer.model.state_dict(),
        "losses": torch.tensor(losses, dtype=torch.float64),
        "routing": torch.cat(routing),
    }


def assert_close(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        assert (value - right[key]).norm() <= 1e-9 * value.norm().clamp(min=1e-12), key


@every
def test_the_phases_and_what_they_tell(name: str, job: Callable[..., Job], tmp_path: Path) -> None:
    trainer = Trainer(*job(name), folder=tmp_path)
    record = finish(trainer)
    assert [epoch.phase for epoch in record.epochs] == METHODS[name][1]
    searched = [epoch for epoch in record.epochs if epoch.phase != "retrain"]
    uniform = [[[pytest.approx(1 / 3)] * 3] * 3] * 2
    for epoch in searched:
        assert (epoch.traces["routing"] == uniform) == (epoch.phase == "warm-up")  # logits rest in the warm-up
        assert epoch.traces["temperature"] > 0
    tree = trainer.model.structure()["tree"]
    assert len(tree) == 2 and all(len(stage) == 3 for stage in tree)


@every
def test_a_search_is_done_once_for_other_balancers_and_seeds(
    name: str, job: Callable[..., Job], tmp_path: Path
) -> None:
    methods = f"[{{architecture: {METHODS[name][0]}, balancer: cagrad}}]"
    one, other = (
        Trainer(*made, phases=tmp_path / "phases") for made in (job(name), job(name, methods=methods, seeds="[7]"))
    )
    assert not any(phase.reused for phase in finish(one).phases)
    assert all(phase.reused for phase in finish(other).phases)
    assert other.model.structure()["tree"] == one.model.structure()["tree"]


def test_ltb_can_count_conflicts_and_searches_the_same(job: Callable[..., Job]) -> None:
    method = "[{architecture: {name: ltb, search_epochs: 4, warmup: 0.5, count_conflicts: %s}}]"
    plain, counting = (Trainer(*job("ltb", methods=method % flag)) for flag in ("false", "true"))
    records = [finish(trainer) for trainer in (plain, counting)]
    ratios = [epoch.traces["conflict_ratio"] for epoch in records[1].epochs[:4]]
    assert all(len(ratio) == 2 and all(0 <= share <= 1 for share in ratio) for ratio in ratios)
    assert max(max(ratio) for ratio in ratios) > 0
    assert_close(plain.model.state_dict(), counting.model.state_dict())
    routings = [torch.tensor(record.epochs[3].traces["routing"], dtype=torch.float64) for record in records]
    assert (routings[0] - routings[1]).abs().max() <= 1e-9


def searched(job: Callable[..., Job], resource: float) -> tuple[float, list[list[int]]]:
    """Expected cost after, and tree of, a search that would rather have networks apart: it starts there."""
    method = f"{{name: bmtas, search_epochs: 16, warmup: 0, resource: {resource}, arch_lr: 0.3}}"
    trainer = Trainer(*job("bmtas", methods=f"[{{architecture: {method}}}]"))
    model = trainer.model
    assert isinstance(model, RoutedModule)
    with torch.no_grad():
        for stage in range(model.depth):
            for place in range(model.size):
                model.of_choice(stage, place)[place] = 0.5
    steps = trainer.train()
    found = [next(steps).traces["expected_cost"] for _ in range(16)]
    return found[-1], model.tree()


def test_a_large_resource_weight_ends_in_hard_sharing(job: Callable[..., Job]) -> None:
    cost, tree = searched(job, 20.0)
    free, apart = searched(job, 0.0)
    assert tree == [[0, 0, 0]] * 2 and cost < 1.1
    assert apart != tree and free > 1.5


def test_an_expected_cost_counts_once_however_a_step_is_cut(job: Callable[..., Job]) -> None:
    one, cut = (end_of(job("bmtas", training=TRAINING.replace("}", f", accumulate: {n}}}"))) for n in (1, 2))
    assert_close(one, cut)
