"""DSMTL, joint learning: public encoder, private encoders, gates and heads all learn at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.branching._dsmtl import DSMTLModule
from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule


class DSMTLJoint(Architecture):
    """Deep safe multi-task learning, everything at once: a learned gate per task mixes public and private features.

    The features come from a public encoder and from one of the task's own, so that single-task learning (gate 0) and
    hard sharing (gate 1) are both within reach. Works on any encoder; `after` needs one with stages.
    """

    name: ClassVar[str] = "dsmtl_jl"
    source: ClassVar[str] = "Yue, Ye & Zhang, Deep Safe Multi-Task Learning, arXiv 2021: DSMTL-JL"

    alpha: float | None = knob(None, low=0.0, high=1.0, help="share of the public features, fixed; learned by default")
    after: int | None = knob(None, low=1, help="stage after which features mix; default: the last")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return DSMTLModule(suite, encoder, dropout, alpha=self.alpha, after=self.after)
