"""Encoders with residual blocks after their last stage, for networks with as many parameters as larger ones."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from mtlscale.architectures.contract import map_staged
from mtlscale.encoders import EncoderModule, residual_block


def deeper(encoder: Callable[[], EncoderModule], blocks: int, name: str) -> Callable[[], EncoderModule]:
    """Return a maker of encoders whose last stage ends with `blocks` extra bottleneck blocks of the same width."""

    def make() -> EncoderModule:
        module = map_staged(encoder(), name)
        width = module.widths[-1]
        extra_blocks = (residual_block(width, width, project=False) for _ in range(blocks))
        module.stages[-1] = nn.Sequential(module.stages[-1], *extra_blocks)
        return module

    return make
