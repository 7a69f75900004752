"""The constant predictor: no other constant fits the training labels better, and a run stays there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtlscale.architectures.floors.constant import best_constant
from mtlscale.config import Experiment, Task, TaskSuite
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import train
from mtlscale.training.losses import task_loss

GENERATOR = torch.Generator().manual_seed(0)


def _rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR)


def _gaps(target: Tensor) -> Tensor:
    return torch.where(_rand(*target.shape) < 0.2, math.nan, target)


CASES = {
    "classes": (Task(name="t", loss="cross_entropy", outputs=3, metrics=("error",)), (_rand(50) * 4).long() - 1),
    "class map": (
        Task(name="t", loss="cross_entropy", outputs=3, metrics=("miou",)),
        (_rand(6, 4, 5).sqrt() * 4).long() - 1,
    ),
    "labels": (Task(name="t", loss="bce", outputs=2, metrics=("error",)), _gaps((_rand(40, 2) > 0.7).float())),
    "probabilities": (
        Task(name="t", loss="soft_cross_entropy", outputs=3, metrics=("soft_error",)),
        (_rand(30, 3) + 0.01) / (_rand(30, 3) * 0 + 1.515),
    ),
    "numbers": (Task(name="t", loss="mse", outputs=1, metrics=("rmse",)), _gaps(_rand(31) * 5 - 1)),
    "depth": (Task(name="t", loss="l1", outputs=1, metrics=("abs_err",)), _gaps(_rand(5, 1, 4, 6) * 3)),
    "normals": (Task(name="t", loss="cosine", outputs=3, metrics=("angle_mean",)), _rand(5, 3, 4, 6) - 0.2),
}


@pytest.mark.parametrize(("task", "target"), CASES.values(), ids=CASES)
def test_no_other_constant_fits_better(task: Task, target: Tensor) -> None:
    def loss(value: Tensor) -> float:
        places = target.shape[2:] if target.ndim == 4 else target.shape[1:] if task.loss == "cross_entropy" else ()
        wide = value.reshape(1, -1, *[1] * len(places)).expand(len(target), -1, *places)
        total, count = task_loss(task.loss, wide, target)
        return float(total / count)

    best = best_constant(task, target)
    assert best.shape == (task.outputs,)
    lowest = loss(best)
    for size in (0.01, 0.1, 1.0):
        for _ in range(20):
            assert loss(best + size * torch.randn(task.outputs, generator=GENERATOR).double()) >= lowest - 1e-6


class _Labels:
    """Training labels, as a network asks for them."""

    def __init__(self, targets: dict[str, Tensor]) -> None:
        self._targets = targets

    def targets(self) -> dict[str, Tensor]:
        return self._targets

    def samples(self, split: str, stream: str, most: int | None = None) -> Iterator[Samples]:
        raise AssertionError("a constant needs no inputs")


def test_maps_are_the_same_everywhere() -> None:
    task = Task(name="seg", loss="cross_entropy", outputs=3, metrics=("miou",))
    suite = TaskSuite(name="s", tasks=(task,), inputs="shared", input_kind="image", input_shape=(3, 32, 48))
    encoder = components.build("encoders", "segnet", {"width": 4})
    model = components.build("architectures", "constant", {}).build(suite, lambda: encoder.build(suite), 0.0)
    target = torch.full((2, 32, 48), 2)
    model.from_data(_Labels({"seg": target}))
    found = model(Batch("all", Samples(torch.rand(2, 3, 32, 48), {"seg": target}), 2)).predictions["seg"]
    assert found.shape == (2, 3, 32, 48)
    assert (found.argmax(1) == 2).all()


def test_a_run_predicts_the_majority(tmp_path: Path) -> None:
    data = load_prepared(prepare("digits", {}, None, tmp_path))
    content = {"name": "t", "datasets": ["digits"], "methods": ["constant"], "floors": [], "training": {"epochs": 2}}
    experiment = Experiment.model_validate(content)
    (run,) = experiment.runs({experiment.datasets[0].label: data.manifest.fingerprint})
    record = train(run, data)
    for task in data.suite.tasks:
        of_train, target = (data.splits[split][task.name].targets[task.name] for split in ("train", "test"))
        majority = of_train.bincount().argmax()
        share = 100 * float((target == majority).float().mean())
        assert record.metrics["test"][task.name]["accuracy"] == pytest.approx(share)
