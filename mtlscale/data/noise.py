"""Training labels made wrong on purpose: which, and what they become, is a function of sample, task and seed alone."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mtlscale.data.batches import Samples
from mtlscale.spec import MISSING_CLASS, LabelNoise, Task

_SPLIT = "train"


def label_shifts(ids: Sequence[str], task: str, classes: int, share: float, seed: int) -> Tensor:
    """How many classes on each sample's label moves, int64 [N]: 0 for about 1 - `share` of them, the others as likely
    as one another."""
    result = torch.zeros(len(ids), dtype=torch.int64)
    for place, id in enumerate(ids):
        digest = hashlib.blake2b(f"noise\0{seed}\0{task}\0{id}".encode(), digest_size=16).digest()
        if (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53 < share:
            result[place] = 1 + int.from_bytes(digest[8:], "big") % (classes - 1)
    return result


def moved(target: Tensor, shifts: Tensor, classes: int) -> Tensor:
    """Labels of their type, so many classes on; what is missing stays missing."""
    there = target != MISSING_CLASS  # NaN plus a number is NaN
    shifts = shifts.to(target.device).reshape(-1, *[1] * (target.ndim - 1))
    wide = target if target.is_floating_point() else target.long()
    return torch.where(there, (wide + shifts) % classes, wide).to(target.dtype)


class NoisyLabels:
    """The noise in the training labels of one data set. ids: stream -> of its training samples, in their order."""

    def __init__(self, noise: LabelNoise, tasks: Sequence[Task], ids: Callable[[str], Sequence[str]]) -> None:
        wanted = set(noise.tasks or (task.name for task in tasks))
        self._noise, self._ids = noise, functools.cache(ids)
        self._classes = {task.name: max(2, task.outputs) for task in tasks if task.name in wanted}
        self._known: dict[str, Tensor] = {}

    def labels(
        self, split: str, stream: str, targets: Mapping[str, Tensor], tasks: Sequence[str], index: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Task -> labels of the samples of a stream at these indices (default: all), with noise where they have it."""
        found = {task: targets[task] for task in tasks}
        for task in tasks if split == _SPLIT else ():
            if task in self._classes:
                shifts = self._shifts(stream, task)
                shifts = shifts if index is None else shifts[index]
                found[task] = moved(found[task], shifts, self._classes[task])
        return found

    def of(self, split: str, stream: str, samples: Samples, index: Tensor | None = None) -> Samples:
        """These samples of a stream, the others' and the inputs shared."""
        return with_targets(samples, self.labels(split, stream, samples.targets, tuple(samples.targets), index))

    def _shifts(self, stream: str, task: str) -> Tensor:
        if task not in self._known:
            noise, ids = self._noise, self._ids(stream)
            self._known[task] = label_shifts(ids, task, self._classes[task], noise.share, noise.seed)
        return self._known[task]


def with_targets(samples: Samples, targets: Mapping[str, Tensor]) -> Samples:
    """The same samples, of whatever kind, with these targets."""
    found = copy.copy(samples)
    found.targets = dict(targets)
    return found


class _Noisy(Mapping[str, Mapping[str, Samples]]):
    """Splits of which the training labels have noise, once they are asked for."""

    def __init__(self, splits: Mapping[str, Mapping[str, Samples]], noise: NoisyLabels) -> None:
        self._splits, self._noise = splits, noise
        self._open: dict[str, dict[str, Samples]] = {}

    def __getitem__(self, split: str) -> Mapping[str, Samples]:
        if split not in self._open:
            streams = self._splits[split].items()
            self._open[split] = {stream: self._noise.of(split, stream, samples) for stream, samples in streams}
        return self._open[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)


def with_noise(
    splits: Mapping[str, Mapping[str, Samples]], noise: NoisyLabels | None
) -> Mapping[str, Mapping[str, Samples]]:
    return splits if noise is None else _Noisy(splits, noise)
