"""Parameter updates of many trials: clipping, the optimiser's step and the proximal one, each trial's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtlscale.batched.differentiate import Gradients, fit
from mtlscale.batched.optimizer import BatchedOptimizer
from mtlscale.batched.parameter_layout import Layout
from mtlscale.config import Run
from mtlscale.objectives import ProximalModule
from mtlscale.training import clip_factors, schedule_factor


class Special:
    """Parameters that a proximal step works on: one per task, of all trials and tasks [B, K, T, P]."""

    def __init__(self, objective: ProximalModule, layout: Layout) -> None:
        self.objective, self._joined = objective, layout.joined
        self._places = layout.places(objective.special)

    def of(self, values: Sequence[Tensor]) -> Tensor:
        if self._joined:
            return values[self._places[0]].transpose(1, 2)
        return torch.stack([values[slot] for slot in self._places], dim=2)

    def shrink(self, values: list[Tensor], step: Tensor) -> None:
        """Take the proximal step of size `step` [B]; the slots get new tensors."""
        shrunk = self.objective.shrink(self.of(values), step)
        if self._joined:
            values[self._places[0]] = shrunk.transpose(1, 2).contiguous()
            return
        for slot, value in zip(self._places, shrunk.unbind(2), strict=True):
            values[slot] = value.contiguous()


def squares(gradients: Gradients, layout: Layout, trials: int, device: torch.device) -> Tensor:
    """Return the squared norms [B, T] of each trial's whole gradient, or of each network's where nothing is shared."""
    result = torch.zeros(trials, len(layout.names), dtype=torch.float64, device=device)
    for slot, gradient in zip(layout.slots, gradients, strict=True):
        if gradient is not None:
            part = slot.of_task(result)
            part += gradient.reshape(*part.shape, -1).pow(2).sum(-1)
    return result if layout.independent else result.sum(1, keepdim=True).expand_as(result)


class BatchedMover:
    """Updater that takes the steps of B trials."""

    def __init__(
        self, runs: Sequence[Run], layout: Layout, objective: ProximalModule | None, device: torch.device
    ) -> None:
        def column(numbers: Sequence[float]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float64, device=device)

        self.layout, self.device = layout, device

        self.settings = [run.training for run in runs]
        weight_decay, momentum = (column([getattr(s, k) for s in self.settings]) for k in ("weight_decay", "momentum"))
        self.optimizer = BatchedOptimizer(self.settings[0].optimizer, weight_decay, momentum)

        limits = [s.clip for s in self.settings if s.clip is not None]
        self.limits = column(limits) if limits else None  # limits of all trials, or of none
        self.special = None if objective is None else Special(objective, layout)
        self.strengths = column([] if objective is None else [run.parts.objective.strength for run in runs])

    @torch.no_grad()
    def __call__(self, values: list[Tensor], gradients: Gradients, step: int, total: int) -> None:
        """Move the slots along their gradients in a step (from 0) of `total`."""
        rates = [s.lr * schedule_factor(s, step, total) for s in self.settings]
        lr = torch.tensor(rates, dtype=torch.float64).to(self.device, non_blocking=True)
        self.optimizer.step(values, self.clipped(gradients), lr)
        if self.special is not None:
            self.special.shrink(values, self.strengths * lr)

    def clipped(self, gradients: Gradients) -> Gradients:
        """Clip the norm of each trial's whole gradient, or of each of its networks where nothing is shared."""
        if self.limits is None:
            return gradients
        limits = self.limits.unsqueeze(1)
        factors = clip_factors(squares(gradients, self.layout, len(self.limits), self.device), limits)
        return [
            None if g is None else g * fit(slot.of_task(factors), g)
            for slot, g in zip(self.layout.slots, gradients, strict=True)
        ]

    def keep(self, trials: Tensor) -> None:
        """Keep only the trials at the indices `trials` [B']."""
        self.settings = [self.settings[trial] for trial in trials.tolist()]
        self.limits = None if self.limits is None else self.limits[trials]
        if self.special is not None:
            self.strengths = self.strengths[trials]
        self.optimizer.keep(trials)
