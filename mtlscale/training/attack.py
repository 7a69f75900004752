"""Projected gradient ascent on the loss, inside a ball about every image and the range of pixels (Madry, ICLR 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtlscale.encoders import add_pixels, normalised
from mtlscale.spec import TaskSuite

PIXEL = 255.0


@dataclass(frozen=True)
class Pixels:
    """Bytes as floating-point numbers with these means and deviations of channels taken off, [C, 1, 1] each."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, suite: TaskSuite, dtype: torch.dtype, device: torch.device) -> Pixels:
        """As encoders normalise the set's."""
        holder = nn.Module()
        add_pixels(holder, suite)
        holder = holder.to(device, dtype)
        return cls(holder.get_buffer("mean"), holder.get_buffer("std"))

    @classmethod
    def raw(cls, suite: TaskSuite, dtype: torch.dtype, device: torch.device) -> Pixels:
        """As they are."""
        zero = torch.zeros(suite.input_shape[0], 1, 1, dtype=dtype, device=device)
        return cls(zero, zero + 1.0)

    def __call__(self, images: Tensor) -> Tensor:
        return normalised(images, self.mean, self.std)

    @property
    def range(self) -> tuple[Tensor, Tensor]:
        """The least and the most that a pixel can be, by channel."""
        return (0.0 - self.mean) / self.std, (PIXEL - self.mean) / self.std

    def length(self, in_255ths: float) -> Tensor:
        """So many 255ths of the range, by channel."""
        return in_255ths / self.std


def pgd(
    loss: Callable[[Tensor], Tensor], images: Tensor, pixels: Pixels, epsilon: float, steps: int, step: float
) -> Tensor:
    """The images [B, C, H, W] after so many steps along the sign of the gradient of `loss`, a sum over images: never
    further from where they were than epsilon, nor outside the range of pixels. epsilon, step: in 255ths. No random
    start."""
    low, high = pixels.range
    radius, length = pixels.length(epsilon), pixels.length(step)
    found = images
    for _ in range(steps):
        at = found.detach().requires_grad_()
        with torch.enable_grad():
            value = loss(at)
            if not value.requires_grad:
                return images  # it does not depend on them
            (gradient,) = torch.autograd.grad(value, at, allow_unused=True)
        if gradient is None:
            return images
        moved = found + length * gradient.sign()
        found = moved.clamp(images - radius, images + radius).clamp(low, high)
    return found.detach()
