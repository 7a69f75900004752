"""Shared-bottom: one encoder for all tasks, and a top of its own, with a hidden layer, for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.architectures._towers import tower
from mtlscale.architectures.hps import HPSModule
from mtlscale.encoders import EncoderModule
from mtlscale.spec import TaskSuite, knob


class SharedBottom(Architecture):
    """Shared-bottom: one encoder for all tasks, one top with a hidden layer per task."""

    name: ClassVar[str] = "shared_bottom"
    source: ClassVar[str] = "Caruana 1997; baseline of TOMATO (Zhang & Lee, CIKM 2020)"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the tops' hidden layer")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return HPSModule(suite, encoder(), dropout, partial(tower, width=self.top))
