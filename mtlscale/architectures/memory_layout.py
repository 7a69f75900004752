"""The memory layout of a network's weights."""

from __future__ import annotations

import torch
from torch import nn


def channels_last(model: nn.Module) -> None:
    """Lay out the kernels [out, in, h, w] of image convolutions with their channels last, in place.

    Other tensors, such as the weights of several operations at once, stay as they are.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
