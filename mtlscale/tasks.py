"""Tasks, task suites and batches: what every pipeline produces and every architecture consumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor

SPLITS = ("train", "val", "test")
MISSING_CLASS = -1  # a class label that is not there; a missing number is NaN


@dataclass(frozen=True, kw_only=True)
class Task:
    """One prediction target: its loss, its metrics (the first is the main one) and the size of its prediction."""

    name: str
    loss: str  # a name in mtlscale.training.losses
    outputs: int  # size of the prediction: classes, or numbers
    metrics: tuple[str, ...]  # names in mtlscale.metrics
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskSuite:
    """The tasks of one data set and the shape of its inputs.

    A *stream* is a source of batches. With `inputs="per_task"` every task has its own stream of the same name; with
    `inputs="shared"` one stream, "all", carries the labels of every task.
    """

    name: str
    tasks: tuple[Task, ...]
    inputs: Literal["per_task", "shared"]
    input_kind: Literal["vector", "tokens", "image"]
    input_shape: tuple[int, ...]  # of one sample: (features,), (length,), (channels, height, width)
    vocabulary_size: int | None = None  # tokens only; id 0 is padding, id 1 an unknown word
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """Stream name -> names of the tasks it labels."""
        names = tuple(task.name for task in self.tasks)
        return {"all": names} if self.inputs == "shared" else {name: (name,) for name in names}


@dataclass
class Samples:
    """Samples of one stream in one split, or a batch of them.

    inputs: [N, *input_shape]; targets: task -> [N] integers (`MISSING_CLASS` where absent), or [N, ...] floats (NaN
    where absent); weights: optional [N] per-sample weights.
    """

    inputs: Tensor
    targets: dict[str, Tensor]
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, index: Tensor) -> Samples:
        return Samples(
            self.inputs[index],
            {name: target[index] for name, target in self.targets.items()},
            None if self.weights is None else self.weights[index],
        )


@dataclass
class Batch:
    """One stream's part of a step; `total` counts the stream's samples in the whole step, over all workers."""

    stream: str
    samples: Samples
    total: int

    @property
    def inputs(self) -> Tensor:
        return self.samples.inputs

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.samples.targets)


@dataclass
class Outputs:
    """What an architecture returns for one batch: a prediction per task of the batch, [B, outputs], and, where the
    architecture has one, the shared representation [B, features] the heads read."""

    predictions: dict[str, Tensor]
    representation: Tensor | None = None
    # The representation as each task's head reads it, a view of its own per task: with these, one pass through all
    # heads gives every task's gradient at the representation.
    branches: dict[str, Tensor] = field(default_factory=dict)
