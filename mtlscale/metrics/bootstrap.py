"""Bootstrap of a score over the items of a test split, from weighted sums of each item's contribution.

A replicate of the Poisson bootstrap gives every item a weight of its own, Poisson(1), which approximates drawing as
many items with replacement. A weight depends only on the item's position in its stream and on the replicate, so all
methods, seeds and workers see the same samples, and sums over workers add up. The item of a dense task is the image, of
a task of tokens the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.dense import WITHIN
from mtlscale.metrics.entities import entity_counts, f1_of
from mtlscale.metrics.tasks import present_rows, read_pooled, rows_of, values_of

_COUNTED = ("miou", "entity_f1")  # computed from counts
_CHANCES = [math.exp(-1.0) / math.factorial(count) for count in range(14)]  # probabilities of Poisson(1)


def poisson_weights(seed: int, index: Tensor, replicates: int) -> Tensor:
    """Return the [n, replicates] float64 weights of items.

    Args:
        index: [n] positions of the items in the stream.
    """
    item_keys = _mixed(index.to(torch.int64) + seed)
    numbers = torch.arange(1, replicates + 1, device=index.device) * _signed(0x9E3779B97F4A7C15)
    uniform = _shifted(_mixed(item_keys.unsqueeze(-1) + numbers), 11).double() * 2.0**-53
    bounds = torch.tensor(_CHANCES, dtype=torch.float64, device=index.device).cumsum(0)
    return torch.bucketize(uniform, bounds, right=True).double()


def resampled(task: Task) -> bool:
    """Return whether the task's main metric can be computed from sums over items."""
    return _main(task) in _COUNTED or _main(task) in _ROWS or read_pooled(_main(task)) is not None


def vectorised(task: Task) -> bool:
    """Return whether `item_sums` runs under vmap."""
    return _main(task) not in _COUNTED


def item_sums(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Return each item's contribution to the sums of the main metric, float64 [n, sums].

    The sums are a numerator and a count, a confusion matrix, or counts of entities.

    Args:
        prediction: [n, outputs, ...].
        target: [n, ...] as `TaskMetrics` takes it.
    """
    items = len(target)
    if _main(task) == "entity_f1":
        return entity_counts(task.classes, prediction, target).double()

    prediction, target = rows_of(task, prediction, target)
    if _main(task) == "miou":
        return _confusion(task.outputs, prediction, target, items)

    if _main(task) in _ROWS:
        values, present = _ROWS[_main(task)](prediction, target)
    else:
        present = present_rows(task, target)
        filled = torch.where(present if target.ndim == present.ndim else present.unsqueeze(-1), target, 0)
        values = values_of(task, _main(task), prediction, filled)

    pair = torch.stack([torch.where(present, values, 0).double(), present.double()])
    return pair.reshape(2, items, -1).sum(-1).T


def read_sums(task: Task, sums: Tensor) -> Tensor:
    """Return the main metric [...] of sums over items [..., sums]; NaN without a label."""
    if _main(task) == "miou":
        matrix = sums.unflatten(-1, (task.outputs, task.outputs))
        hit = matrix.diagonal(dim1=-2, dim2=-1)
        union = matrix.sum(-1) + matrix.sum(-2) - hit
        return 100.0 * torch.where(union > 0, hit / union, math.nan).nanmean(-1)

    if _main(task) == "entity_f1":
        return 100.0 * f1_of(sums)

    means = sums[..., 0] / sums[..., 1]
    if _main(task).startswith("within_"):
        return 100.0 * means
    if _main(task) in _ROWS:
        return means.sqrt() if _main(task) == "angle_rmse" else means

    read = read_pooled(_main(task))
    assert read is not None
    return torch.tensor([read(mean) for mean in means.flatten().tolist()], dtype=torch.float64).reshape(means.shape)


def sums_per_item(task: Task) -> int:
    """Return the number of sums that `item_sums` gives for each item."""
    return {"miou": task.outputs**2, "entity_f1": 3}.get(_main(task), 2)


def _main(task: Task) -> str:
    return task.metrics[0]


def _confusion(classes: int, prediction: Tensor, target: Tensor, items: int) -> Tensor:
    item = torch.arange(items, device=target.device).repeat_interleave(len(target) // max(items, 1))
    present = target != MISSING_CLASS
    cells = (item[present] * classes + target[present]) * classes + prediction[present].argmax(-1)
    return torch.bincount(cells, minlength=items * classes**2).reshape(items, classes**2).double()


def _depth(relative: bool) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def values(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        valid = target > 0
        truth = torch.where(valid, target, 1).double()
        error = (prediction.double() - truth).abs()
        return (error / truth if relative else error), valid

    return values


def _angles(read: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def values(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        valid = (target != 0).any(-1) & ~target.isnan().any(-1)
        truth = functional.normalize(torch.where(valid.unsqueeze(-1), target, 1).double(), dim=-1)
        cosine = (functional.normalize(prediction.double(), dim=-1) * truth).sum(-1)
        return read(cosine.clamp(-1.0, 1.0).arccos().rad2deg()), valid

    return values


# metrics of pixels: prediction, target [rows, outputs] -> values, and the mask of rows with a label
_ROWS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "abs_err": _depth(relative=False),
    "rel_err": _depth(relative=True),
    "angle_mean": _angles(lambda angle: angle),
    "angle_rmse": _angles(torch.square),
    **{f"within_{bound:g}": _angles(lambda angle, bound=bound: angle < bound) for bound in WITHIN},  # type: ignore[misc]
}


def _mixed(value: Tensor) -> Tensor:
    """Apply splitmix64 to every int64; the numbers are pseudo-random, and the same on every device."""
    value = value + _signed(0x9E3779B97F4A7C15)
    value = (value ^ _shifted(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shifted(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shifted(value, 31)


def _shifted(value: Tensor, bits: int) -> Tensor:
    """Shift right, filling with zeros."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant
