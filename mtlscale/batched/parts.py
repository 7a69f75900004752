"""What the steps of many trials work on: every seed's order of samples and random numbers, as the loop of a single run
draws them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mtlscale.batched.dropout import Place
from mtlscale.batched.slots import Layout
from mtlscale.data import EpochSampler
from mtlscale.spec import TrainingSpec
from mtlscale.training import derive_seed


@dataclass(frozen=True)
class Part:
    """What one batched pass works on: one stream, or a group of streams side by side.

    indices: [n], or [t, n] for t streams, -1 at places without a sample. uniform: the numbers of each dropout module.
    With `per_trial`, where the trials' seeds differ, all have a leading dimension of trials.
    """

    stream: str | int  # its name, or the group's place
    indices: Tensor
    uniform: tuple[Tensor, ...]
    per_trial: bool = False

    def keep(self, trials: Tensor) -> Part:
        """For these of the trials alone."""
        if not self.per_trial:
            return self
        return replace(self, indices=self.indices[trials], uniform=tuple(u[trials] for u in self.uniform))


@dataclass(frozen=True)
class Drawn:
    """One step: what each seed draws for it, and how many samples a trial sees."""

    of_seed: Mapping[int, Sequence[Part]]
    samples: int

    def parts(self, seeds: Sequence[int]) -> list[Part]:
        """The step's passes for trials with these seeds."""
        if len(set(seeds)) == 1:
            return list(self.of_seed[seeds[0]])
        return [_of_trials(parts) for parts in zip(*(self.of_seed[seed] for seed in seeds), strict=True)]


def _of_trials(parts: Sequence[Part]) -> Part:
    uniform = tuple(torch.stack(drawn) for drawn in zip(*(part.uniform for part in parts), strict=True))
    return Part(parts[0].stream, torch.stack([part.indices for part in parts]), uniform, True)


class Steps:
    """The steps of each epoch. sizes: samples of each stream; places: dropout modules of each pass."""

    def __init__(
        self,
        layout: Layout,
        sizes: Mapping[str, int],
        settings: TrainingSpec,
        places: Mapping[str | int, Sequence[Place]],
        device: torch.device,
    ) -> None:
        self.layout, self.places = layout, places
        self.dtype, self.device = getattr(torch, settings.dtype), device
        self._sizes, self._settings = dict(sizes), settings
        self.per_epoch = self._sampler(0).steps

    def epoch(self, epoch: int, seeds: Sequence[int]) -> Iterator[Drawn]:
        """What trials with these seeds draw, step by step; each seed draws once."""
        seeds = list(dict.fromkeys(seeds))
        steps = {seed: self._sampler(seed).epoch(epoch) for seed in seeds}
        generators = {
            seed: torch.Generator(self.device).manual_seed(derive_seed("epoch", seed, epoch, 0)) for seed in seeds
        }
        for _ in range(self.per_epoch):
            indices = {seed: next(steps[seed]) for seed in seeds}
            found = {seed: self._parts(indices[seed], generators[seed]) for seed in seeds}
            yield Drawn(found, sum(len(index) for index in indices[seeds[0]].values()))

    def _sampler(self, seed: int) -> EpochSampler:
        settings, order = self._settings, derive_seed("order", seed)
        return EpochSampler(self._sizes, settings.batch_size, order, steps_per_epoch=settings.steps_per_epoch)

    def _parts(self, indices: Mapping[str, Tensor], generator: torch.Generator) -> list[Part]:
        def numbers(place: Place, samples: int) -> Tensor:
            return torch.rand(place.of(samples), generator=generator, dtype=self.dtype, device=self.device)

        if not self.layout.joined:
            return [
                Part(s, index.to(self.device), tuple(numbers(p, len(index)) for p in self.places[s]))
                for s, index in indices.items()
            ]
        places = self.places[0]
        uniform = {name: [numbers(place, len(index)) for place in places] for name, index in indices.items()}
        return [self._group(number, indices, uniform) for number in range(len(self.layout.groups))]

    def _group(self, number: int, indices: Mapping[str, Tensor], uniform: Mapping[str, Sequence[Tensor]]) -> Part:
        """The streams of a group side by side, each filled up to the longest."""
        names, places = [self.layout.names[task] for task in self.layout.groups[number]], self.places[number]
        longest = max(len(indices[name]) for name in names)
        side_by_side = torch.full((len(names), longest), -1)
        filled = [torch.zeros(len(names), *p.of(longest), dtype=self.dtype, device=self.device) for p in places]
        for row, name in enumerate(names):
            side_by_side[row, : len(indices[name])] = indices[name]
            for place, target, drawn in zip(places, filled, uniform[name], strict=True):
                target[row].narrow(place.axis, 0, len(indices[name])).copy_(drawn)
        return Part(number, side_by_side.to(self.device), tuple(filled))
