from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.architectures._deeper import deeper
from mtlscale.architectures.hps import HPS
from mtlscale.encoders import EncoderModule
from mtlscale.spec import TaskSuite, knob


class HPSPlus(HPS):
    """HPS+: hard parameter sharing with residual blocks after the last stage, to be as large as a branched network.

    Blocks are bottlenecks of the last stage's width with an identity shortcut. Needs an encoder with stages of maps.
    """

    name: ClassVar[str] = "hps_plus"
    source: ClassVar[str] = "Yue et al., AAAI 2023, as the reference of CoNAL+"
    batchable: ClassVar[bool] = False
    needs_stages: ClassVar[bool] = True

    blocks: int = knob(5, low=1, help="residual blocks after the last stage")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return super().build(suite, deeper(encoder, self.blocks, self.name), dropout)
