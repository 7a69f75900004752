"""The contract of an architecture: which parameters the tasks share, and one prediction per task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor, nn

from mtlscale import encoders
from mtlscale.architectures._phases import Found, Phase, Source
from mtlscale.data import Batch, Outputs, Samples
from mtlscale.encoders import EncoderModule, MapStagedModule, StagedModule
from mtlscale.environments import Collectors
from mtlscale.spec import Component, Task, TaskSuite, UserError

HeadMaker = Callable[[EncoderModule, Task, float], nn.Module]  # (encoder, task, dropout) -> features to predictions


class LabelledData(Protocol):
    """The data that a network may look at before the first step."""

    def targets(self) -> Mapping[str, Tensor]:
        """Task -> its training labels [N, ...]."""
        ...

    def samples(self, split: Literal["train", "val"], stream: str, most: int | None = None) -> Iterator[Samples]:
        """The samples of a stream in order, in blocks; `most`: so many of them at most, evenly spread."""
        ...


class MultiTaskModule(nn.Module):
    """A network for several tasks that names its partition into shared and task parameters."""

    # True where no parameter is shared, so that every task may keep the checkpoint of its own best epoch.
    independent: bool = False
    # True where the backward passes of several tasks from the representation down may run as one batched pass.
    vectorised: bool = False
    # True where the gradients of all tasks have to come back in one backward pass, as one combination of the losses.
    joint_backward: bool = False
    # Before the main turn's step, every so many steps from the first one on, `add_affinity` is called; 0: never.
    affinity_every: int = 0
    # Epochs of the phase it is trained in, set before the first.
    phase_epochs: int = 0

    def forward(self, batch: Batch) -> Outputs:
        """One stream's batch -> a prediction [B, outputs] for each of the batch's tasks."""
        raise NotImplementedError

    def shared_parameters(self) -> list[nn.Parameter]:
        """What more than one task's loss moves; task gradients are balanced here."""
        raise NotImplementedError

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """Shared parameters by module, input side first: where conflicts of task gradients are noticed."""
        return [self.shared_parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        """What this task's loss alone moves."""
        raise NotImplementedError

    def task_weights(self) -> Tensor | None:
        """[T] factors of the task losses with mean 1, a function of parameters of the network. What the losses move
        moves along the weighted sum of their gradients; what the weights depend on, along ∇ Σ_t w_t ℓ_t, by a balancer
        that weights losses. A record has the losses without these factors."""
        return None

    def representation_sizes(self) -> Sequence[int]:
        """Of a network whose representation changes its size from epoch to epoch all sizes that it may have."""
        return ()

    def groups(self) -> Mapping[str, list[nn.Parameter]]:
        """Named groups of parameters, for phases whose turns move some of them only."""
        return {"all": list(self.parameters())}

    def sources(self) -> Mapping[str, Source]:
        """Sources of losses other than the suite's tasks, by the names that turns ask for."""
        return {}

    def hand_over(self) -> Found:
        """After a phase, with the parameters it chose: what the next phase's network is built from."""
        return {}

    def traces(self) -> dict[str, Any]:
        """Numbers or lists of numbers to keep with this epoch."""
        return {}

    def from_data(self, data: LabelledData) -> None:
        """Before the first step: what the network takes from training data, and chooses on validation."""

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """After the optimiser's step at learning rate `lr`, on every worker: what the network updates by a rule of its
        own. `sum` over workers, in place, what was gathered in the backward pass."""

    def discard_step(self) -> None:
        """In place of `after_step` of a step that was not taken: forget what its backward pass gathered."""

    def add_affinity(self, table: Tensor) -> None:
        """[T, T], on every worker the same: how much of task j's loss a step along task i's gradient would take away
        (`training.affinity`); NaN where a task has no label in this step."""

    def penalty(self) -> Tensor | None:
        """A scalar on parameters alone, the same on every worker, added to the losses of each turn."""
        return None

    def structure(self) -> dict[str, Any]:
        """What the network looks like where its method chose that, as plain numbers, texts and lists of them, to keep
        with the record: `tree` (stage -> task -> node), say."""
        return {}

    def look_back(self, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
        """When all is trained, with the parameters that were chosen, on every worker: what the network finds out for
        `structure`. train: this worker's share of the training samples; `sum` over workers, in place."""

    def learned(self) -> int:
        """Numbers that are learned but are no parameters, to be counted with these."""
        return 0

    def collect_with(self, collectors: Collectors) -> None:
        """Before the first epoch: who plays the episodes that the network asks for."""

    def memory_state(self) -> dict[str, Any]:
        """What is neither parameter nor buffer, not chosen with an epoch, and needed to go on: tensors and numbers."""
        return {}

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        """Take back what `memory_state` gave."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Before the steps of an epoch, counted from 1."""

    def on_epoch_end(self, epoch: int) -> None:
        """After the steps of an epoch, counted from 1, and before it is evaluated."""

    def on_losses(self, losses: Mapping[str, float], added: float) -> None:
        """Before `on_epoch_end`, on every worker the same: each task's mean training loss in the epoch, and what an
        objective added to their sum."""

    def settle(self, losses: Callable[[str], Mapping[str, float]]) -> None:
        """Before an epoch is evaluated, on every worker: what the network decides by losses instead of gradients.
        `losses`: split, "train" or "val" -> each task's mean loss over all of it, of the network as it is."""


class Architecture(Component):
    """A recipe of a multi-task network."""

    kind: ClassVar[str] = "architectures"
    # Whether trials of its networks may be trained as one batched model: plain parameters, which an optimiser and
    # nothing else moves.
    batchable: ClassVar[bool] = False
    # Whether its networks are computed from the data before the first step: there is nothing to search for.
    fitted: ClassVar[bool] = False
    balancer: ClassVar[str] = "equal"  # of a method that names nothing but the architecture
    needs_stages: ClassVar[bool] = False  # works between the stages of an encoder, hence on none without stages

    def phases(self) -> tuple[Phase, ...]:
        """What is done one after the other; the network of the first comes from `build`."""
        return (Phase(),)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        """A fresh network; `encoder()` makes one freshly initialised encoder, `dropout` precedes the heads."""
        raise NotImplementedError

    def phases_for(self, stages: int) -> tuple[Phase, ...]:
        """The same for an encoder of so many stages, where that matters."""
        return self.phases()

    def wants(self, phase: str, found: Found) -> bool:
        """Whether a later phase but the last has anything to do, given what the one before it handed over."""
        return True

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        """The network of a later phase; `found` is what the phase before handed over."""
        return self.build(suite, encoder, dropout)


def linear_head(features: int, task: Task, dropout: float) -> nn.Module:
    """Dropout and one linear layer: features [B, F] -> prediction [B, outputs]."""
    return encoders.linear_head(features, task.outputs, dropout)


def encoder_head(encoder: EncoderModule, task: Task, dropout: float) -> nn.Module:
    """The head that goes with the encoder: linear on vectors; convolutions, or a pyramid, and upsampling on maps."""
    return encoder.head(task, dropout)


def staged(encoder: EncoderModule, name: str) -> StagedModule:
    """The encoder, where it has stages to branch between; `UserError` where it has none."""
    if not isinstance(encoder, StagedModule) or not len(encoder.stages):
        raise UserError(
            f"{name} branches between the stages of an encoder, this one has none; choose mlp with hidden layers, "
            "textcnn_mlp, resnet18, deeplab_resnet18 or segnet"
        )
    return encoder


def map_staged(encoder: EncoderModule, name: str) -> MapStagedModule:
    """The encoder, where it has stages that give maps; `UserError` where it has none."""
    if not isinstance(encoder, MapStagedModule):
        raise UserError(f"{name} works between the stages of an encoder; choose resnet18, deeplab_resnet18 or segnet")
    return encoder


def of_vectors(encoder: EncoderModule, name: str) -> EncoderModule:
    """The encoder, where it gives vectors; `UserError` where it gives maps."""
    if encoder.spatial:
        raise UserError(f"{name} has layers for vectors, this encoder gives maps; choose hps, mmoe or cross_stitch")
    return encoder


def pooled(features: Tensor) -> Tensor:
    """[B, F], or the mean over places of [B, F, h, w]."""
    return features if features.ndim == 2 else features.flatten(2).mean(2)
