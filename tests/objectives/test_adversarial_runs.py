"""Objectives with state in whole runs: workers, micro-batches and interruptions must not show."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from two_workers import two_workers

from mtlscale.data import Workers
from mtlscale.data.prepared import PreparedData
from mtlscale.records import Epoch
from mtlscale.spec import Experiment, Run
from mtlscale.training import Trainer

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]
EXACT = "{epochs: 4, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9%s}"
# Every way the step comes to an update, with the state of AAMTRL; and of the objective, every form and rule.
BALANCERS = ("equal", "uncertainty", "tchebycheff", "mgda", "mgda_ub", "getmtl", "graddrop", "meta_weighting")
ADVERSARIAL = [
    *(f"{{objective: aamtrl, balancer: {balancer}}}" for balancer in BALANCERS),
    "{objective: {name: aamtrl, form: xent, multiplier_rule: printed, uniform: true}}",
    "{objective: {name: amtrl, form: xent}, balancer: gradnorm}",
]
TRACED = ("A", "R_mean", "R_var", "lambda", "R")


def state_after(run: Run, data: PreparedData, workers: Workers | None = None) -> dict[str, Tensor]:
    """Parameters of network and discriminator, the objective's state, and the traces of every epoch."""
    trainer = Trainer(run, data, workers=workers)
    epochs = list(trainer.train())
    return {**parameters(trainer), **{f"epoch {epoch.epoch}": traces(epoch) for epoch in epochs}}


def parameters(trainer: Trainer) -> dict[str, Tensor]:
    assert trainer.objective is not None
    return {**trainer.model.state_dict(), **trainer.objective.state_dict(prefix="objective.")}


def traces(epoch: Epoch) -> Tensor:
    values = [epoch.traces[name] for name in TRACED if name in epoch.traces]
    return torch.cat([torch.tensor(value, dtype=torch.float64).flatten() for value in values])


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    for key, value in expected.items():
        error = (value - found[key]).norm() / value.norm().clamp(min=1e-12)
        assert error <= 1e-9, f"{what}: {key} differs by {error:.1e}"


def _trained(job: tuple[Run, PreparedData], workers: Workers) -> dict[str, Tensor]:
    return state_after(*job, workers)


def test_two_workers_end_where_one_does(small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    jobs = [(run_of(small(methods=f"[{method}]", training=EXACT % ""), data), data) for method in ADVERSARIAL]
    for (run, _), found in zip(jobs, two_workers(_trained, jobs)[0], strict=True):
        assert_close(found, state_after(run, data), run.method)


@pytest.mark.parametrize("method", [method for method in ADVERSARIAL if "mgda_ub" not in method])
def test_gradient_accumulation_is_exact(method: str, small: Small, uneven: Uneven, run_of: RunOf) -> None:
    data = uneven()
    one, three = (
        state_after(run_of(small(methods=f"[{method}]", training=EXACT % f", accumulate: {n}"), data), data)
        for n in (1, 3)
    )
    assert_close(three, one, method)


@pytest.mark.parametrize("method", ["aamtrl", "{objective: aamtrl, balancer: getmtl}", "amtrl"])
def test_a_run_cut_off_after_any_epoch_ends_as_if_it_had_not_been(
    method: str, small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path
) -> None:
    training = "{epochs: 4, batch_size: 16, lr: 1e-2, checkpoint_seconds: 0}"
    model = "{encoder: {name: mlp, hidden: [8]}, dropout: 0.3}"
    data = uneven()
    run = run_of(small(methods=f"[{method}]", training=training, model=model), data)
    whole = Trainer(run, data)
    expected = list(whole.train())
    for cut in (1, 2, 3):
        folder = tmp_path / str(cut)
        list(itertools.islice(Trainer(run, data, folder=folder).train(), cut + 1))
        resumed = Trainer(run, data, folder=folder)
        rest = list(resumed.train())
        assert len(rest) == len(expected) - cut - (cut < 3)  # the last epoch needs no checkpoint
        for key, value in parameters(whole).items():
            assert torch.equal(value, parameters(resumed)[key]), (cut, key)
        assert [epoch["traces"] for epoch in resumed.at.epochs] == [epoch["traces"] for epoch in whole.at.epochs]
