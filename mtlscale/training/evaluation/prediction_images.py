"""Predictions beside the truth, for tasks with maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.data import Batch
from mtlscale.training.batches import Batches


@dataclass(frozen=True)
class Pictures:
    """Images [N, ...], and for each task with maps the prediction and the truth, on the host."""

    images: Tensor
    maps: dict[str, tuple[Tensor, Tensor]]


@torch.no_grad()
def pictures(
    model: MultiTaskModule, suite: TaskSuite, batches: Batches, count: int, split: str = "test"
) -> Pictures | None:
    """Return images evenly spread over a split with predictions and truth; None where no task has maps."""
    if suite.input_kind != "image" or "all" not in suite.streams:
        return None

    size = batches.reader.sizes(split)["all"]
    if not size:
        return None

    index = torch.linspace(0, size - 1, min(count, size)).round().long()
    chosen = batches.take(split, "all", index)
    names = [name for name, target in chosen.targets.items() if target.ndim >= 3]
    if not names:
        return None

    model.eval()
    predictions = model(Batch("all", chosen, len(index))).predictions
    return Pictures(
        chosen.inputs.cpu(), {name: (predictions[name].cpu(), chosen.targets[name].cpu()) for name in names}
    )
