"""Samples, batches and outputs, which every pipeline produces and every architecture consumes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtlscale.config import MISSING_CLASS, Task

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Samples:
    """Samples of one stream in one split, or a batch of them.

    * `inputs`: [N, *input_shape].
    * `targets`: task -> [N] integers (`MISSING_CLASS` where absent), or [N, ...] floats (NaN where absent).
    * `weights`: optional [N] per-sample weights.
    """

    inputs: Tensor
    targets: dict[str, Tensor]
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, index: Tensor) -> Samples:
        """Copy the samples at these indices [B], or [..., B]."""

        def rows(tensor: Tensor) -> Tensor:
            # On the host `tensor[index]` takes five times as long where samples are large.
            return tensor.index_select(0, index) if index.ndim == 1 else tensor[index]

        return Samples(
            rows(self.inputs),
            {name: rows(target) for name, target in self.targets.items()},
            None if self.weights is None else rows(self.weights),
        )


@dataclass
class Batch:
    """Part of a step that comes from one stream.

    * `total` counts the stream's samples in the whole step, over all workers; their losses are multiplied by `factor`.
    * `predict`: tasks that are predicted without labels.
    """

    stream: str
    samples: Samples
    total: int
    factor: float = 1.0
    predict: tuple[str, ...] = ()

    @property
    def inputs(self) -> Tensor:
        return self.samples.inputs

    @property
    def labelled(self) -> bool:
        return bool(self.samples.targets)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the network predicts for the batch."""
        return tuple(dict.fromkeys((*self.samples.targets, *self.predict)))


@dataclass
class Outputs:
    """The output of an architecture for one batch.

    It holds a prediction per task of the batch, [B, outputs], and, if the architecture has one, the shared
    representation [B, features] that the heads read.
    """

    predictions: dict[str, Tensor]
    representation: Tensor | None = None
    # The representation as each task's head reads it, a view of its own per task: with these, one pass through all
    # heads gives every task's gradient at the representation.
    branches: dict[str, Tensor] = field(default_factory=dict)
    # Further predictions of the tasks, in training; the mean losses of these times the factor are added to all losses.
    auxiliary: dict[str, Tensor] = field(default_factory=dict)
    auxiliary_factor: float = 0.0


@dataclass
class Losses:
    """Contribution of one batch to a step: sums of losses with their graphs, and the number of terms in each sum.

    * `tasks`, `sums` and `counts` run over the losses that the batch has; `tasks` holds their positions among all.
    * `extra`: a scalar that is added to the objective of the whole step as it is.
    * `representation`: the shared representation [B, …] on the way to these losses; `branches`: it as each of them
      reads it, a view of its own.
    * `keep`: whether the graph is needed again, since something else depends on it.
    """

    tasks: list[int] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    counts: list[Tensor] = field(default_factory=list)
    extra: Tensor | None = None
    representation: Tensor | None = None
    branches: list[Tensor] = field(default_factory=list)
    keep: bool = False


def labelled(task: Task, target: Tensor) -> Tensor:
    """Return the mask [N] of samples whose target [N, ...] has a label of the task."""
    present = target != MISSING_CLASS if task.loss == "cross_entropy" else ~target.isnan()
    return present.reshape(len(present), -1).any(1)
