"""Sums over an epoch's steps: losses, weights, and how far these were from equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from mtlscale.training.gradients.update import StepResult

_AT_A_TIME = 64


class Tally:
    """Losses and weights of an epoch's steps, of one run [T] or of a batch of trials [B, T].

    Steps are added up many at a time, in their order: a small network would notice one at a time.
    """

    def __init__(self, *shape: int) -> None:
        self._losses = torch.zeros(shape, dtype=torch.float64)
        self._seen, self._balanced = torch.zeros_like(self._losses), torch.zeros_like(self._losses)
        self._weights, self._taken = torch.zeros_like(self._losses), 0
        self._departure = torch.zeros(shape[:-1], dtype=torch.float64)
        self._steps: list[StepResult] = []  # those that are not added up yet

    def of(self, trials: Tensor | int) -> Tally:
        """Return the tally of some of the trials, or of one."""
        self._add_up()
        part = copy(self)
        part._losses, part._seen, part._weights = self._losses[trials], self._seen[trials], self._weights[trials]
        part._balanced = self._balanced[trials]
        part._departure = self._departure[trials] if self._departure.ndim else self._departure
        part._steps = []
        return part

    def add(self, result: StepResult) -> None:
        self._steps.append(result)
        if len(self._steps) == _AT_A_TIME:
            self._add_up()

    @property
    def losses(self) -> Tensor:
        """The sums of the losses of the steps [..., T]."""
        self._add_up()
        return self._losses

    @property
    def seen(self) -> Tensor:
        """The numbers of steps [..., T] in which a task had labels."""
        self._add_up()
        return self._seen

    @property
    def balanced(self) -> Tensor:
        """The numbers of steps [..., T] in which a task was balanced; in others with labels its loss was 0."""
        self._add_up()
        return self._balanced

    @property
    def weights(self) -> Tensor:
        """The sums of the weights of the steps that were not skipped [..., T]."""
        self._add_up()
        return self._weights

    @property
    def departure(self) -> Tensor:
        """The largest distance [...] of a step's weights from equal ones."""
        self._add_up()
        return self._departure

    @property
    def mean_losses(self) -> Tensor:
        """The mean losses [..., T], NaN where a task had no label in any step."""
        return self.losses / self.seen

    @property
    def balanced_losses(self) -> Tensor:
        """The mean losses [..., T] over the steps in which a task was balanced, NaN where there was none."""
        return self.losses / self.balanced

    def mean_weights(self, names: Sequence[str]) -> dict[str, float]:
        """Return the mean weights of one run; empty where the balancer has no weights."""
        means = (self.weights / max(1, self._taken)).tolist()
        return {} if any(w != w for w in means) else dict(zip(names, means, strict=True))

    def restore(self, losses: Tensor, balanced: Tensor) -> None:
        """Go on from sums of losses and numbers of steps in which a task was balanced [..., T]."""
        self._steps, self._losses, self._seen, self._balanced = [], losses.clone(), balanced.clone(), balanced.clone()

    def _add_up(self) -> None:
        if not self._steps:
            return
        losses = torch.stack([step.losses for step in self._steps])
        present = ~losses.isnan()
        self._losses = _in_order(self._losses, torch.where(present, losses, 0.0))
        self._seen = self._seen + present.sum(0)
        balanced = torch.stack([step.balanced for step in self._steps])
        self._balanced = self._balanced + balanced.sum(0)

        steps = [step_number for step_number, step in enumerate(self._steps) if not step.skipped]
        if steps:
            weights = torch.stack([self._steps[step_number].weights for step_number in steps])
            self._weights = _in_order(self._weights, weights)
            self._departure = torch.maximum(self._departure, departure(weights, balanced[steps]).amax(0))
            self._taken += len(steps)
        self._steps = []


def _in_order(total: Tensor, terms: Tensor) -> Tensor:
    """Return a total plus terms [n, ...], one after the other, so that a sum does not depend on where it is cut."""
    return torch.cat([total.unsqueeze(0), terms]).cumsum(0)[-1]


def furthest(before: float, tally: Tally) -> float:
    """Return the larger of the departure so far and that of an epoch of one run."""
    return float(torch.maximum(torch.tensor(before, dtype=torch.float64), tally.departure))


def departure(weights: Tensor, there: Tensor) -> Tensor:
    """Return max_t |T ω_t / Σω − 1| [...] over the T tasks that were balanced (`there`, [..., T]).

    It is 0 where none had, NaN where a balancer gives no weights. Scaling all weights changes nothing: that is the
    learning rate's.
    """
    count, total = there.sum(-1, keepdim=True), weights.sum(-1, keepdim=True)
    off = (weights * count / total - 1.0).abs()
    return torch.where(there, off, 0.0).amax(-1)
