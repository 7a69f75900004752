"""Projected gradient ascent (PGD) on the loss, inside a ball around every image and the range of pixels.

It is the attack of Madry et al., ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite
from mtlscale.encoders import add_pixels, normalised

PIXEL = 255.0


@dataclass(frozen=True)
class Pixels:
    """Normalisation of pixel bytes: floating-point numbers minus channel means, over deviations, [C, 1, 1] each."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, suite: TaskSuite, dtype: torch.dtype, device: torch.device) -> Pixels:
        """Return the normalisation that encoders apply to the suite's images."""
        holder = nn.Module()
        add_pixels(holder, suite)
        holder = holder.to(device, dtype)
        return cls(holder.get_buffer("mean"), holder.get_buffer("std"))

    @classmethod
    def raw(cls, suite: TaskSuite, dtype: torch.dtype, device: torch.device) -> Pixels:
        """Return the identity: bytes as floating-point numbers, without normalisation."""
        zero = torch.zeros(suite.input_shape[0], 1, 1, dtype=dtype, device=device)
        return cls(zero, zero + 1.0)

    def __call__(self, images: Tensor) -> Tensor:
        return normalised(images, self.mean, self.std)

    @property
    def range(self) -> tuple[Tensor, Tensor]:
        """The least and the greatest value that a pixel can have, by channel."""
        return (0.0 - self.mean) / self.std, (PIXEL - self.mean) / self.std

    def length(self, in_255ths: float) -> Tensor:
        """Convert a length in 255ths of the pixel range to normalised units, by channel."""
        return in_255ths / self.std


def pgd(
    loss: Callable[[Tensor], Tensor], images: Tensor, pixels: Pixels, epsilon: float, steps: int, step: float
) -> Tensor:
    """Return the images after projected gradient ascent along the sign of the gradient of `loss`.

    The result is never further from the images than `epsilon`, nor outside the range of pixels. There is no random
    start.

    Args:
        loss: maps images to a loss summed over them.
        images: [B, C, H, W], normalised by `pixels`.
        epsilon: radius of the ball, in 255ths.
        step: length of one step, in 255ths.
    """
    low, high = pixels.range
    radius, length = pixels.length(epsilon), pixels.length(step)

    attacked = images
    for _ in range(steps):
        leaf = attacked.detach().requires_grad_()
        with torch.enable_grad():
            value = loss(leaf)
            if not value.requires_grad:
                return images  # the loss does not depend on the images
            (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True)
        if gradient is None:
            return images

        moved = attacked + length * gradient.sign()
        attacked = moved.clamp(images - radius, images + radius).clamp(low, high)

    return attacked.detach()
