"""Networks of suites with a label per token: features are rows, one per token, like any other vectors."""

from __future__ import annotations

from typing import Any

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs


def of_tokens(model: MultiTaskModule, suite: TaskSuite) -> MultiTaskModule:
    """Return the network, adapted to tasks per token if the suite has such tasks.

    Predictions for sequences [B, L, ...] then have shape [B, outputs, L] instead of [B L, outputs]; the representation
    keeps its rows.
    """
    if suite.per_token:
        model.register_forward_hook(_in_sequences)
    return model


def _in_sequences(model: Any, given: tuple[Batch], outputs: Outputs) -> Outputs:
    shape = given[0].inputs.shape[:2]
    predictions = {name: rows.unflatten(0, shape).movedim(-1, 1) for name, rows in outputs.predictions.items()}
    return Outputs(predictions, outputs.representation, outputs.branches)
