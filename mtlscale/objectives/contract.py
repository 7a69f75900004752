"""The contract of an objective: its terms beside the task losses, and its hooks after a step and an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures import Architecture, Hooks, MultiTaskModule
from mtlscale.config import Component, TaskSuite
from mtlscale.data import Batch, Outputs, Workers

if TYPE_CHECKING:
    from mtlscale.config import TrainingSpec


class ObjectiveModule(nn.Module, Hooks):
    """Base class of a module with extra terms of the training objective; it takes part in training by its hooks.

    Its parameters get gradients of its terms alone; its buffers and `state_dict` are part of checkpoints.
    """

    # True if it has a `step_term`, which needs all batches of a step at once and so excludes gradient accumulation.
    whole_step: bool = False
    # True if it reads the network's predictions of all tasks, whichever tasks a batch has labels for.
    predicts: bool = False

    def term(self, batch: Batch, outputs: Outputs) -> Tensor | None:
        """Return a scalar that is added to the objective for one stream's batch, or None.

        It is a sum over samples divided by `batch.total`, so that the terms of micro-batches and workers add up.
        """
        return None

    def step_term(self, seen: Sequence[tuple[Batch, Outputs]], workers: Workers) -> Tensor | None:
        """Return a scalar that is added once a step, or None.

        It has to be the same on every worker: sums over samples that enter it go through `workers.share`.

        Args:
            seen: This worker's batches of all streams with their outputs, those without labels included.
        """
        return None

    def added(self) -> float:
        """Return the mean over steps of what its terms added to the losses in this epoch; 0 if it keeps no count."""
        return 0.0

    def traces(self) -> dict[str, Any]:
        """Return numbers or lists of numbers to record with this epoch."""
        return {}

    def final_traces(self) -> dict[str, Any]:
        """Return arrays to record with the last epoch alone, because they are too large for every epoch."""
        return {}


class ProximalModule(ObjectiveModule):
    """Objective that only takes a proximal step on one parameter per task, after every step of SGD.

    Its step and traces are functions of these parameters, so that many trials can take them at once.
    """

    special: tuple[nn.Parameter, ...]  # parameters of the network, [K, P] for every task
    strength: float

    def shrink(self, theta: Tensor, step: float | Tensor) -> Tensor:
        """Return the parameters [..., K, T, P] after a proximal step.

        Args:
            theta: Parameters [..., K, T, P].
            step: Size of the step [...], the strength times the learning rate.
        """
        raise NotImplementedError

    def traces_of(self, special: Tensor, final: bool) -> dict[str, Any]:
        """Return `traces`, and with `final` also `final_traces`, for parameters [K, T, P]."""
        return {}

    @torch.no_grad()
    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        theta = self.shrink(torch.stack(self.special, dim=1), self.strength * lr)
        for parameter, value in zip(self.special, theta.unbind(1), strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        return self.traces_of(torch.stack(self.special, dim=1), final=False)

    @torch.no_grad()
    def final_traces(self) -> dict[str, Any]:
        return self.traces_of(torch.stack(self.special, dim=1), final=True)


class Objective(Component):
    """The component of an objective; `build` makes a fresh module."""

    kind: ClassVar[str] = "objectives"
    per_token: ClassVar[bool] = False  # whether its terms are right if each row of features is a token
    # Whether trials with it may be trained as one batched model; it then builds a `ProximalModule`.
    batchable: ClassVar[bool] = False
    architecture: ClassVar[str] = "hps"  # for methods that name this objective and no architecture

    def require(self, architecture: Architecture, training: TrainingSpec) -> None:
        """Check, before anything starts, that architecture and training go with this objective.

        Raises:
            UserError: If they do not.
        """

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        """Build a fresh module for this suite and network.

        Raises:
            UserError: If the objective does not fit them.
        """
        raise NotImplementedError
