"""Three tasks on encoders that are cut into stages: vectors, images with normalisation or remembered places, texts."""

from __future__ import annotations

from typing import Any

import torch

from mtlscale.config import Task, TaskSuite
from mtlscale.data import Batch, Samples

TASKS = ("a", "b", "c")
ENCODERS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [5, 4, 3], "dropout": 0.3},
    "resnet18": {"width": 2, "stem": "small"},
    "segnet": {"width": 2},
    "textcnn_mlp": {"dimensions": 4, "filters": 3, "widths": [2, 3], "hidden": [5, 4]},
}


def suite(encoder: str) -> TaskSuite:
    kind, shape = {"mlp": ("vector", (6,)), "textcnn_mlp": ("tokens", (7,))}.get(encoder, ("image", (3, 32, 32)))
    tasks = tuple(Task(name=name, loss="cross_entropy", outputs=4, metrics=("error",)) for name in TASKS)
    size = 20 if kind == "tokens" else None
    return TaskSuite(
        name="three", tasks=tasks, inputs="shared", input_kind=kind, input_shape=shape, vocabulary_size=size
    )


def batch(encoder: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    of = suite(encoder)
    if of.input_kind == "tokens":
        inputs = torch.randint(1, 20, (9, 7), generator=generator)
    else:
        inputs = torch.randn(9, *of.input_shape, generator=generator)
    targets = {task: torch.randint(4, (9,), generator=generator) for task in TASKS}
    return Batch("all", Samples(inputs, targets), 9)
