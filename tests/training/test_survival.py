"""What balancing changes in the optimiser's step: the trace, which moves nothing; muon and lion."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from two_workers import two_workers

from mtlscale.config import Experiment, Run, TrainingSpec
from mtlscale.data import Workers
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.records import RunRecord
from mtlscale.training import Trainer, train
from mtlscale.training.engine.optimizers import hidden_matrices, make_optimizer
from mtlscale.training.probes import survival

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]

TRAINING = "{{epochs: 2, batch_size: 16, steps_per_epoch: 8, dtype: float64, lr: 0.01, optimizer: {}, momentum: {}}}"


def traces(record: RunRecord) -> list[dict[str, float]]:
    return [epoch.traces["survival"] for epoch in record.epochs if "survival" in epoch.traces]


@pytest.fixture
def run_with(small: Small, uneven: Uneven, run_of: RunOf) -> Callable[..., tuple[Run, PreparedData]]:
    def make(method: str, optimizer: str = "adam", momentum: float = 0.0) -> tuple[Run, PreparedData]:
        data = uneven()
        return run_of(small(methods=f"[{method}]", training=TRAINING.format(optimizer, momentum)), data), data

    return make


def test_plain_sgd_keeps_what_balancing_did(run_with: Any) -> None:
    (row,) = traces(train(*run_with("mgda", "sgd")))
    assert row["step_to_equal"] == pytest.approx(row["gradient_to_equal"], abs=1e-9)
    assert row["gradient_to_equal"] < 0.999
    assert row["step_to_gradient"] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("optimizer", ["adam", "muon", "lion"])
def test_other_optimisers_turn_the_step(run_with: Any, optimizer: str) -> None:
    (row,) = traces(train(*run_with("mgda", optimizer)))
    assert 0 < row["step_to_gradient"] < 0.95
    assert abs(row["step_to_equal"] - row["gradient_to_equal"]) > 1e-4


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fixed_equal_weights_are_equal_weighting(run_with: Any, optimizer: str) -> None:
    """Weights of another size, too: their size is the learning rate's matter."""
    (row,) = traces(train(*run_with("{name: static, weights: [3, 3, 3]}", optimizer, 0.0)))
    assert row["gradient_to_equal"] == pytest.approx(1.0, abs=1e-9)
    assert row["step_to_equal"] == pytest.approx(1.0, abs=1e-6)
    (equal,) = traces(train(*run_with("equal", optimizer)))
    assert (equal["gradient_to_equal"], equal["step_to_equal"]) == (1.0, 1.0)


@pytest.mark.parametrize("method", ["stl", "{name: equal, architecture: stl}"])
def test_networks_that_share_nothing_have_no_trace(run_with: Any, method: str) -> None:
    assert traces(train(*run_with(method))) == []


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon", "lion"])
@pytest.mark.parametrize("method", ["mgda", "uncertainty"])
def test_looking_moves_nothing(run_with: Any, optimizer: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for first, every in ((0, 1), (10**6, 10**7)):
        monkeypatch.setattr(survival, "FIRST", first)
        monkeypatch.setattr(survival, "EVERY", every)
        trainer = Trainer(*run_with(method, optimizer, 0.9))
        list(trainer.train())
        ends.append(trainer.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_a_resumed_run_has_the_same_trace(
    small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survival, "EVERY", 4)
    monkeypatch.setattr(survival, "FIRST", 1)
    data, training = uneven(), TRAINING.format("muon", 0.0).replace("epochs: 2", "epochs: 3, checkpoint_seconds: 0")
    run = run_of(small(methods="[pcgrad]", training=training), data)
    whole = traces(train(run, data))
    list(itertools.islice(Trainer(run, data, folder=tmp_path).train(), 2))
    assert traces(train(run, data, folder=tmp_path)) == whole and len(whole) == 3


def _traces(job: tuple[Run, PreparedData], workers: Workers) -> list[dict[str, float]]:
    return traces(train(*job, workers=workers))


@pytest.mark.parametrize("method", ["mgda", "uncertainty"])
def test_two_workers_have_the_trace_of_one(run_with: Any, method: str) -> None:
    job = run_with(method)
    (alone,) = traces(train(*job))
    first, second = two_workers(_traces, [job])
    assert first == second
    assert first[0][0] == pytest.approx(alone, rel=1e-6)


def test_muon_moves_hidden_matrices_and_adamw_the_rest() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"words": nn.Embedding(7, 4), "hidden": nn.Linear(4, 5), "head": nn.Linear(5, 2)})
    shared = [*model["words"].parameters(), *model["hidden"].parameters()]
    assert [id(p) for p in hidden_matrices(model, shared)] == [id(model["hidden"].weight)]

    settings = TrainingSpec(optimizer="muon", lr=0.1, weight_decay=0.01)
    parameters = list(model.parameters())
    optimizer = make_optimizer(settings, parameters, hidden=hidden_matrices(model, shared))
    copies = [nn.Parameter(p.detach().clone()) for p in parameters]
    at = next(i for i, p in enumerate(parameters) if p is model["hidden"].weight)
    muon = torch.optim.Muon([copies[at]], lr=0.1, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([c for i, c in enumerate(copies) if i != at], lr=0.1, weight_decay=0.01)
    for _ in range(3):
        for parameter, copy in zip(parameters, copies, strict=True):
            parameter.grad = torch.randn_like(parameter)
            copy.grad = parameter.grad.clone()
        for each in (optimizer, muon, adamw):
            each.step()
    torch.testing.assert_close([p.detach() for p in parameters], [c.detach() for c in copies])

    again = make_optimizer(settings, parameters, hidden=hidden_matrices(model, shared))
    again.load_state_dict(optimizer.state_dict())
    again.step()
    for each in (muon, adamw):
        each.step()
    torch.testing.assert_close([p.detach() for p in parameters], [c.detach() for c in copies])


def test_lion_takes_the_sign_of_momentum_and_gradient() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = make_optimizer(TrainingSpec(optimizer="lion", lr=0.1, weight_decay=0.5), [parameter])
    expected, momentum = [1.0, -2.0, 3.0], [0.0, 0.0, 0.0]
    for gradient in ([1.0, -1.0, 0.5], [-0.01, 3.0, -0.2]):
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        for i, g in enumerate(gradient):
            update = 0.9 * momentum[i] + 0.1 * g
            expected[i] = expected[i] * (1 - 0.1 * 0.5) - 0.1 * (1 if update > 0 else -1)
            momentum[i] = 0.99 * momentum[i] + 0.01 * g
    assert parameter.tolist() == pytest.approx(expected)
