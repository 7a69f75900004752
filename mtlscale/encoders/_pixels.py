"""Pixels as networks read them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtlscale.spec import TaskSuite

_MEAN, _STD = 127.5, 64.0  # where a data set says nothing


def add_pixels(module: nn.Module, suite: TaskSuite) -> None:
    """Give a module the data set's mean and deviation of each channel, as buffers `mean` and `std`."""
    channels = suite.input_shape[0]
    for name, default in (("mean", _MEAN), ("std", _STD)):
        values = torch.tensor(suite.extras.get(name) or [default] * channels)
        # Data, not state: a checkpoint goes with its data set.
        module.register_buffer(name, values.reshape(-1, 1, 1), persistent=False)


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes [B, channels, H, W] with these means and deviations taken off; floating-point inputs as they are."""
    if pixels.is_floating_point():
        return pixels
    return (pixels.to(mean.dtype) - mean) / std
