"""CoNAL+, the larger form of CoNAL."""

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.branching.conal import CoNAL
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.extra_blocks import AFTER_HELP, deeper
from mtlscale.architectures.phases import PhaseOutput
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class CoNALPlus(CoNAL):
    """CoNAL+: CoNAL with extra residual blocks, to be as large as single-task networks.

    Every encoder has them, in the search and in the training. Blocks are bottlenecks of their stage's width with an
    identity shortcut. The method needs an encoder with stages of maps.
    """

    name: ClassVar[str] = "conal_plus"
    needs_stages: ClassVar[bool] = True

    blocks: int = knob(3, low=1, help="extra residual blocks")
    after: int | None = knob(None, low=1, later=True, help=AFTER_HELP)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return super().build(suite, deeper(encoder, self.blocks, self.after, self.name), dropout)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        return super().build_next(phase, found, suite, deeper(encoder, self.blocks, self.after, self.name), dropout)
