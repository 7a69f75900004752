"""The phases of a method as data: what runs in which order, and the updates that each step consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from mtlscale.architectures.hooks import Hooks
from mtlscale.balancing import Balancer
from mtlscale.data import Batch, Losses, Outputs

# A share of the training samples; the two halves are disjoint and fixed by the seed.
Share = Literal["whole", "first", "second"]
PhaseOutput = dict[str, Any]  # a phase's output for the next: tensors, numbers, strings, lists and dictionaries of them

# Training settings that a turn may have of its own.
TURN_SETTINGS = ("optimizer", "lr", "weight_decay", "momentum", "schedule", "decay_rate", "decay_steps", "clip")


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """The settings of a turn's optimiser that differ from the run's.

    Attributes:
        training: Settings by name, of `TURN_SETTINGS`.
        lr_factor: Factor of the run's learning rate, if `training` has none.
        last_lr: Learning rate at which a cosine schedule ends.
        betas: Betas of its Adam; None: torch's.
    """

    training: Mapping[str, Any] = field(default_factory=dict)
    lr_factor: float = 1.0
    last_lr: float = 0.0
    betas: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The description of one of the updates that every step of a phase makes, in order.

    It names the losses, the share of the training data, the parameters that move, and the optimiser that moves them.

    Attributes:
        name: Name of the turn, unique in its phase.
        share: Share of the training samples that it uses.
        groups: Names from the network's `groups()`; none: all its parameters. Turns move disjoint parameters.
        source: "tasks", the losses of the suite's tasks, or a name from the network's `sources()`.
        balancer: Balancer of the losses; None: the run's.
        objective: Whether the run's objective takes part; it is also shown streams without labels.
        optimizer: Settings of its optimiser that differ from the run's.
        warmup: Share of the phase's epochs, from the first on, in which the turn makes no update.
    """

    name: str = "main"
    share: Share = "whole"
    groups: tuple[str, ...] = ()
    source: str = "tasks"
    balancer: Balancer | None = None
    objective: bool = True
    optimizer: OptimizerSpec = OptimizerSpec()
    warmup: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The part of a method's training that can be cut off, resumed and reused by itself.

    A phase with its own balancer, epochs and seed is the same for runs that differ in nothing else, and is trained once
    for all of them.

    Attributes:
        name: Name of the phase.
        turns: The updates of each step.
        epochs: Number of epochs; default: the run's.
        parts: Number of phases that divide these epochs among them, at least one epoch for each.
        choose: Epoch whose parameters it hands over and is measured by: the best on validation, or the last.
        seed: Seed of its initialisation and order; default: the run's.
        main: The turn whose losses and weights a record keeps; default: the first.
        batch_size: Batch size; default: the run's.
    """

    name: str = "train"
    turns: tuple[Turn, ...] = (Turn(),)
    epochs: int | None = None
    parts: int = 1
    choose: Literal["best", "last"] = "best"
    seed: int | None = None
    main: str = ""
    batch_size: int | None = None

    def of_run(self, epochs: int) -> Phase:
        """Return the phase with its part of its own epochs, or of the run's."""
        if self.parts == 1:
            return self
        return replace(self, epochs=max(1, (self.epochs or epochs) // self.parts), parts=1)


class Source(Hooks):
    """The losses that a turn differentiates: batches in, named sums of losses with their graphs out.

    Its hooks are called in its own turn.

    Attributes:
        names: Names of the losses.
        of_tasks: Whether the losses are the suite's tasks, as those of supervised learning are.
        unlabelled: Whether the turn's batches include streams without labels.
        allow_negative: Whether losses may be negative, so that a run's balancer of positive losses weights them
            equally.
    """

    names: tuple[str, ...]
    of_tasks: bool
    unlabelled: bool = False
    allow_negative: bool = False

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        """Yield the losses of each batch of a micro-batch, one graph at a time.

        Args:
            terms: Whether to include the terms that an objective adds.
        """
        raise NotImplementedError

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        """Return about how many terms [T] each loss sums up in the whole step, without looking at the labels."""
        return [1.0] * len(self.names)


class Supervised(Protocol):
    """Protocol by which the engine passes batches through the network and computes their losses."""

    def forward(self, batch: Batch) -> Outputs:
        """Run the network in the run's precision; predictions have the parameters' precision."""
        ...

    def losses(self, batch: Batch, outputs: Outputs) -> Losses: ...

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]: ...


class NetworkSource(Source):
    """Base class of a network's own sources that leave passing batches to the engine, which binds them to a run."""

    supervised: Supervised

    def bind(self, supervised: Supervised, amp: str) -> None:
        """Bind the source to a run before the first step."""
        self.supervised = supervised
