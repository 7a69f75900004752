"""Encoders with residual blocks after one of their stages, for networks with as many parameters as larger ones."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from mtlscale.architectures.contract import map_staged
from mtlscale.config import UserError
from mtlscale.encoders import EncoderModule, residual_block

AFTER_HELP = "the stage, from 1, that these blocks end; none: the last"


def deeper(
    encoder: Callable[[], EncoderModule], blocks: int, after: int | None, name: str
) -> Callable[[], EncoderModule]:
    """Return a maker of encoders in which a stage, by default the last, ends with extra blocks of its width."""

    def make() -> EncoderModule:
        module = map_staged(encoder(), name)
        stages = len(module.stages)
        if after is not None and after > stages:
            raise UserError(f"{name}: after = {after} is outside 1..{stages}, the stages of this encoder")

        index = (after or stages) - 1
        width = module.widths[index]
        extra_blocks = (residual_block(width, width, project=False) for _ in range(blocks))
        module.stages[index] = nn.Sequential(module.stages[index], *extra_blocks)
        return module

    return make
