"""Rows of a batch as metrics see them: one per sample, or one per pixel or token."""

from __future__ import annotations

import math

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.lazy import Tensor, torch


def rows_of(task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return one row per sample (or pixel): prediction [n, outputs] with classes [n], or with floats [n, outputs].

    Floats are NaN where absent, and in the unit of metrics (`Task.scale`). Half precision becomes float32.
    """
    if prediction.dtype in (torch.float16, torch.bfloat16):
        prediction = prediction.float()

    if task.loss == "cross_entropy":
        return prediction.movedim(1, -1).reshape(-1, task.outputs), target.reshape(-1).long()

    if not target.is_floating_point():
        target = torch.where(target == MISSING_CLASS, math.nan, target.to(prediction.dtype))
    if prediction.numel() != target.numel():
        raise ValueError(
            f"task {task.name!r}: prediction {list(prediction.shape)} and target {list(target.shape)} differ in size"
        )

    if target.shape == prediction.shape and target.ndim > 2:
        prediction, target = prediction.movedim(1, -1), target.movedim(1, -1)
    if task.scale != 1.0:
        prediction, target = prediction * task.scale, target * task.scale
    return prediction.reshape(-1, task.outputs), target.reshape(-1, task.outputs)


def present_rows(task: Task, target: Tensor) -> Tensor:
    """Return the mask of the rows, or of the single entries, whose label is present."""
    if task.loss == "cross_entropy":
        return target != MISSING_CLASS
    if task.loss in ("soft_cross_entropy", "cosine", "welsch"):  # of several numbers, present or missing as a whole
        return ~target.isnan().any(-1)
    return ~target.isnan()


def filled(target: Tensor, present: Tensor) -> Tensor:
    """Return the target with 0 where no label is present, so that predictions under vmap need no selection."""
    return torch.where(present if target.ndim == present.ndim else present.unsqueeze(-1), target, 0)


def blank_batch(task: Task, samples: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Return a prediction and a target of zeros, of the types that a worker's batches have."""
    prediction = torch.zeros(samples, task.outputs, device=device)
    return prediction, prediction[:, 0].long() if task.loss == "cross_entropy" else prediction
