"""Sums over an epoch's steps: losses, weights, and how far these were from equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from mtlscale.training.gradients.step_stats import all_finite
from mtlscale.training.gradients.update import StepResult


class Tally:
    """Losses and weights of an epoch's steps, of one run [T] or of a batch of trials [B, T]."""

    def __init__(self, *shape: int) -> None:
        self.losses = torch.zeros(shape, dtype=torch.float64)
        self.seen, self.weights, self.taken = torch.zeros_like(self.losses), torch.zeros_like(self.losses), 0
        self.departure = torch.zeros(
            shape[:-1], dtype=torch.float64
        )  # of the weights from equal ones, the largest so far

    def of(self, trials: Tensor | int) -> Tally:
        """Return the tally of some of the trials, or of one."""
        part = copy(self)
        part.losses, part.seen, part.weights = self.losses[trials], self.seen[trials], self.weights[trials]
        part.departure = self.departure[trials] if self.departure.ndim else self.departure
        return part

    def add(self, result: StepResult) -> None:
        present = None if all_finite(result.losses) else ~result.losses.isnan()
        self.losses += result.losses if present is None else torch.where(present, result.losses, 0.0)
        self.seen += 1 if present is None else present
        if not result.skipped:
            self.weights += result.weights
            self.departure = torch.maximum(self.departure, departure(result.weights, present))
            self.taken += 1

    @property
    def mean_losses(self) -> Tensor:
        """The mean losses [..., T], NaN where a task had no label in any step."""
        return self.losses / self.seen

    def mean_weights(self, names: Sequence[str]) -> dict[str, float]:
        """Return the mean weights of one run; empty where the balancer has no weights."""
        means = (self.weights / max(1, self.taken)).tolist()
        return {} if any(w != w for w in means) else dict(zip(names, means, strict=True))


def furthest(before: float, tally: Tally) -> float:
    """Return the larger of the departure so far and that of an epoch of one run."""
    return float(torch.maximum(torch.tensor(before, dtype=torch.float64), tally.departure))


def departure(weights: Tensor, there: Tensor | None) -> Tensor:
    """Return max_t |T ω_t / Σω − 1| [...] over the T tasks that had labels (`there`, [..., T]; None: all).

    It is 0 where none had, NaN where a balancer gives no weights. Scaling all weights changes nothing: that is the
    learning rate's.
    """
    count = weights.shape[-1] if there is None else there.sum(-1, keepdim=True)
    off = (weights * count / weights.sum(-1, keepdim=True) - 1.0).abs()
    return (off if there is None else torch.where(there, off, 0.0)).amax(-1)
