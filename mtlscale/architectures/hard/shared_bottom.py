"""Hard parameter sharing with tops of the tasks' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.hard.hps import HPSModule
from mtlscale.architectures.towers import tower
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class SharedBottom(Architecture):
    """Shared-bottom: one encoder for all tasks, one top with a hidden layer per task."""

    name: ClassVar[str] = "shared_bottom"
    source: ClassVar[str] = "Caruana 1997; baseline of TOMATO (Zhang & Lee, CIKM 2020)"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the tops' hidden layer")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return HPSModule(suite, encoder(), dropout, partial(tower, width=self.top))
