"""HPS+, the larger form of hard parameter sharing."""

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.extra_blocks import AFTER_HELP, deeper
from mtlscale.architectures.hard.hps import HPS
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class HPSPlus(HPS):
    """HPS+: hard parameter sharing with extra residual blocks, to be as large as a branched network.

    Blocks are bottlenecks of their stage's width with an identity shortcut. The method needs an encoder with stages
    of maps.
    """

    name: ClassVar[str] = "hps_plus"
    source: ClassVar[str] = "Yue et al., AAAI 2023, as the reference of CoNAL+"
    batchable: ClassVar[bool] = False
    needs_stages: ClassVar[bool] = True

    blocks: int = knob(5, low=1, help="extra residual blocks")
    after: int | None = knob(None, low=1, later=True, help=AFTER_HELP)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return super().build(suite, deeper(encoder, self.blocks, self.after, self.name), dropout)
