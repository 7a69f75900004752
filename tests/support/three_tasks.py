"""A suite of three tasks on vectors, a batch of it, and networks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import Task, TaskSuite
from mtlscale.config.registry import components
from mtlscale.data import Batch, Samples

FEATURES = 6
TASKS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture
def suite() -> TaskSuite:
    tasks = tuple(Task(name=name, loss="cross_entropy", outputs=4, metrics=("error",)) for name in TASKS)
    return TaskSuite(name="three", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(FEATURES,))


@pytest.fixture
def build(suite: TaskSuite) -> Callable[..., Any]:
    """A network by its architecture's name and options, on an MLP with one hidden layer."""

    def make(name: str, seed: int = 0, **options: Any) -> MultiTaskModule:
        torch.manual_seed(seed)
        encoder = components.build("encoders", "mlp", {"hidden": [5]})
        architecture = components.build("architectures", name, options)
        inputs = architecture.encoder_suite(suite)
        model: MultiTaskModule = architecture.build(suite, lambda: encoder.build(inputs), 0.0)
        return model

    return make


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """A batch of nine samples with the labels of these tasks."""

    def make(*tasks: str, seed: int = 1) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(9, FEATURES, generator=generator)
        targets = {task: torch.randint(4, (9,), generator=generator) for task in tasks or TASKS}
        return Batch("all", Samples(inputs, targets), 9)

    return make
