"""Phases as data: what a method does one after the other, and the updates a step of each consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mtlscale.balancing import Balancer
from mtlscale.data import Batch, Losses, Outputs

if TYPE_CHECKING:
    import torch

Share = Literal[
    "whole", "first", "second"
]  # of the training samples; the two halves are disjoint and fixed by the seed
Found = dict[str, Any]  # what a phase hands to the next: tensors, numbers, strings, lists and dictionaries of them

# Training settings that a turn may have of its own.
TURN_SETTINGS = ("optimizer", "lr", "weight_decay", "momentum", "schedule", "decay_rate", "decay_steps", "clip")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One of the updates that every step of a phase makes, in this order: which losses, on which share of the training
    data, moving which parameters, by which optimiser.

    groups: names from the network's `groups()`; none: all its parameters. Turns move disjoint parameters. source:
    "tasks", the losses of the suite's tasks, or a name from the network's `sources()`. training: settings that differ
    from the run's, of `TURN_SETTINGS`. lr_factor: times the run's learning rate, where `training` has none. balancer:
    None for the run's. objective: whether the run's takes part, which is shown streams without labels, too. unlabelled:
    whether its source looks at these. last_lr: where a cosine schedule ends. betas: of its Adam, None for torch's.
    rest: the share of the phase's epochs, from the first on, in which it makes no update. beside: a turn of the same
    step whose batches and optimiser its source, a `NetworkSource`, is shown. signed: whether its losses may be
    negative, so that a run's balancer of positive losses leaves them equal.
    """

    name: str = "main"
    share: Share = "whole"
    groups: tuple[str, ...] = ()
    source: str = "tasks"
    training: Mapping[str, Any] = field(default_factory=dict)
    lr_factor: float = 1.0
    balancer: Balancer | None = None
    objective: bool = True
    unlabelled: bool = False
    last_lr: float = 0.0
    betas: tuple[float, float] | None = None
    rest: float = 0.0
    beside: str = ""
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a method's training that can be cut off, resumed and reused by itself.

    epochs: default is the run's. parts: among how many phases these are divided, at least one for each. choose: whose
    parameters it hands over and is measured by, those of the best epoch on validation or the last ones. patience:
    evaluations without a better score after which it stops; default is the run's. seed: of its initialisation and
    order; default is the run's. main: the turn whose losses and weights a record keeps; default is the first.
    batch_size: default is the run's. A phase with its own balancer, epochs and seed is the same for runs that differ in
    nothing else, and is trained once for all of them.
    """

    name: str = "train"
    turns: tuple[Turn, ...] = (Turn(),)
    epochs: int | None = None
    parts: int = 1
    choose: Literal["best", "last"] = "best"
    patience: int | None = None
    seed: int | None = None
    main: str = ""
    batch_size: int | None = None

    def of_run(self, epochs: int) -> Phase:
        """The phase with its part of a run's epochs, or of its own."""
        if self.parts == 1:
            return self
        return replace(self, epochs=max(1, (self.epochs or epochs) // self.parts), parts=1)


class Source(Protocol):
    """What is differentiated in a turn: batches in, named sums of losses with their graphs out.

    names: of the losses. of_tasks: whether they are tasks of the suite, as those of supervised learning are.
    """

    names: tuple[str, ...]
    of_tasks: bool

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        """The losses of each batch of a micro-batch, one graph at a time; `terms`: with what an objective adds."""
        ...

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        """[T]: about how many terms each loss sums up in the whole step, known without looking at the labels."""
        ...


class Supervised(Protocol):
    """How the engine passes batches through the network, and what it makes of them."""

    def forward(self, batch: Batch) -> Outputs:
        """In the run's precision; predictions come back in the parameters' own."""
        ...

    def losses(self, batch: Batch, outputs: Outputs) -> Losses: ...

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]: ...


class NetworkSource:
    """Base of a network's own sources that leave passing batches to the engine, which binds them to a run."""

    names: tuple[str, ...]
    of_tasks: bool
    supervised: Supervised

    def bind(self, supervised: Supervised, amp: str) -> None:
        """Before the first step."""
        self.supervised = supervised

    def look_at(self, micros: Sequence[Sequence[Batch]], optimizer: torch.optim.Optimizer) -> None:
        """Before a step of a turn `beside` another: the other's micro-batches of this step, and its optimiser."""

    def __call__(self, micro: Sequence[Batch], *, terms: bool = True) -> Iterator[Losses]:
        raise NotImplementedError

    def sizes(self, micros: Sequence[Sequence[Batch]]) -> list[float]:
        return [1.0] * len(self.names)
