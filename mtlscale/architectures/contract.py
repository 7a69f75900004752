"""The contract of an architecture: which parameters the tasks share, and one prediction per task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor, nn

from mtlscale import encoders
from mtlscale.architectures.phases import Found, Phase, Source
from mtlscale.config import Component, Task, TaskSuite, UserError
from mtlscale.data import Batch, Outputs, Samples
from mtlscale.encoders import EncoderModule, MapStagedModule, StagedModule

HeadMaker = Callable[[EncoderModule, Task, float], nn.Module]  # (encoder, task, dropout) -> features to predictions


class LabelledData(Protocol):
    """The data that a network may look at before the first step."""

    def targets(self) -> Mapping[str, Tensor]:
        """Return the training labels [N, ...] of each task, by task name."""
        ...

    def samples(self, split: Literal["train", "val"], stream: str, most: int | None = None) -> Iterator[Samples]:
        """Yield the samples of a stream in order, in blocks.

        Args:
            split: The split to read, "train" or "val".
            stream: Name of the stream.
            most: At most this many samples, spread evenly over the split; None: all of them.
        """
        ...


class MultiTaskModule(nn.Module):
    """Base class of a network for several tasks, divided into shared parameters and task parameters."""

    # True if no parameter is shared, so that every task may keep the checkpoint of its own best epoch.
    independent: bool = False
    # True if the backward passes of several tasks from the representation down may run as one batched pass.
    vectorised: bool = False
    # True if one backward pass must return the gradients of all tasks, as one combination of the losses.
    joint_backward: bool = False
    # `add_affinity` is called before the main turn's step, at the first step and then every so many steps; 0: never.
    affinity_every: int = 0
    # Number of epochs of the phase that trains the network, set before the first epoch.
    phase_epochs: int = 0

    def forward(self, batch: Batch) -> Outputs:
        """Return a prediction [B, outputs] for each task of one stream's batch."""
        raise NotImplementedError

    def shared_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that more than one task's loss moves; task gradients are balanced on these."""
        raise NotImplementedError

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """Return the shared parameters by module, input side first; gradient conflicts are noticed per module."""
        return [self.shared_parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        """Return the parameters that this task's loss alone moves."""
        raise NotImplementedError

    def task_weights(self) -> Tensor | None:
        """Return factors [T] of the task losses with mean 1, or None for no weighting.

        The factors are a function of the network's parameters. Parameters that the losses move follow the weighted sum
        of their gradients. Parameters that the weights depend on follow ∇ Σ_t w_t ℓ_t, under a balancer that weights
        losses. A record holds the losses without these factors.
        """
        return None

    def representation_sizes(self) -> Sequence[int]:
        """Return all sizes of a representation whose size changes between epochs; empty if it never does."""
        return ()

    def groups(self) -> Mapping[str, list[nn.Parameter]]:
        """Return named groups of parameters, for phases whose turns move only some of them."""
        return {"all": list(self.parameters())}

    def sources(self) -> Mapping[str, Source]:
        """Return the sources of losses other than the suite's tasks, by the names that turns use."""
        return {}

    def hand_over(self) -> Found:
        """Return what the next phase's network is built from, after a phase, with the parameters it selected."""
        return {}

    def traces(self) -> dict[str, Any]:
        """Return numbers or lists of numbers to record with this epoch."""
        return {}

    def from_data(self, data: LabelledData) -> None:
        """Take what the network needs from training data before the first step; choices are made on validation."""

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """Update what follows a rule of the network's own, after each optimiser step, on every worker.

        Args:
            lr: Learning rate of the step.
            sum: Sums over workers, in place, what the backward pass gathered.
        """

    def discard_step(self) -> None:
        """Forget what the backward pass gathered; called instead of `after_step` if the step is not taken."""

    def add_affinity(self, table: Tensor) -> None:
        """Add the affinities between tasks measured in one step (`training.affinity`), the same on every worker.

        Args:
            table: Affinities [T, T]: how much of task j's loss a step along task i's gradient would take away; NaN if a
                task has no label in this step.
        """

    def penalty(self) -> Tensor | None:
        """Return a scalar on parameters alone that is added to each turn's losses, the same on every worker."""
        return None

    def structure(self) -> dict[str, Any]:
        """Return the structure that the method chose, to keep with the record.

        It consists of plain numbers, strings and lists of them. An example is `tree` (stage -> task -> node). A network
        whose method chooses no structure returns an empty dictionary.
        """
        return {}

    def look_back(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        """Compute what `structure` reports, after all training, with the selected parameters, on every worker.

        Args:
            train: This worker's share of the training samples.
            sum: Sums a tensor over workers, in place.
        """

    def learned(self) -> int:
        """Return how many numbers are learned but are no parameters; they are counted with the parameters."""
        return 0

    def memory_state(self) -> dict[str, Any]:
        """Return the tensors and numbers that a resumed run needs besides parameters and buffers.

        They are not among what the best epoch selects.
        """
        return {}

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        """Restore what `memory_state` returned."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Run before the steps of an epoch; epochs count from 1."""

    def on_epoch_end(self, epoch: int) -> None:
        """Run after the steps of an epoch and before its evaluation; epochs count from 1."""

    def on_losses(self, losses: Mapping[str, float], added: float) -> None:
        """Receive the training losses of an epoch before `on_epoch_end`, the same on every worker.

        Args:
            losses: Each task's mean training loss in the epoch.
            added: The term that an objective added to their sum.
        """

    def settle(self, losses: Callable[[str], Mapping[str, float]]) -> None:
        """Decide by losses what gradients do not decide, before an epoch is evaluated, on every worker.

        Args:
            losses: Maps a split, "train" or "val", to each task's mean loss over all of it, of the current network.
        """


class Architecture(Component):
    """The recipe of a multi-task network."""

    kind: ClassVar[str] = "architectures"
    # True if trials of its networks may be trained as one batched model: they have plain parameters that nothing but
    # an optimiser moves.
    batchable: ClassVar[bool] = False
    # True if its networks are computed from the data before the first step, so that there is nothing to tune.
    fitted: ClassVar[bool] = False
    balancer: ClassVar[str] = "equal"  # default balancer of a method that names only the architecture
    # True if it works between the stages of an encoder, so that it rejects encoders without stages.
    needs_stages: ClassVar[bool] = False

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases, in the order in which they run; `build` makes the network of the first."""
        return (Phase(),)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        """Build a fresh network.

        Args:
            suite: The tasks and the shapes of their data.
            encoder: Makes one freshly initialised encoder per call.
            dropout: Rate of the dropout before the heads.
        """
        raise NotImplementedError

    def phases_for(self, stages: int) -> tuple[Phase, ...]:
        """Return the phases for an encoder with this many stages; by default the same for every encoder."""
        return self.phases()

    def wants(self, phase: str, found: Found) -> bool:
        """Return whether a later phase, other than the last, has anything to do.

        Args:
            phase: Name of the phase.
            found: What the phase before it handed over.
        """
        return True

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        """Build the network of a later phase.

        Args:
            phase: Name of the phase.
            found: What the phase before it handed over.
            suite: The tasks and the shapes of their data.
            encoder: Makes one freshly initialised encoder per call.
            dropout: Rate of the dropout before the heads.
        """
        return self.build(suite, encoder, dropout)


def linear_head(features: int, task: Task, dropout: float) -> nn.Module:
    """Build a head of dropout and one linear layer: features [B, F] -> prediction [B, outputs]."""
    return encoders.linear_head(features, task.outputs, dropout)


def encoder_head(encoder: EncoderModule, task: Task, dropout: float) -> nn.Module:
    """Build the head that fits the encoder.

    It is linear on vectors; on maps it consists of convolutions, or a pyramid, and upsampling.
    """
    return encoder.head(task, dropout)


def staged(encoder: EncoderModule, name: str) -> StagedModule:
    """Return the encoder if it has stages to branch between; raise `UserError` otherwise."""
    if not isinstance(encoder, StagedModule) or not len(encoder.stages):
        raise UserError(
            f"{name} branches between the stages of an encoder, this one has none; choose mlp with hidden layers, "
            "textcnn_mlp, resnet18, deeplab_resnet18 or segnet"
        )
    return encoder


def map_staged(encoder: EncoderModule, name: str) -> MapStagedModule:
    """Return the encoder if it has stages that give maps; raise `UserError` otherwise."""
    if not isinstance(encoder, MapStagedModule):
        raise UserError(f"{name} works between the stages of an encoder; choose resnet18, deeplab_resnet18 or segnet")
    return encoder


def of_vectors(encoder: EncoderModule, name: str) -> EncoderModule:
    """Return the encoder if it gives vectors; raise `UserError` if it gives maps."""
    if encoder.spatial:
        raise UserError(f"{name} has layers for vectors, this encoder gives maps; choose hps, mmoe or cross_stitch")
    return encoder


def pooled(features: Tensor) -> Tensor:
    """Return features [B, F] as they are, and maps [B, F, h, w] averaged over positions."""
    return features if features.ndim == 2 else features.flatten(2).mean(2)
