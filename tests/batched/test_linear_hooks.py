"""Batched trials that share their input: no task's gradient of what is shared is made, unless it has to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.batched.eligibility import planning
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import Run, load_experiment, trials
from mtlscale.data import PreparedData
from mtlscale.encoders import EncoderModule
from mtlscale.encoders.table.mlp import MLP

Uneven = Callable[..., PreparedData]
File = Callable[..., Path]


class Called(EncoderModule):
    """A layer that is called twice, or whose weight is used once more by itself."""

    features = 4

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Linear(6, 4), nn.Linear(4, 4), how

    def forward(self, inputs: Tensor) -> Tensor:
        x = torch.tanh(self.first(inputs.flatten(1)))
        if self.how == "twice":
            return torch.tanh(self.second(torch.tanh(self.second(x))))
        if self.how == "weight":
            return torch.tanh(self.second(x)) + functional.linear(x, self.second.weight)
        return torch.tanh(self.second(x))


def runs_of(experiment_file: File, data: PreparedData) -> list[Run]:
    path = experiment_file(
        datasets="[{name: uneven, options: {shared: true}}]",
        methods="[mgda]",
        training="{epochs: 2, batch_size: 16, dtype: float64}",
        search="{budget: 3, space: {training.lr: {low: 1e-3, high: 3e-2, scale: log}}, methods: {mgda: {}}}",
    )
    experiment = load_experiment(path)
    fingerprints = dict.fromkeys(experiment.data(), data.manifest.fingerprint)
    (base,) = experiment.bases(fingerprints)
    assert experiment.search is not None
    (group,) = planning.groups(trials(experiment.search, base))
    return group


@pytest.mark.parametrize(("how", "tapped"), [("once", True), ("twice", False), ("weight", False)])
def test_networks_that_are_used_otherwise_end_the_same(
    how: str, tapped: bool, experiment_file: File, uneven: Uneven, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = uneven(shared=True)
    monkeypatch.setattr(MLP, "build", lambda self, suite: Called(how))
    runs, ends = runs_of(experiment_file, data), []
    for taps in (True, False):
        trainer = BatchedTrainer(runs, data, keep_states=True)
        assert trainer.session.network.taps is not None
        if not taps:
            trainer.session.network.taps = None
        for _ in trainer.train():
            pass
        assert (trainer.session.network.taps is not None) == (taps and tapped)
        ends.append(trainer.states)
    for run in runs:
        for key, value in ends[0][run.run_id].items():
            torch.testing.assert_close(value, ends[1][run.run_id][key], rtol=1e-9, atol=1e-12)


def test_no_tasks_gradient_is_made(experiment_file: File, uneven: Uneven, monkeypatch: pytest.MonkeyPatch) -> None:
    data = uneven(shared=True)
    trainer = BatchedTrainer(runs_of(experiment_file, data), data)
    shapes = {tuple(value.shape) for value in trainer.values}
    asked: list[int] = []
    grad = torch.autograd.grad

    def noting(outputs: Any, inputs: Any, *rest: Any, **options: Any) -> Any:
        asked.append(sum(tuple(each.shape) in shapes and each.ndim == 3 for each in inputs))
        return grad(outputs, inputs, *rest, **options)

    monkeypatch.setattr(torch.autograd, "grad", noting)
    next(iter(trainer.train()))
    tasks = len(data.suite.tasks)
    per_step = tasks + 1  # one pass a task to the layers' outputs and its own head, one of the weighted losses
    assert len(asked) % per_step == 0
    for start in range(0, len(asked), per_step):
        assert asked[start : start + per_step] == [1] * tasks + [1]  # the head's weight; the encoder's one weight
