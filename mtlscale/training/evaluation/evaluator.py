"""The contract of evaluators, which measure a suite by more than the samples of its splits."""

from __future__ import annotations

from typing import Protocol

import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, extensions
from mtlscale.data import Workers
from mtlscale.records import Metrics


class Evaluator(Protocol):
    """Extension of the point "evaluator", such as episodes in environments."""

    def attach(self, model: MultiTaskModule) -> None:
        """Prepare the network of a phase, before its first step."""
        ...

    def with_measured(self, metrics: Metrics, model: MultiTaskModule, split: str) -> Metrics:
        """Return what was measured on a split's samples together with what this evaluator measures.

        All workers have to call it.
        """
        ...

    def counters(self) -> dict[str, int]:
        """Return counters for the run's record."""
        ...


def evaluator_of(suite: TaskSuite, workers: Workers, device: torch.device, dtype: torch.dtype) -> Evaluator | None:
    """Return the first evaluator that an extension has for a suite; None if its samples say everything."""
    for make in extensions("evaluator"):
        evaluator: Evaluator | None = make(suite, workers, device, dtype)
        if evaluator is not None:
            return evaluator
    return None
