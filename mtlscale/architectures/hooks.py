"""The hooks of training: what a network, an objective or a source of losses may do around steps, epochs and training.

All are empty methods of one base. Whoever trains calls them in a loop and never asks who has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor, optim

    from mtlscale.data import Batch, Outputs, Samples


def _nothing(*_: Any) -> Any:
    raise RuntimeError("this view has no training behind it")


@dataclass
class StepView:
    """The view of one turn of a step that hooks get.

    Attributes:
        number: Number of the turn's steps before this one.
        main: Whether it is the turn whose losses and weights a record keeps.
        seed: Seed of the turn's order of samples: what is drawn from it and `number` is the same after a resume.
        micros: The micro-batches, each one batch per stream.
        scale: Factors of the task losses [T], if there are any.
        penalty: Returns the sum of all penalties.
        affinity: Returns TAG's affinities of this step [T, T] (`training.task_affinity`), the same on every worker.
        hint: Takes a name and a tensor, which the balancer gets if it has this hint.
        turns: Name of a turn -> its micro-batches in this step, and its optimiser.
    """

    number: int = 0
    main: bool = True
    seed: int = 0
    micros: Sequence[Sequence[Batch]] = ()
    scale: Tensor | None = None
    penalty: Callable[[], Tensor | None] = _nothing
    affinity: Callable[[], Tensor] = _nothing
    hint: Callable[[str, Tensor], None] = _nothing
    turns: Mapping[str, tuple[Sequence[Sequence[Batch]], optim.Optimizer]] = field(default_factory=dict)


@dataclass
class EpochView:
    """The view of an epoch that hooks get.

    Attributes:
        number: Number of the epoch in its phase, from 1.
        epochs: Number of epochs of the phase.
        losses: Each task's mean training loss, once the steps are over; the same on every worker.
        added: What an objective added to the sum of the losses, once the steps are over.
        outputs: Yields this worker's share of the training set with its outputs, in evaluation mode, without gradient.
        split_losses: Maps a split, "train" or "val", to each task's mean loss over all of it, of the current network.
        sum: Sums a tensor over workers, in place.
    """

    number: int
    epochs: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    added: float = 0.0
    outputs: Callable[[], Iterable[tuple[Batch, Outputs]]] = _nothing
    split_losses: Callable[[str], Mapping[str, float]] = _nothing
    sum: Callable[[Tensor], Tensor] = _nothing


class LabelledData(Protocol):
    """The data that a network may look at before the first step."""

    def targets(self) -> Mapping[str, Tensor]:
        """Return the training labels [N, ...] of each task, by task name."""
        ...

    def samples(self, split: Literal["train", "val"], stream: str, most: int | None = None) -> Iterator[Samples]:
        """Yield the samples of a stream in order, in blocks.

        Args:
            most: At most this many samples, spread evenly over the split; None: all of them.
        """
        ...


class Hooks:
    """Base class of whoever takes part in training; every hook does nothing unless it is overridden.

    All hooks run on every worker.
    """

    def from_data(self, data: LabelledData) -> None:
        """Take what is computed from training data before the first step; choices are made on validation."""

    def on_epoch_begin(self, epoch: EpochView) -> None:
        """Change something before the steps of an epoch."""

    def before_step(self, step: StepView) -> None:
        """Prepare one turn of a step, or measure something, before its losses are differentiated."""

    def penalty(self) -> Tensor | None:
        """Return a scalar on parameters alone that is added to each turn's losses, the same on every worker."""
        return None

    def task_weights(self) -> Tensor | None:
        """Return factors [T] of the task losses with mean 1, or None for no weighting.

        The factors may be a function of the network's parameters. Parameters that the losses move follow the weighted
        sum of their gradients. Parameters that the weights depend on follow ∇ Σ_t w_t ℓ_t, under a balancer that
        weights losses. A record holds the losses without these factors.
        """
        return None

    def discard_step(self) -> None:
        """Forget what forward and backward passes left behind, since the step was not taken."""

    def on_gradients(self) -> None:
        """Look at the gradients of a step, which are in `.grad`, before the optimiser moves anything."""

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """Update, after the optimiser's step, what no optimiser moves, or take a proximal step.

        Args:
            lr: Learning rate of the step.
            sum: Sums over workers, in place, what the passes gathered.
        """

    def on_epoch_end(self, epoch: EpochView) -> None:
        """Change something after the steps of an epoch and before its evaluation; called without gradient."""

    def before_evaluation(self, epoch: EpochView) -> None:
        """Decide by losses of whole splits what gradients do not decide, in epochs that are evaluated."""

    def after_training(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        """Compute what `structure` reports, after all training, with the selected parameters, without gradient.

        Args:
            train: This worker's share of the training samples.
            sum: Sums a tensor over workers, in place.
        """
