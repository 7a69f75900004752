"""DSMTL, joint learning: public encoder, private encoders, gates and heads all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.architectures._dsmtl import DSMTLModule
from mtlscale.encoders import EncoderModule
from mtlscale.spec import TaskSuite, knob


class DSMTLJoint(Architecture):
    """Deep safe multi-task learning, everything at once: each task mixes the features of a public encoder and of one of
    its own by a learned gate, so that single-task learning (gate 0) and hard sharing (gate 1) are both within reach.

    Works on any encoder; `after` needs one with stages.
    """

    name: ClassVar[str] = "dsmtl_jl"
    source: ClassVar[str] = "Yue, Ye & Zhang, Deep Safe Multi-Task Learning, arXiv 2021: DSMTL-JL"

    alpha: float | None = knob(None, low=0.0, high=1.0, help="share of the public features, fixed; learned by default")
    after: int | None = knob(None, low=1, help="stage after which features mix; default: the last")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return DSMTLModule(suite, encoder, dropout, alpha=self.alpha, after=self.after)
