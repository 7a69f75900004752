"""Networks of suites whose tasks have a label for every token: features are rows, a token each, as of any vectors."""

from __future__ import annotations

from typing import Any

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.data import Batch, Outputs
from mtlscale.spec import TaskSuite


def of_tokens(model: MultiTaskModule, suite: TaskSuite) -> MultiTaskModule:
    """The network, whose predictions of sequences [B, L, ...] come as [B, outputs, L] instead of [B L, outputs] where
    the suite's tasks are per token; the representation stays one of rows."""
    if suite.per_token:
        model.register_forward_hook(_in_sequences)
    return model


def _in_sequences(model: Any, given: tuple[Batch], outputs: Outputs) -> Outputs:
    shape = given[0].inputs.shape[:2]
    predictions = {name: rows.unflatten(0, shape).movedim(-1, 1) for name, rows in outputs.predictions.items()}
    return Outputs(predictions, outputs.representation, outputs.branches)
