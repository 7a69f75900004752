"""Which tasks lie side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from mtlscale.batched.parameter_layout import tasks_are_alike
from mtlscale.config import load_experiment
from mtlscale.data import PreparedData
from mtlscale.training import build_model

Uneven = Callable[..., PreparedData]
File = Callable[..., Path]


def test_tasks_whose_networks_differ_are_not_put_side_by_side(
    experiment_file: File, digits: PreparedData, uneven: Uneven
) -> None:
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[equal]"))
    model = build_model(next(experiment.runs(dict.fromkeys(experiment.data(), ""))), digits.suite)[0]
    train = digits.splits["train"]
    assert tasks_are_alike(model, digits.suite, train)
    plain = type(model).forward
    shift = torch.arange(10.0)

    def forward(self: object, batch: object) -> object:  # a network that knows which task it serves
        outputs = plain(self, batch)  # type: ignore[arg-type]
        for name, value in outputs.predictions.items():
            outputs.predictions[name] = value + shift[model.names.index(name)]
        return outputs

    model.__class__ = type("Shifted", (type(model),), {"forward": forward})
    assert not tasks_are_alike(model, digits.suite, train)
