"""Random augmentation of training images together with their maps, a pure function of run, epoch and sample.

A run that is resumed therefore sees the same images again, and the number of workers does not matter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError
from mtlscale.data import Samples
from mtlscale.training.seeds import derive_seed

SCALES = (1.0, 1.2, 1.5)  # scales of MTAN's random scale and crop
_DEPTHS = {"abs_err", "rel_err"}  # metrics by which a map of numbers is recognised as depth
_GRAY = 127.5  # the mean colour of a data set that states none
_INVERSE = ("inverse", "disparity")  # parts of names of inverse tasks; a suite may name them in extras["inverse"], too


class Augment:
    """Augmentation of image samples together with their targets.

    `flip` mirrors left and right with probability ½. `scale_crop` does the same and takes a random crop of 1, 1/1.2 or
    1/1.5 of each side, enlarged to the size of the image. `shift` flips, and moves the image by up to an eighth of its
    sides over black (4 of CIFAR's 32 pixels: its usual padding and random crop). `shift_cutout` shifts, and fills a
    square of half the side, a part of which may lie outside the image, with the mean colour.

    Images are interpolated bilinearly; maps take the nearest pixel. Where the scene comes nearer by a scale, depth is
    divided by it (inverse depth multiplied); where it is mirrored, the x component of normals changes its sign. Targets
    without spatial dimensions stay as they are; where a map is moved, the pixels that come in have no label.
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
        """Return the augmentation of a run's images; None where the run has none."""
        return None if kind == "none" else cls(kind, suite, derive_seed("augment", seed))

    def __call__(self, samples: Samples, stream: str, epoch: int, index: Tensor) -> Samples:
        """Augment the samples that have the indices `index` [B] in their stream, as this epoch has it."""
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
            centres = [self.draws(stream, epoch, i, "cutout")[:2] for i in index.tolist()]
            inputs = _cut_out(inputs, torch.tensor(centres, dtype=torch.float64, device=inputs.device), self.mean)

        targets = {
            name: self._target(self.tasks[name], t, change, flipped, scale) for name, t in samples.targets.items()
        }
        return Samples(inputs, targets, samples.weights)

    def draws(self, stream: str, epoch: int, index: int, what: str = "augment") -> list[float]:
        """Return four numbers in [0, 1) for a sample: flip, scale, and the crop's position."""
        digest = hashlib.blake2b(f"{what}/{self.seed}/{epoch}/{stream}/{index}".encode(), digest_size=32).digest()
        return [(int.from_bytes(digest[i : i + 8], "big") >> 11) / 2.0**53 for i in range(0, 32, 8)]

    def _target(self, task: Task, target: Tensor, change: Change, flipped: Tensor, scale: Tensor) -> Tensor:
        if target.ndim < 3:
            return target

        changed = change(target, smooth=False)
        if task.loss == "cosine":
            sign = torch.ones(len(changed), 3, dtype=changed.dtype, device=changed.device)
            sign[:, 0] -= 2.0 * flipped
            return changed * sign[:, :, None, None]
        if _DEPTHS & set(task.metrics):
            nearer = scale if task.name in self.inverse else 1.0 / scale
            return changed * nearer.to(changed.dtype).reshape(-1, *[1] * (changed.ndim - 1))
        return changed


class Change(Protocol):
    """Protocol of one change of every sample [B] of images, or of maps."""

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor: ...


class _Flip:
    """Reversal of the columns of some samples in [B, ..., W]."""

    def __init__(self, flipped: Tensor) -> None:
        self.flipped = flipped

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor:
        return torch.where(self.flipped.reshape(-1, *[1] * (maps.ndim - 1)), maps.flip(-1), maps)


class _Crop:
    """Crop of [B, C, H, W] or [B, H, W] to 1 / scale of the sides, at a position in [0, 1)², enlarged to full size."""

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
        sampled = functional.grid_sample(numbers, grid, mode=mode, padding_mode="border", align_corners=False)
        sampled = sampled.squeeze(1) if maps.ndim == 3 else sampled
        if maps.is_floating_point():
            return sampled
        return sampled.round().to(maps.dtype)


class _Shift:
    """Shift of [B, C, H, W] or [B, H, W] by whole pixels, at most an eighth of each side, followed by mirroring.

    Pixels that come in are black in images and have no label in maps.
    """

    def __init__(self, flipped: Tensor, place: Tensor) -> None:
        self.flipped, self.place = flipped, place

    def __call__(self, maps: Tensor, smooth: bool) -> Tensor:
        with_channels = maps if maps.ndim == 4 else maps.unsqueeze(1)
        columns, rows = (
            self._from(size, shift) for size, shift in zip(with_channels.shape[:1:-1], self.place.T, strict=True)
        )
        columns = torch.where(self.flipped[:, None], columns.flip(-1), columns)
        inside_axes = [
            (positions >= 0) & (positions < size)
            for positions, size in ((rows, with_channels.shape[2]), (columns, with_channels.shape[3]))
        ]
        inside = inside_axes[0][:, :, None] & inside_axes[1][:, None]

        batch = torch.arange(len(with_channels), device=with_channels.device)[:, None, None]
        rows, columns = rows.clamp(0, with_channels.shape[2] - 1), columns.clamp(0, with_channels.shape[3] - 1)
        shifted = with_channels.movedim(1, -1)[batch, rows[:, :, None], columns[:, None]].movedim(-1, 1)

        missing = 0 if smooth else math.nan if maps.is_floating_point() else MISSING_CLASS
        shifted = shifted.masked_fill(~inside[:, None], missing)
        return shifted if maps.ndim == 4 else shifted.squeeze(1)

    def _from(self, size: int, place: Tensor) -> Tensor:
        """Return [B, size]: the row, or column, that each one comes from; it may lie outside the image."""
        limit = size // 8
        offset = (place * (2 * limit + 1)).long() - limit
        return torch.arange(size, device=place.device) + offset[:, None]


def _cut_out(images: Tensor, place: Tensor, mean: Sequence[float]) -> Tensor:
    """Fill a square of half the side around `place` [B, 2], in [0, 1)², with the mean colour (0 if normalised)."""
    inside = []
    for size, centre in zip(images.shape[2:], place.T, strict=True):
        half = size // 4
        start = (centre * size).long()[:, None] - half
        positions = torch.arange(size, device=images.device)
        inside.append((positions >= start) & (positions < start + 2 * half))

    square = (inside[0][:, :, None] & inside[1][:, None])[:, None]
    colour = torch.zeros(len(mean), dtype=images.dtype, device=images.device)
    if not images.is_floating_point():
        colour = torch.tensor(mean, device=images.device).round().to(images.dtype)

    return torch.where(square, colour[:, None, None], images)
