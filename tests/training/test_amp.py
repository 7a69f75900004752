"""Mixed precision: every balancer trains in halves as it does in float32, and a step that overflows moves nothing.

On the CPU, whose autocast has both halves. Losses of an epoch may differ from float32's by 0.5 % in fp16 (eps 1e-3) and
by 3 % in bf16 (eps 8e-3); found: at most 0.2 % and 2 % (nash_mtl, which weighs by inverse inner products).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from frozen.cases import Case
from frozen.compute import in_memory
from frozen.compute import run_of as frozen_run
from torch import Tensor

from mtlscale.config import Experiment, Run, UserError
from mtlscale.config.registry import components
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import RunRecord
from mtlscale.training import Trainer, finish
from mtlscale.training.gradients import layerwise_gramian as layers
from mtlscale.training.gradients import update

TOLERANCE = {"fp16": 0.005, "bf16": 0.03}
BALANCERS = components.names("balancers")
OVERFLOWING = 2.0**40


def _way(balancer: str) -> tuple[object, ...]:
    """How a step of a balancer goes: what it is told, of which tensors, and when."""
    kind = components.component("balancers", balancer)
    return kind.needs, kind.at, kind.needs_post_step_losses


FIRST_OF_WAYS = {_way(balancer): balancer for balancer in reversed(BALANCERS)}.values()


def cases_of_halves() -> list[Any]:
    """Give every balancer with either half and with micro-batches; `slow` where a step goes as another's does: a
    balancer computes in float32 whatever the halves are."""
    usual = [(1, "fp16"), (1, "bf16"), (2, "fp16")]
    return [
        pytest.param(
            balancer,
            accumulate,
            amp,
            marks=() if balancer in FIRST_OF_WAYS and (accumulate, amp) in usual else pytest.mark.slow,
        )
        for balancer in BALANCERS
        for accumulate in (1, 2)
        for amp in TOLERANCE
    ]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return load_prepared(prepare("digits", {}, None, tmp_path_factory.mktemp("home")))


def run_of(balancer: str, amp: str, accumulate: int = 1, **training: Any) -> Run:
    """Three epochs of eight steps: losses fall to less than half, but for tchebycheff's."""
    options = {"weights": [1.0] * 10} if balancer == "static" else {}
    settings = {"epochs": 3, "steps_per_epoch": 8, "batch_size": 64, "lr": 0.01, "evaluate_every": 3, **training}
    experiment = Experiment.model_validate(
        {
            "name": "amp",
            "datasets": [{"name": "digits", "metrics": ["accuracy"]}],
            "floors": [],
            "methods": [{"name": balancer, **options}],
            "model": {"encoder": {"name": "mlp", "hidden": [32]}},
            "training": {**settings, "amp": amp, "accumulate": accumulate},
        }
    )
    return next(experiment.runs({"digits": "digits"}))


def finished(trainer: Trainer) -> RunRecord:
    record = finish(trainer)
    assert record.status == "finished", record.error
    return record


def losses(record: RunRecord) -> list[float]:
    """Mean over tasks of each epoch's training losses."""
    return [sum(epoch.train_loss.values()) / len(epoch.train_loss) for epoch in record.epochs]


@pytest.fixture(scope="module")
def exact_losses(digits: PreparedData) -> Callable[[str, int], list[float]]:
    """What a balancer's three epochs of float32 come to."""
    return functools.cache(lambda balancer, parts: losses(finished(Trainer(run_of(balancer, "off", parts), digits))))


@pytest.mark.parametrize(("balancer", "accumulate", "amp"), cases_of_halves())
def test_three_epochs_in_halves_are_those_of_float32(
    balancer: str, accumulate: int, amp: str, digits: PreparedData, exact_losses: Callable[[str, int], list[float]]
) -> None:
    if balancer in ("mgda_ub", "ntkmtl_sr", "consmtl") and accumulate > 1:  # they work at the representation
        with pytest.raises(UserError, match="accumulate"):
            finished(Trainer(run_of(balancer, amp, accumulate), digits))
        return
    exact = exact_losses(balancer, accumulate)
    assert exact[-1] < exact[0]
    record = finished(Trainer(run_of(balancer, amp, accumulate), digits))
    assert record.counters.get("skipped_steps") == (0 if amp == "fp16" else None)
    assert losses(record) == pytest.approx(exact, rel=TOLERANCE[amp])


def snapshot(trainer: Trainer) -> dict[str, Tensor]:
    """Everything that a step may move, by name."""
    content = trainer.session.state_dict()
    update = content["updates"]["main"]
    found = {f"model {name}": value for name, value in content["model"].items()}
    found |= {f"balancer {name}": value for name, value in update["balancer"].items()}
    for index, state in content["optimizers"]["main"]["state"].items():
        found |= {f"optimiser {index} {name}": value for name, value in state.items()}
    return {name: value.clone() for name, value in found.items()}


@pytest.mark.parametrize("balancer", BALANCERS)
def test_a_step_that_overflows_moves_nothing(balancer: str, digits: PreparedData) -> None:
    trainer = Trainer(run_of(balancer, "fp16"), digits)
    session, updater = trainer.session, trainer.session.main
    trainer.model.train()
    steps = updater.steps(1)

    def step() -> bool:
        indices, query = next(steps)
        asked = None if query is None else trainer.batches.micros(query, 1)
        return session.step(updater, trainer.batches.micros(indices, 1), asked).skipped

    assert not step()
    before, scale = snapshot(trainer), updater.update.loss_scale
    updater.update.loss_scale = OVERFLOWING
    assert step() and updater.update.skipped == 1
    assert updater.update.loss_scale == OVERFLOWING / 2
    after = snapshot(trainer)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value.nan_to_num(nan=-1.0), after[name].nan_to_num(nan=-1.0)), name
    updater.update.loss_scale = scale
    assert not step() and updater.update.skipped == 1
    moved = snapshot(trainer)
    assert any(not torch.equal(value, moved[name]) for name, value in after.items() if name.startswith("model"))


@pytest.mark.parametrize("balancer", ["equal", "famo", "mgda", "mgda_ub", "graddrop", "meta_weighting"])
def test_a_run_finds_its_loss_scale_and_counts_what_it_skipped(balancer: str, digits: PreparedData) -> None:
    trainer = Trainer(run_of(balancer, "fp16"), digits)
    trainer.session.main.update.loss_scale = OVERFLOWING
    record = finished(trainer)
    skipped = record.counters["skipped_steps"]
    assert skipped == trainer.session.main.update.skipped
    # In fp16 gradients of mean losses overflow from about 2¹⁶ on: it takes some twenty of the 24 steps to get there.
    assert OVERFLOWING / 2**skipped == trainer.session.main.update.loss_scale and 12 <= skipped < 24
    assert record.steps == 24


def test_tasks_at_a_representation_overflow_no_sooner_for_having_many_labels(digits: PreparedData) -> None:
    trainer = Trainer(run_of("mgda_ub", "fp16", batch_size=2048, steps_per_epoch=4), digits)
    assert finished(trainer).counters["skipped_steps"] == 0


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_without_the_tasks_gradients_halves_train_as_with_them(amp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers so wide that the tasks' gradients of them are not made."""
    settings = {"epochs": 1, "steps_per_epoch": 3, "batch_size": 8, "lr": 1e-2, "optimizer": "sgd"}
    training = {**settings, "dtype": "float32", "amp": amp}
    wide = {"name": "mlp", "hidden": [800, 800]}
    case = Case("uneven", {"name": "mgda"}, training, encoder=wide, options={"shared": True})
    calls, ends = [], []
    at_once = layers._at_once
    monkeypatch.setattr(layers, "_at_once", lambda *given: calls.append(1) or at_once(*given))
    for way in (update.by_layers, lambda strategy, asked: strategy.by_gradients(asked)):
        monkeypatch.setattr(update, "by_layers", way)
        trainer = Trainer(frozen_run(case), in_memory(case))
        finish(trainer)
        ends.append(trainer.model.state_dict())
    assert len(calls) == 3
    for key, value in ends[1].items():
        assert (ends[0][key] - value).norm() <= 1e-3 * value.norm(), key
