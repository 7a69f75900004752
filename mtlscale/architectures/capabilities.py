"""The capabilities of a network, or of a source of losses: what it may do beyond its contract, one protocol for each.

A network has a capability if it has the protocol's members; it need not derive from the protocol. A wrapper of other
networks offers a capability if they do, or gives the neutral answer where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor, optim

    from mtlscale.architectures.phases import Source
    from mtlscale.config.preferences import Preference
    from mtlscale.data import Batch, Samples

P = TypeVar("P")

# (class, protocol) -> the members that the class lacks; asked for several times in every step.
_MISSING: dict[tuple[type, type], tuple[str, ...]] = {}


def capability(module: object, protocol: type[P]) -> P | None:
    """Return the network, or source, if it has all members of the protocol; None otherwise.

    Members count where its class has them, and where they were set on the object.
    """
    key = (type(module), protocol)
    missing = _MISSING.get(key)
    if missing is None:
        members = dict.fromkeys((*vars(protocol), *vars(protocol).get("__annotations__", {})))
        missing = tuple(name for name in members if not name.startswith("_") and not hasattr(key[0], name))
        _MISSING[key] = missing

    if missing and not all(name in getattr(module, "__dict__", ()) for name in missing):
        return None
    return module  # type: ignore[return-value]


# -- what is differentiated, and how -----------------------------------------------------------------------------------


class LossSources(Protocol):
    """Capability of a network that has losses of its own, for turns that name them."""

    def sources(self) -> Mapping[str, Source]:
        """Return the sources of losses other than the suite's tasks, by the names that turns use."""
        ...


class WeighsTasks(Protocol):
    """Capability of a network that weights the task losses itself."""

    def task_weights(self) -> Tensor | None:
        """Return factors [T] of the task losses with mean 1, or None for no weighting.

        The factors are a function of the network's parameters. Parameters that the losses move follow the weighted sum
        of their gradients. Parameters that the weights depend on follow ∇ Σ_t w_t ℓ_t, under a balancer that weights
        losses. A record holds the losses without these factors.
        """
        ...


class Penalised(Protocol):
    """Capability of a network with a loss on its parameters alone."""

    def penalty(self) -> Tensor | None:
        """Return a scalar on parameters alone that is added to each turn's losses, the same on every worker."""
        ...


class JointBackward(Protocol):
    """Capability of a network whose backward pass has to know the gradients of all tasks.

    Attributes:
        joint_backward: True if one backward pass must return the gradients of all tasks, as one combination of the
            losses.
    """

    joint_backward: bool


class ReadsOtherTasks(Protocol):
    """Capability of a network that reads other tasks' parameters for a task's prediction, which its loss does not move.

    Attributes:
        reads_other_tasks: True if it does; batched trials then hand every pass all parameters.
    """

    reads_other_tasks: bool


class VaryingRepresentation(Protocol):
    """Capability of a network whose representation changes its size between epochs."""

    def representation_sizes(self) -> Sequence[int]:
        """Return all sizes of a representation whose size changes between epochs; empty if it never does."""
        ...


# -- what happens in a step --------------------------------------------------------------------------------------------


class MeasuresAffinity(Protocol):
    """Capability of a network that gathers how a step for one task changes the losses of the others.

    Attributes:
        affinity_every: `add_affinity` is called before the main turn's step, at the first step and then every so many
            steps; 0: never.
    """

    affinity_every: int

    def add_affinity(self, table: Tensor) -> None:
        """Add the affinities between tasks measured in one step (`training.affinity`), the same on every worker.

        Args:
            table: Affinities [T, T]: how much of task j's loss a step along task i's gradient would take away; NaN if a
                task has no label in this step.
        """
        ...


class UpdatesItself(Protocol):
    """Capability of a network that has parts which no optimiser moves."""

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """Update what follows a rule of the network's own, after each optimiser step, on every worker.

        Args:
            lr: Learning rate of the step.
            sum: Sums over workers, in place, what the backward pass gathered.
        """
        ...


class DiscardsSteps(Protocol):
    """Capability of a network that gathers something in backward passes."""

    def discard_step(self) -> None:
        """Forget what the backward pass gathered; called instead of `after_step` if the step is not taken."""
        ...


# -- what happens around epochs ----------------------------------------------------------------------------------------


class KnowsEpochs(Protocol):
    """Capability of a network that depends on how long it is trained; its class declares the attribute.

    Attributes:
        phase_epochs: Number of epochs of the phase that trains the network, set before the first epoch.
    """

    phase_epochs: int


class BeginsEpochs(Protocol):
    """Capability of a network that changes before an epoch."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Run before the steps of an epoch; epochs count from 1."""
        ...


class EndsEpochs(Protocol):
    """Capability of a network that changes after an epoch."""

    def on_epoch_end(self, epoch: int) -> None:
        """Run after the steps of an epoch and before its evaluation; epochs count from 1."""
        ...


class FollowsLosses(Protocol):
    """Capability of a network that depends on its training losses."""

    def on_losses(self, losses: Mapping[str, float], added: float) -> None:
        """Receive the training losses of an epoch before `on_epoch_end`, the same on every worker.

        Args:
            losses: Each task's mean training loss in the epoch.
            added: The term that an objective added to their sum.
        """
        ...


class NeedsTarget(Protocol):
    """Capability of a network that may learn from a target domain without labels, which only an objective brings.

    Attributes:
        needs_target: What to tell whoever names no objective; "" if the network can do without.
    """

    needs_target: str


class SelectsByLoss(Protocol):
    """Capability of a network that makes discrete choices by trying them."""

    def select_by_loss(self, losses: Callable[[str], Mapping[str, float]]) -> None:
        """Decide by losses what gradients do not decide, before an epoch is evaluated, on every worker.

        Args:
            losses: Maps a split, "train" or "val", to each task's mean loss over all of it, of the current network.
        """
        ...


# -- what happens before and after training ----------------------------------------------------------------------------


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


class FitsData(Protocol):
    """Capability of a network that is computed from the data, as a whole or in part."""

    def from_data(self, data: LabelledData) -> None:
        """Take what the network needs from training data before the first step; choices are made on validation."""
        ...


class AfterTraining(Protocol):
    """Capability of a network that measures something of the training samples once it is trained."""

    def after_training(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        """Compute what `structure` reports, after all training, with the selected parameters, on every worker.

        Args:
            train: This worker's share of the training samples.
            sum: Sums a tensor over workers, in place.
        """
        ...


# -- what is counted and kept ------------------------------------------------------------------------------------------


class ExtraParameters(Protocol):
    """Capability of a network that learns numbers which are no parameters."""

    def extra_parameter_count(self) -> int:
        """Return how many numbers are learned but are no parameters; they are counted with the parameters."""
        ...


class TakesPreferences(Protocol):
    """Capability of a network that is given a preference: one network for a whole front.

    Attributes:
        grid: The preferences that it is evaluated for.
        concentration: Parameter of the Dirichlet distribution that a preference is drawn from for every step.
    """

    grid: Sequence[Preference]
    concentration: float

    def set_preference(self, preference: Tensor) -> None:
        """Use this preference [T] in the passes that follow."""
        ...


class KeepsMemory(Protocol):
    """Capability of a network with memory besides parameters and buffers, such as a replay buffer."""

    def memory_state(self) -> dict[str, Any]:
        """Return the tensors and numbers that a resumed run needs besides parameters and buffers.

        They are not among what the best epoch selects.
        """
        ...

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        """Restore what `memory_state` returned."""
        ...


# -- of a source of losses ---------------------------------------------------------------------------------------------


class ReadsUnlabelled(Protocol):
    """Capability of a source that looks at batches of streams without labels.

    Attributes:
        unlabelled: Whether the turn's batches include these streams.
    """

    unlabelled: bool


class AllowsNegative(Protocol):
    """Capability of a source whose losses may be negative.

    Attributes:
        allow_negative: Whether they may be, so that a run's balancer of positive losses weights them equally.
    """

    allow_negative: bool


class SeesCompanion(Protocol):
    """Capability of a source that looks at another turn of the same step.

    Attributes:
        companion: Name of the other turn; "": there is none.
    """

    companion: str

    def look_at(self, micros: Sequence[Sequence[Batch]], optimizer: optim.Optimizer) -> None:
        """Receive the micro-batches and the optimiser of the companion, before each step of the source's turn."""
        ...


def extra_parameters(module: object) -> int:
    """Return how many numbers a network has learned besides its parameters; 0 for one that says nothing of them."""
    extra = capability(module, ExtraParameters)
    return 0 if extra is None else extra.extra_parameter_count()
