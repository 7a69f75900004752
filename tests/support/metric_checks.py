"""What tests of task metrics share."""

from __future__ import annotations

import pytest
import torch

from mtlscale.config import Task
from mtlscale.metrics import task_metrics


def compute(task: Task, *batches: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    """The task's metrics over batches of (prediction, target)."""
    metrics = task_metrics(task)
    for batch in batches:
        metrics.update(*batch)
    return metrics.compute()


def same(one: dict[str, float], other: dict[str, float]) -> None:
    assert one == pytest.approx(other, rel=1e-6, abs=1e-9, nan_ok=True)
