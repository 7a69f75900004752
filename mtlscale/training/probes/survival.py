"""Survival of balancing in the optimiser: how far a step is from that of equal weights, and from its gradient.

On one step of 64, before the step that is made, the shared parameters take the step that equal weights would make from
the same state of the optimiser, and come back. Nothing else moves: the forward pass is repeated with the same random
numbers, as for balancers that look at a batch twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from mtlscale.architectures import Hooks, MultiTaskModule, Source, StepView
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import UserError
from mtlscale.data import Batch
from mtlscale.objectives import ObjectiveModule
from mtlscale.training.gradients.step_stats import Diverged
from mtlscale.training.gradients.strategies import Penalty
from mtlscale.training.gradients.update import Update
from mtlscale.training.probes.replay import random_state, replayed, statistics_kept
from mtlscale.training.sources import SupervisedSource

EVERY, FIRST = 64, 8  # steps between two looks, and the first one
# Cosines between the balanced gradient and that of equal weights, between the steps that they make, and between the
# balanced gradient, downhill, and its step.
NAMES = ("gradient_to_equal", "step_to_equal", "step_to_gradient")

Tensors = Sequence[Tensor]


def due(step: int) -> bool:
    """Return whether step `step`, from 1, is looked at."""
    return step % EVERY == FIRST


def cosine(first: Tensors, second: Tensors, *, dims: int = 0) -> Tensor:
    """Return the cosine [...] between two lists of tensors with `dims` leading dimensions, each one long vector."""
    return _product(first, second, dims) / (length(first, dims=dims) * length(second, dims=dims))


def length(vector: Tensors, *, dims: int = 0) -> Tensor:
    """Return the length [...] of a list of tensors with `dims` leading dimensions, taken as one long vector."""
    return _product(vector, vector, dims).sqrt()


def _product(first: Tensors, second: Tensors, dims: int) -> Tensor:
    sums = [(a.double() * b.double()).reshape(*a.shape[:dims], -1).sum(-1) for a, b in zip(first, second, strict=True)]
    return torch.stack(sums).sum(0)


class Cosines:
    """Means of the cosines of an epoch's steps, of one run or of a batch of trials."""

    def __init__(self, *shape: int) -> None:
        self._sums = torch.zeros(*shape, len(NAMES), dtype=torch.float64)
        self._counts = torch.zeros_like(self._sums)
        self._waiting: list[Tensor] = []  # on the device: no step waits for them

    def add(self, cosines: Sequence[Tensor]) -> None:
        self._waiting.append(torch.stack(list(cosines), -1))

    def _add_up(self) -> None:
        for cosines in self._waiting:
            values = cosines.cpu()
            self._sums += values.nan_to_num()  # a gradient may be zero
            self._counts += ~values.isnan()
        self._waiting = []

    def keep(self, trials: Tensor) -> None:
        """Keep only the trials at these indices."""
        self._add_up()
        self._sums, self._counts = self._sums[trials], self._counts[trials]

    def traces(self, trial: int | None = None) -> dict[str, Any]:
        """Return the means as a trace of an epoch; none where no step of it was looked at."""
        self._add_up()
        row = (self._sums / self._counts)[() if trial is None else trial].tolist()
        means = {name: mean for name, mean in zip(NAMES, row, strict=True) if not math.isnan(mean)}
        return {"survival": means} if means else {}


class Survival(Hooks):
    """Survival of a turn's balancing in its optimiser, from looks at some of its steps.

    There are none where an objective adds terms, where the losses come from the network's own source, and where the
    network combines gradients itself.
    """

    def __init__(
        self,
        model: MultiTaskModule,
        update: Update,
        source: Source,
        objective: ObjectiveModule | None,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._model, self._update, self._source, self._optimizer = model, update, source, optimizer
        self._possible = (
            objective is None
            and isinstance(source, SupervisedSource)
            and bool(update.partition.shared)
            and not update.partition.independent
            and len(update.names) > 1
            and not update.partition.joint
        )
        self._equal: Update | None = None
        self._looking = False
        self._of_equal: list[Tensor] | None = None  # gradients, where they are not the update's own
        # Of a step that is looked at: parameters, their gradients and values, and equal weights' gradients and step.
        self._parameters: list[torch.nn.Parameter] = []
        self._gradients: list[Tensor] = []
        self._before: list[Tensor] = []
        self._equal_step: tuple[list[Tensor], list[Tensor]] | None = None
        self.cosines = Cosines()

    def before_step(self, step: StepView) -> None:
        """Compute the gradients of equal weights, if the step that comes is looked at and its weights are others."""
        self._of_equal, self._looking = None, self._possible and due(step.number + 1)
        if self._looking and not isinstance(self._update.balancer, Equal):
            try:
                self._of_equal = self._gradients_of_equal(step.micros, step.scale, step.penalty)
            except (Diverged, UserError):  # the update will say so
                self._looking = False

    def on_gradients(self) -> None:
        """Keep the gradients of a step that is looked at, and compute the step of equal weights."""
        self._parameters = [p for p in self._update.partition.shared if p.grad is not None] if self._looking else []
        if self._parameters:
            self._gradients = [p.grad.clone() for p in self._parameters if p.grad is not None]
            self._before = [p.detach().clone() for p in self._parameters]
            self._equal_step = None if self._of_equal is None else self._steps_of_equal(self._of_equal)

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        """Note the cosines of a step that is looked at."""
        if not self._parameters:
            return
        step = [p.detach() - value for p, value in zip(self._parameters, self._before, strict=True)]
        downhill = cosine([-gradient for gradient in self._gradients], step)
        one, equal = torch.ones_like(downhill), self._equal_step
        to_equal = (one, one) if equal is None else (cosine(self._gradients, equal[0]), cosine(step, equal[1]))
        self.cosines.add([*to_equal, downhill])
        self._of_equal, self._gradients, self._before, self._equal_step = None, [], [], None

    def _gradients_of_equal(
        self, micros: Sequence[Sequence[Batch]], scale: Tensor | None, penalty: Penalty
    ) -> list[Tensor]:
        update, source = self._update, cast(SupervisedSource, self._source)
        if self._equal is None:
            self._equal = Update(
                update.names,
                update.partition,
                Equal(reduction="mean"),
                device=update.device,
                workers=update.workers,
                amp=update.amp,
                everywhere=update.everywhere,
            )
        self._equal.loss_scale = update.loss_scale

        with replayed(random_state(update.device), update.device), statistics_kept(self._model):
            result = self._equal(
                [source(micro) for micro in micros],
                sizes=source.sizes(micros) if update.amp == "fp16" else None,
                scale=scale,
                penalty=penalty,
            )
        self._looking = not result.skipped
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in update.partition.shared]
        update.strategy.zero()
        return gradients

    def _steps_of_equal(self, of_equal: Tensors) -> tuple[list[Tensor], list[Tensor]]:
        """Return gradients of equal weights, as long as the step's gradients, and their steps from the same state."""
        parameters, gradients, optimizer = self._parameters, self._gradients, self._optimizer
        places = {id(p): place for place, p in enumerate(self._update.partition.shared)}
        equal = [of_equal[places[id(p)]] for p in parameters]
        # That all weights are larger is a matter of the learning rate.
        factor = length(gradients) / length(equal).clamp(min=torch.finfo(torch.float64).tiny)
        before = [p.detach().clone() for p in parameters]
        with _undone(self._update, optimizer, parameters):
            for parameter, gradient in zip(parameters, equal, strict=True):
                parameter.grad = gradient * factor.to(gradient.dtype)
            optimizer.step()
            return equal, [p.detach() - value for p, value in zip(parameters, before, strict=True)]


@contextmanager
def _undone(update: Update, optimizer: torch.optim.Optimizer, parameters: Tensors) -> Iterator[None]:
    """Put parameters, the optimiser's state of them, and all `.grad` back on exit; others have no `.grad` inside."""
    gradients = [p.grad for p in update.partition.all]
    values = [p.detach().clone() for p in parameters]
    states = {
        p: {key: entry.clone() if isinstance(entry, Tensor) else entry for key, entry in optimizer.state[p].items()}
        for p in parameters
        if p in optimizer.state
    }
    update.strategy.zero()
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)
        for parameter in parameters:
            optimizer.state.pop(parameter, None)
            if parameter in states:
                optimizer.state[parameter] = states[parameter]
        for parameter, gradient in zip(update.partition.all, gradients, strict=True):
            parameter.grad = gradient
