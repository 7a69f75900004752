"""The contract of an objective: what is added to the task losses, and what happens after a step and an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from mtlscale.architectures import Architecture, MultiTaskModule
from mtlscale.data import Batch, Outputs, Workers
from mtlscale.spec import Component, TaskSuite

if TYPE_CHECKING:
    from mtlscale.spec import TrainingSpec


class EpochView(Protocol):
    """What an objective may look at when an epoch ends."""

    def outputs(self) -> Iterable[tuple[Batch, Outputs]]:
        """This worker's share of the training set through the network: evaluation mode, no gradient."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over workers, in place."""


class ObjectiveModule(nn.Module):
    """Extra terms of the training objective. Its parameters get gradients of its terms alone; its buffers and
    `state_dict` travel in checkpoints."""

    # True where `step_term` has something to say: it needs all batches of a step at once, so no accumulation.
    whole_step: bool = False
    # True where it looks at the network's predictions of all tasks, whatever a batch has labels of.
    predicts: bool = False

    def task_weights(self) -> Tensor | None:
        """[T], summing to one: the task losses are multiplied by T times these before they are balanced."""
        return None

    def term(self, batch: Batch, outputs: Outputs) -> Tensor | None:
        """A scalar added to the objective for one stream's batch. Sum over samples divided by `batch.total`, so that
        terms of micro-batches and workers add up."""
        return None

    def step_term(self, seen: Sequence[tuple[Batch, Outputs]], workers: Workers) -> Tensor | None:
        """A scalar added once a step, of this worker's batches of all streams, those without labels included.

        It has to be the same on every worker: sums over samples that enter it go through `workers.share`.
        """
        return None

    def penalty(self) -> Tensor | None:
        """A scalar on parameters alone, added once a step."""
        return None

    def reduce(self, sum: Callable[[Tensor], Tensor]) -> None:
        """Once a step, on every worker, when all its terms have been asked for: `sum` over workers, in place, what
        they left behind."""

    def discard_step(self) -> None:
        """A step that was not taken: forget what its terms left behind."""

    def after_step(self, lr: float) -> None:
        """After the optimiser's step at learning rate `lr`: proximal operators."""

    def on_epoch_end(self, view: EpochView) -> None:
        """Adapt multipliers and weights."""

    def added(self) -> float:
        """What its terms have added to the losses in this epoch, a mean over steps, where it keeps count; else 0."""
        return 0.0

    def traces(self) -> dict[str, Any]:
        """Numbers or lists of numbers to keep with this epoch."""
        return {}

    def final_traces(self) -> dict[str, Any]:
        """Arrays to keep with the last epoch alone, as they would be too much for every one."""
        return {}


class ProximalModule(ObjectiveModule):
    """An objective that does nothing but a proximal step on one parameter per task, after every step of SGD.

    Its step and traces are functions of these parameters, so that many trials can take them at once.
    """

    special: tuple[nn.Parameter, ...]  # of the network, [K, P] for every task
    strength: float

    def shrink(self, theta: Tensor, step: float | Tensor) -> Tensor:
        """theta [..., K, T, P] after a proximal step of size `step` [...], the strength times the learning rate."""
        raise NotImplementedError

    def traces_of(self, special: Tensor, final: bool) -> dict[str, Any]:
        """`traces`, and with `final` also `final_traces`, for these values [K, T, P]."""
        return {}

    @torch.no_grad()
    def after_step(self, lr: float) -> None:
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
    """A recipe of an objective."""

    kind: ClassVar[str] = "objectives"
    per_token: ClassVar[bool] = False  # whether its terms are right where features are rows, a token each
    # Whether trials of it may be trained as one batched model: what it builds is a `ProximalModule`.
    batchable: ClassVar[bool] = False
    architecture: ClassVar[str] = "hps"  # of a method that names this objective and no architecture

    def require(self, architecture: Architecture, training: TrainingSpec) -> None:
        """Raises `UserError`, before anything starts, where architecture or training do not go with this objective."""

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        """A fresh module for this suite and network. Raises `UserError` where they do not fit."""
        raise NotImplementedError
