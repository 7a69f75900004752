"""Random changes of training images together with their maps, a pure function of run, epoch and sample.

So a run that was cut off sees the same pictures again, and the number of workers does not matter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.data import Samples
from mtlscale.spec import MISSING_CLASS, Task, TaskSuite, UserError
from mtlscale.training.seeds import derive_seed

SCALES = (1.0, 1.2, 1.5)  # of MTAN's random scale and crop
_DEPTHS = {"abs_err", "rel_err"}  # metrics that tell a depth from other maps of numbers
_GRAY = 127.5  # where a data set does not say its mean
_INVERSE = ("inverse", "disparity")  # in a task's name; a suite may name tasks in extras["inverse"], too


class Augment:
    """`flip`: left and right exchanged with probability ½. `scale_crop`: that, and a random crop of 1, 1/1.2 or 1/1.5
    of each side, enlarged to the size of the image. `shift`: the flip, and the image moved by up to an eighth of its
    sides over black (of CIFAR's 32 pixels 4: its usual padding and random crop). `shift_cutout`: that, and a square of
    half the side, of which a part may lie outside, in the mean colour.

    Images are interpolated bilinearly, maps take the nearest pixel. Where the scene comes nearer by a scale, depth is
    divided by it (inverse depth multiplied); where it is mirrored, the x component of normals changes its sign.
    Targets without places stay as they are; where a map is moved, what comes in has no label.
    """

    def __init__(self, kind: str, suite: TaskSuite, seed: int) -> None:
        if suite.input_kind != "image":
            raise UserError(f"training.augment: {kind} changes images, {suite.name} has {suite.input_kind}s; drop it")
        self.kind, self.seed = kind, seed
        self.tasks = {task.name: task for task in suite.tasks}
        named = suite.extras.get("inverse") or ()
        self.mean = suite.extras.get("mean") or [_GRAY] * suite.input_shape[0]
        self.inverse = {name for name in self.tasks if name in named or any(p in name.lower() for p in _INVERSE)}

    @classmethod
    def of(cls, kind: str, suite: TaskSuite, seed: int) -> Augment | None:
        """The changes of a run's images; None where there are none."""
        return None if kind == "none" else cls(kind, suite, derive_seed("augment", seed))

    def __call__(self, samples: Samples, stream: str, epoch: int, index: Tensor) -> Samples:
        """The samples of these indices [B] into their stream, changed as this epoch has it."""
        if not len(index):
            return samples
        draws = torch.tensor([self.draws(stream, epoch, i) for i in index.tolist()], dtype=torch.float64)
        if self.kind != "scale_crop":
            draws[:, 1] = 1.0
        else:
            draws[:, 1] = torch.tensor(SCALES, dtype=torch.float64)[(draws[:, 1] * len(SCALES)).long()]
        draws = draws.to(samples.inputs.device, non_blocking=True)
        flipped, scale = draws[:, 0] < 0.5, draws[:, 1]
        change: Change
        if self.kind == "flip":
            change = _Flip(flipped)
        elif self.kind == "scale_crop":
            change = _Crop(flipped, scale, draws[:, 2:])
        else:
            change = _Shift(flipped, draws[:, 2:])
        inputs = change(samples.inputs, smooth=True)
        if self.kind == "shift_cutout":
            places = [self.draws(stream, epoch, i, "cutout")[:2] for i in index.tolist()]
            inputs = _cut_out(inputs, torch.tensor(places, dtype=torch.float64, device=inputs.device), self.mean)
        targets = {
            name: self._target(self.tasks[name], t, change, flipped, scale) for name, t in samples.targets.items()
        }
        return Samples(inputs, targets, samples.weights)

    def draws(self, stream: str, epoch: int, index: int, what: str = "augment") -> list[float]:
        """Four numbers in [0, 1): flip, scale, place of the crop."""
        digest = hashlib.blake2b(f"{what}/{self.seed}/{epoch}/{stream}/{index}".encode(), digest_size=32).digest()
        return [(int.from_bytes(digest[i : i + 8], "big") >> 11) / 2.0**53 for i in range(0, 32, 8)]

    def _target(self, task: Task, target: Tensor, change: Change, flipped: Tensor, scale: Tensor) -> Tensor:
        if target.ndim < 3:
            return target
        found = change(target, smooth=False)
        if task.loss == "cosine":
            sign = torch.ones(len(found), 3, dtype=found.dtype, device=found.device)
            sign[:, 0] -= 2.0 * flipped
            return found * sign[:, :, None, None]
        if _DEPTHS & set(task.metrics):
            nearer = scale if task.name in self.inverse else 1.0 / scale
            return found * nearer.to(found.dtype).reshape(-1, *[1] * (found.ndim - 1))
        return found


class Change(Protocol):
    """One change of every sample [B] of images, or of maps."""

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor: ...


class _Flip:
    """[B, ..., W] with the columns of some samples in reverse."""

    def __init__(self, flipped: Tensor) -> None:
        self.flipped = flipped

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor:
        return torch.where(self.flipped.reshape(-1, *[1] * (maps.ndim - 1)), maps.flip(-1), maps)


class _Crop:
    """[B, C, H, W] or [B, H, W]: of each sample the part of 1 / scale of the sides at a place in [0, 1)², enlarged."""

    def __init__(self, flipped: Tensor, scale: Tensor, place: Tensor) -> None:
        share = 1.0 / scale
        self.theta = torch.zeros(len(scale), 2, 3, dtype=torch.float64, device=scale.device)
        self.theta[:, 0, 0] = share * (1.0 - 2.0 * flipped)
        self.theta[:, 1, 1] = share
        self.theta[:, :, 2] = (2.0 * place - 1.0) * (1.0 - share)[:, None]

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor:
        numbers = maps if maps.is_floating_point() else maps.float()
        if maps.ndim == 3:
            numbers = numbers.unsqueeze(1)
        size = [len(numbers), 1, *numbers.shape[-2:]]
        grid = functional.affine_grid(self.theta, size, align_corners=False).to(numbers.dtype)
        mode = "bilinear" if smooth else "nearest"
        found = functional.grid_sample(numbers, grid, mode=mode, padding_mode="border", align_corners=False)
        found = found.squeeze(1) if maps.ndim == 3 else found
        if maps.is_floating_point():
            return found
        return found.round().to(maps.dtype)


class _Shift:
    """[B, C, H, W] or [B, H, W], moved by whole pixels, at most an eighth of each side, and then mirrored. Images come
    out of black, maps out of no label."""

    def __init__(self, flipped: Tensor, place: Tensor) -> None:
        self.flipped, self.place = flipped, place

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor:
        whole = maps if maps.ndim == 4 else maps.unsqueeze(1)
        columns, rows = (self._from(size, place) for size, place in zip(whole.shape[:1:-1], self.place.T, strict=True))
        columns = torch.where(self.flipped[:, None], columns.flip(-1), columns)
        within = [(at >= 0) & (at < size) for at, size in ((rows, whole.shape[2]), (columns, whole.shape[3]))]
        inside = within[0][:, :, None] & within[1][:, None]
        batch = torch.arange(len(whole), device=whole.device)[:, None, None]
        rows, columns = rows.clamp(0, whole.shape[2] - 1), columns.clamp(0, whole.shape[3] - 1)
        found = whole.movedim(1, -1)[batch, rows[:, :, None], columns[:, None]].movedim(-1, 1)
        missing = 0 if smooth else math.nan if maps.is_floating_point() else MISSING_CLASS
        found = found.masked_fill(~inside[:, None], missing)
        return found if maps.ndim == 4 else found.squeeze(1)

    def _from(self, size: int, place: Tensor) -> Tensor:
        """[B, size]: where each row, or column, comes from; it may lie outside."""
        most = size // 8
        moved = (place * (2 * most + 1)).long() - most
        return torch.arange(size, device=place.device) + moved[:, None]


def _cut_out(images: Tensor, place: Tensor, mean: Sequence[float]) -> Tensor:
    """Images [B, C, H, W] with a square of half the side in the mean colour; place [B, 2] in [0, 1)² is its centre. Of
    numbers that are no bytes, and hence normalised, the mean is 0."""
    inside = []
    for size, centre in zip(images.shape[2:], place.T, strict=True):
        half = size // 4
        start = (centre * size).long()[:, None] - half
        at = torch.arange(size, device=images.device)
        inside.append((at >= start) & (at < start + 2 * half))
    square = (inside[0][:, :, None] & inside[1][:, None])[:, None]
    colour = torch.zeros(len(mean), dtype=images.dtype, device=images.device)
    if not images.is_floating_point():
        colour = torch.tensor(mean, device=images.device).round().to(images.dtype)
    return torch.where(square, colour[:, None, None], images)
