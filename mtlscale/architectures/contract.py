"""The contract of an architecture: which parameters the tasks share, and one prediction per task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from mtlscale import encoders
from mtlscale.architectures.hooks import Hooks
from mtlscale.architectures.phases import Phase, PhaseOutput, Source
from mtlscale.config import Component, Task, TaskSuite, UserError
from mtlscale.config.preferences import Preference
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, MapStagedModule, StagedModule

HeadMaker = Callable[[EncoderModule, Task, float], nn.Module]  # (encoder, task, dropout) -> features to predictions


class MultiTaskModule(nn.Module, Hooks):
    """Base class of a network for several tasks, divided into shared parameters and task parameters.

    What it does around steps and epochs are its hooks. The members below `structure` are for few networks.
    """

    # True if no parameter is shared, so that every task may keep the checkpoint of its own best epoch.
    independent: bool = False
    # True if the backward passes of several tasks from the representation down may run as one batched pass.
    vectorised: bool = False
    # True if one backward pass must return the gradients of all tasks, as one combination of the losses.
    joint_backward: bool = False
    # True if a task's prediction reads other tasks' parameters, which its loss does not move.
    reads_other_tasks: bool = False
    # The message for whoever names no objective, if the network learns from a target domain without labels.
    needs_target: str = ""
    # The preferences that a network is evaluated for, if it is given one: one network for a whole front.
    grid: Sequence[Preference] = ()

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

    def groups(self) -> Mapping[str, list[nn.Parameter]]:
        """Return named groups of parameters, for phases whose turns move only some of them."""
        return {"all": list(self.parameters())}

    def phase_output(self) -> PhaseOutput:
        """Return what the next phase's network is built from, after a phase, with the parameters it selected."""
        return {}

    def traces(self) -> dict[str, Any]:
        """Return numbers or lists of numbers to record with this epoch."""
        return {}

    def structure(self) -> dict[str, Any]:
        """Return the structure that the method chose, to keep with the record.

        It consists of plain numbers, strings and lists of them. An example is `tree` (stage -> task -> node). A network
        whose method chooses no structure returns an empty dictionary.
        """
        return {}

    def sources(self) -> Mapping[str, Source]:
        """Return the sources of losses other than the suite's tasks, by the names that turns use."""
        return {}

    def representation_sizes(self) -> Sequence[int]:
        """Return all sizes of a representation whose size changes between epochs; empty if it never does."""
        return ()

    def extra_parameter_count(self) -> int:
        """Return how many numbers are learned but are no parameters; they are counted with the parameters."""
        return 0

    def prefer(self, preference: Preference | None = None) -> None:
        """Use this preference of the grid in the passes that follow; None: the central one."""

    def memory_state(self) -> dict[str, Any]:
        """Return what a resumed run needs besides parameters and buffers, such as a replay buffer.

        It is not among what the best epoch selects.
        """
        return {}

    def load_memory_state(self, content: Mapping[str, Any]) -> None:
        """Restore what `memory_state` returned."""


class Architecture(Component):
    """The component that builds a multi-task network."""

    kind: ClassVar[str] = "architectures"
    # True if trials of its networks may be trained as one batched model: they have plain parameters that nothing but
    # an optimiser moves.
    batchable: ClassVar[bool] = False
    # True if its networks are computed from the data before the first step, so that there is nothing to tune.
    fitted: ClassVar[bool] = False
    balancer: ClassVar[str] = "equal"  # default balancer of a method that names only the architecture
    # True if its networks are given a preference, which is drawn for every step: their balancer has to take it.
    draws_preferences: ClassVar[bool] = False
    # True if it works between the stages of an encoder, so that it rejects encoders without stages.
    needs_stages: ClassVar[bool] = False

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases, in the order in which they run; `build` makes the network of the first.

        By default there is one, which has a single epoch where nothing is trained.
        """
        return (Phase(epochs=1 if self.fitted else None),)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        """Build a fresh network.

        Args:
            suite: The tasks and the shapes of their data.
            encoder: Makes one freshly initialised encoder per call.
            dropout: Rate of the dropout before the heads.
        """
        raise NotImplementedError

    def recipe(self, run: Any) -> Generator[Any, None, Any] | None:
        """Train a run by a recipe of its own; by default by `training.supervised`.

        It is a generator that yields each epoch as it ends and returns the record.

        Args:
            run: The `training.Trainer` of the run, with its phases, epochs, batches, evaluation and record.
        """
        return None

    def encoder_suite(self, suite: TaskSuite) -> TaskSuite:
        """Return the suite that encoders are built for: one with other inputs, where the network changes them."""
        return suite

    def phases_for(self, stages: int) -> tuple[Phase, ...]:
        """Return the phases for an encoder with this many stages; by default the same for every encoder."""
        return self.phases()

    def wants(self, phase: str, found: PhaseOutput) -> bool:
        """Return whether a later phase, other than the last, has anything to do.

        Args:
            found: What the phase before it handed over.
        """
        return True

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        """Build the network of a later phase.

        Args:
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


def start_alike(heads: Iterable[nn.Module]) -> None:
    """Let heads of the same shape start with the parameters of the first of them."""
    first_states: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    for head in heads:
        shape = tuple((name, tuple(parameter.shape)) for name, parameter in head.named_parameters())
        head.load_state_dict(first_states.setdefault(shape, head.state_dict()))


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


def of_tokens(model: MultiTaskModule, suite: TaskSuite) -> MultiTaskModule:
    """Return the network, adapted to tasks per token if the suite has such tasks.

    Predictions for sequences [B, L, ...] then have shape [B, outputs, L] instead of [B L, outputs]; the representation
    keeps its rows.
    """
    if suite.per_token:
        model.register_forward_hook(_in_sequences)
    return model


def _in_sequences(model: Any, given: tuple[Batch], outputs: Outputs) -> Outputs:
    shape = given[0].inputs.shape[:2]
    predictions = {name: rows.unflatten(0, shape).movedim(-1, 1) for name, rows in outputs.predictions.items()}
    return Outputs(predictions, outputs.representation, outputs.branches)
