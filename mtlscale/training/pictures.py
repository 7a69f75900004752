"""Predictions beside truth, where tasks have maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, Samples
from mtlscale.spec import TaskSuite
from mtlscale.training.batches import Batches, on_device


@dataclass(frozen=True)
class Pictures:
    """Images [N, ...] as they are stored, and for each task with maps the prediction and the truth, on the host."""

    images: Tensor
    maps: dict[str, tuple[Tensor, Tensor]]


@torch.no_grad()
def pictures(
    model: MultiTaskModule, suite: TaskSuite, split: Mapping[str, Samples], batches: Batches, count: int
) -> Pictures | None:
    """Images evenly spread over a split; None where no task has maps."""
    samples = split.get("all")
    if samples is None or suite.input_kind != "image":
        return None
    names = [name for name, target in samples.targets.items() if target.ndim >= 3]
    if not names or not len(samples):
        return None
    index = torch.linspace(0, len(samples) - 1, min(count, len(samples))).round().long()
    chosen = on_device({"all": samples.take(index)}, batches.device, batches.dtype)["all"]
    model.eval()
    found = model(Batch("all", chosen, len(index))).predictions
    return Pictures(samples.inputs[index], {name: (found[name].cpu(), samples.targets[name][index]) for name in names})
