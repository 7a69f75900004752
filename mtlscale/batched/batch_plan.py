"""Batches of many trials' steps: every seed's sample order and random numbers, as a single run's loop draws them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtlscale.batched.dropout import DropoutSite
from mtlscale.batched.parameter_layout import Layout
from mtlscale.config import TrainingSpec
from mtlscale.data import SAMPLERS, EpochSampler
from mtlscale.training import derive_seed


@dataclass(frozen=True)
class StreamBatch:
    """Batch of one pass: one stream, or a group of streams side by side.

    Attributes:
        stream: the stream or group.
        indices: [n], or [t, n] for t streams, -1 at positions without a sample.
        uniform: the random numbers of each dropout module.
        per_trial: `indices` and `uniform` have a leading dimension of trials, whose seeds differ.
        factors: [1] or [t], of the losses, where they are not 1.
    """

    stream: str | int  # the stream's name, or the group's position
    indices: Tensor
    uniform: tuple[Tensor, ...]
    per_trial: bool = False
    factors: Tensor | None = None

    def keep(self, trials: Tensor) -> StreamBatch:
        """Restrict the part to the given trials."""
        if not self.per_trial:
            return self
        return replace(self, indices=self.indices[trials], uniform=tuple(u[trials] for u in self.uniform))


@dataclass(frozen=True)
class StepDraw:
    """Draw of one step: the parts of each seed, and how many samples a trial sees."""

    of_seed: Mapping[int, Sequence[StreamBatch]]
    samples: int

    def parts(self, seeds: Sequence[int]) -> list[StreamBatch]:
        """Return the step's passes for trials with these seeds."""
        if len(set(seeds)) == 1:
            return list(self.of_seed[seeds[0]])
        return [_of_trials(parts) for parts in zip(*(self.of_seed[seed] for seed in seeds), strict=True)]


def _of_trials(parts: Sequence[StreamBatch]) -> StreamBatch:
    uniform = tuple(torch.stack(drawn) for drawn in zip(*(part.uniform for part in parts), strict=True))
    return StreamBatch(parts[0].stream, torch.stack([part.indices for part in parts]), uniform, True)


class Steps:
    """Steps of each epoch.

    `sizes` are the numbers of samples of each stream, `places` the dropout modules of each pass.
    """

    def __init__(
        self,
        layout: Layout,
        sizes: Mapping[str, int],
        settings: TrainingSpec,
        places: Mapping[str | int, Sequence[DropoutSite]],
        device: torch.device,
    ) -> None:
        self.layout, self.places = layout, places
        self.dtype, self.device = getattr(torch, settings.dtype), device
        self._sizes, self._settings = dict(sizes), settings
        self.per_epoch = self._sampler(0).steps

    def epoch(self, epoch: int, seeds: Sequence[int]) -> Iterator[StepDraw]:
        """Yield what trials with these seeds draw, step by step; each seed draws once."""
        seeds = list(dict.fromkeys(seeds))
        samplers = {seed: self._sampler(seed) for seed in seeds}
        steps = {seed: sampler.epoch(epoch) for seed, sampler in samplers.items()}
        generators = {
            seed: torch.Generator(self.device).manual_seed(derive_seed("epoch", seed, epoch, 0)) for seed in seeds
        }

        for _ in range(self.per_epoch):
            indices = {seed: next(steps[seed]) for seed in seeds}
            parts = {
                seed: self._parts(indices[seed], samplers[seed].factors(indices[seed]), generators[seed])
                for seed in seeds
            }
            yield StepDraw(parts, sum(len(index) for index in indices[seeds[0]].values()))

    def _sampler(self, seed: int) -> EpochSampler:
        settings, order = self._settings, derive_seed("order", seed)
        sampler = SAMPLERS[settings.batches]
        return sampler(self._sizes, settings.batch_size, order, steps_per_epoch=settings.steps_per_epoch)

    def _parts(
        self, indices: Mapping[str, Tensor], factors: Mapping[str, float], generator: torch.Generator
    ) -> list[StreamBatch]:
        def numbers(place: DropoutSite, samples: int) -> Tensor:
            return torch.rand(place.of(samples), generator=generator, dtype=self.dtype, device=self.device)

        def of(names: Sequence[str]) -> Tensor | None:
            return torch.tensor([factors[n] for n in names], dtype=self.dtype, device=self.device) if factors else None

        if not self.layout.joined:
            return [
                StreamBatch(
                    s, index.to(self.device), tuple(numbers(p, len(index)) for p in self.places[s]), factors=of([s])
                )
                for s, index in indices.items()
            ]
        places = self.places[0]
        uniform = {name: [numbers(site, len(index)) for site in places] for name, index in indices.items()}
        groups = [[self.layout.names[task] for task in group] for group in self.layout.groups]
        return [self._group(n, names, indices, uniform, of(names)) for n, names in enumerate(groups)]

    def _group(
        self,
        number: int,
        names: Sequence[str],
        indices: Mapping[str, Tensor],
        uniform: Mapping[str, Sequence[Tensor]],
        factors: Tensor | None,
    ) -> StreamBatch:
        """Return the streams of a group side by side, each filled up to the longest."""
        places = self.places[number]
        longest = max(1, *(len(indices[name]) for name in names))
        side_by_side = torch.full((len(names), longest), -1)
        filled = [torch.zeros(len(names), *p.of(longest), dtype=self.dtype, device=self.device) for p in places]

        for row, name in enumerate(names):
            side_by_side[row, : len(indices[name])] = indices[name]
            for dropout_place, target, drawn in zip(places, filled, uniform[name], strict=True):
                target[row].narrow(dropout_place.axis, 0, len(indices[name])).copy_(drawn)

        return StreamBatch(number, side_by_side.to(self.device), tuple(filled), factors=factors)
