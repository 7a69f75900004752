"""Label noise: the changed training labels and their new values are a function of sample, task and seed alone."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, LabelNoise, Task
from mtlscale.data.batches import Samples

_SPLIT = "train"


def label_shifts(ids: Sequence[str], task: str, classes: int, fraction: float, seed: int) -> Tensor:
    """Return the number of classes by which each sample's label is shifted, int64 [N].

    It is 0 for about 1 - `fraction` of the samples; the other values are equally likely.

    Args:
        ids: The samples' stable ids.
        fraction: The probability of a shift.
    """
    result = torch.zeros(len(ids), dtype=torch.int64)
    for row, id in enumerate(ids):
        digest = hashlib.blake2b(f"noise\0{seed}\0{task}\0{id}".encode(), digest_size=16).digest()
        if (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53 < fraction:
            result[row] = 1 + int.from_bytes(digest[8:], "big") % (classes - 1)
    return result


def moved(target: Tensor, shifts: Tensor, classes: int) -> Tensor:
    """Return labels of the same type, shifted cyclically by `shifts` classes; missing labels stay missing."""
    present = target != MISSING_CLASS  # NaN plus a number is NaN
    shifts = shifts.to(target.device).reshape(-1, *[1] * (target.ndim - 1))
    wide = target if target.is_floating_point() else target.long()
    return torch.where(present, (wide + shifts) % classes, wide).to(target.dtype)


class NoisyLabels:
    """The noise in the training labels of one data set; `ids` maps a stream to its training samples' ids, in order."""

    def __init__(self, noise: LabelNoise, tasks: Sequence[Task], ids: Callable[[str], Sequence[str]]) -> None:
        noisy_tasks = set(noise.tasks or (task.name for task in tasks))
        self._noise, self._ids = noise, functools.cache(ids)
        self._classes = {task.name: max(2, task.outputs) for task in tasks if task.name in noisy_tasks}
        self._known: dict[str, Tensor] = {}

    def labels(
        self, split: str, stream: str, targets: Mapping[str, Tensor], tasks: Sequence[str], index: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return task -> labels of samples of a stream, with noise for the tasks that have it.

        Args:
            split: The split; only training labels have noise.
            targets: Task -> labels without noise.
            index: Indices of the samples; default: all.
        """
        noisy_labels = {task: targets[task] for task in tasks}
        for task in tasks if split == _SPLIT else ():
            if task in self._classes:
                shifts = self._shifts(stream, task)
                shifts = shifts if index is None else shifts[index]
                noisy_labels[task] = moved(noisy_labels[task], shifts, self._classes[task])
        return noisy_labels

    def of(self, split: str, stream: str, samples: Samples, index: Tensor | None = None) -> Samples:
        """Return these samples of a stream with noise; inputs and unchanged labels are shared, not copied."""
        return with_targets(samples, self.labels(split, stream, samples.targets, tuple(samples.targets), index))

    def _shifts(self, stream: str, task: str) -> Tensor:
        if task not in self._known:
            noise, ids = self._noise, self._ids(stream)
            self._known[task] = label_shifts(ids, task, self._classes[task], noise.share, noise.seed)
        return self._known[task]


def with_targets(samples: Samples, targets: Mapping[str, Tensor]) -> Samples:
    """Return a copy of the samples, of the same class, with other targets; inputs are shared."""
    replaced = copy.copy(samples)
    replaced.targets = dict(targets)
    return replaced


class _Noisy(Mapping[str, Mapping[str, Samples]]):
    """Splits whose training labels get their noise on first access."""

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
    """Return the splits with noise in the training labels; unchanged if there is no noise."""
    return splits if noise is None else _Noisy(splits, noise)
