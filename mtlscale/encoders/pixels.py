"""Pixel normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite

_MEAN, _STD = 127.5, 64.0  # for data sets that state none


def add_pixels(module: nn.Module, suite: TaskSuite) -> None:
    """Register the data set's mean and deviation of each channel in a module, as buffers `mean` and `std`."""
    channels = suite.input_shape[0]
    for name, default in (("mean", _MEAN), ("std", _STD)):
        values = torch.tensor(suite.extras.get(name) or [default] * channels)
        # Data, not state: a checkpoint goes with its data set.
        module.register_buffer(name, values.reshape(-1, 1, 1), persistent=False)


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return bytes [B, channels, H, W] minus the mean, over the deviation; floating-point inputs stay as they are."""
    if pixels.is_floating_point():
        return pixels
    return (pixels.to(mean.dtype) - mean) / std
