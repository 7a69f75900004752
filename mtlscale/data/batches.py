"""Samples, batches and outputs: what every pipeline produces and every architecture consumes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtlscale.spec import MISSING_CLASS, Task

if TYPE_CHECKING:
    from torch import Tensor


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
        """Copies of the samples at these places [B], or [..., B]."""

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
    """One stream's part of a step; `total` counts the stream's samples in the whole step, over all workers, and their
    losses are multiplied by `factor`. predict: tasks of which predictions are wanted without
    labels."""

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
        """Those that the network predicts for it."""
        return tuple(dict.fromkeys((*self.samples.targets, *self.predict)))


@dataclass
class Outputs:
    """What an architecture returns for one batch: a prediction per task of the batch, [B, outputs], and, where the
    architecture has one, the shared representation [B, features] the heads read."""

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
    """What one batch contributes to a step: sums of losses with their graphs, and how many terms each sums up.

    The three lists run over the losses that the batch has, by their places among all. extra: a scalar that is added to
    the objective of the whole step as it is. representation: the shared representation [B, …] on the way to these
    losses, and branches: it as each of them reads it, a view of its own. keep: more hangs on this graph.
    """

    tasks: list[int] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    counts: list[Tensor] = field(default_factory=list)
    extra: Tensor | None = None
    representation: Tensor | None = None
    branches: list[Tensor] = field(default_factory=list)
    keep: bool = False


def labelled(task: Task, target: Tensor) -> Tensor:
    """[N] whether a sample has a label of the task. target: [N, ...]."""
    there = target != MISSING_CLASS if task.loss == "cross_entropy" else ~target.isnan()
    return there.reshape(len(there), -1).any(1)
