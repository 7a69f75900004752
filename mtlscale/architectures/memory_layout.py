"""The memory layout of a network's weights."""

from __future__ import annotations

import torch
from torch import nn

# Where a processor has AVX2 and no AVX-512, oneDNN's backward pass of a convolution of one pixel with a stride writes
# beyond its memory if channels come last and are fewer than the eight that a register holds (torch 2.13).
_LEAST_CHANNELS = 8


def channels_last(model: nn.Module) -> None:
    """Lay out the kernels [out, in, h, w] of image convolutions with their channels last, in place.

    Other tensors, such as the weights of several operations at once, stay as they are. So do all of a network in single
    precision whose strided convolutions of one pixel have fewer than eight input channels: oneDNN fails on them.
    """
    if any(_fails(module) for module in model.modules()):
        return
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def _fails(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and module.weight.dtype == torch.float32
        and module.kernel_size == (1, 1)
        and max(module.stride) > 1
        and module.weight.shape[1] < _LEAST_CHANNELS
    )
