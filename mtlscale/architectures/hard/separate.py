"""Separate networks in the form of Shared-bottom."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.hard.stl import STLModule
from mtlscale.architectures.towers import tower
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class Separate(Architecture):
    """Separate networks: encoder and top of `shared_bottom`, one of each per task, nothing shared."""

    name: ClassVar[str] = "separate"
    source: ClassVar[str] = "baseline of TOMATO (Zhang & Lee, CIKM 2020)"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the tops' hidden layer")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return STLModule(suite, encoder, dropout, partial(tower, width=self.top))
