"""CGC: experts shared by all tasks and experts of each task, mixed per task by a gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.experts.ple import PLEModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class CGC(Architecture):
    """Customised gate control: like `mmoe`, but each task's gate sees only the shared experts and the task's own."""

    name: ClassVar[str] = "cgc"
    source: ClassVar[str] = "Tang et al., RecSys 2020"
    batchable: ClassVar[bool] = True

    own: int = knob(1, low=1, search=(1, 2, 4), help="experts of each task")
    shared: int = knob(2, low=1, search=(1, 2, 4), help="shared experts")
    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of an expert")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return PLEModule(suite, encoder(), 1, self.own, self.shared, self.top, dropout)
