"""How much a score owes to the items of a test split: sums of each item's share, weighted as bootstrap samples are.

A replicate of the Poisson bootstrap gives every item a weight of its own, Poisson(1): about what drawing as many items
with replacement does. A weight depends on the item's place in its stream and on the replicate alone, so all methods,
seeds and workers see the same samples, and sums over workers add up. The item of a dense task is the image, of a
task of tokens the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.metrics.dense import WITHIN
from mtlscale.metrics.entities import entity_counts, f1_of
from mtlscale.metrics.tasks import present_rows, read_pooled, rows_of, values_of
from mtlscale.spec import MISSING_CLASS, Task

_COUNTED = ("miou", "entity_f1")  # read off counts
_CHANCES = [math.exp(-1.0) / math.factorial(count) for count in range(14)]  # of Poisson(1)


def poisson_weights(seed: int, index: Tensor, replicates: int) -> Tensor:
    """[n, replicates] float64 weights of the items at places `index` [n] of a stream; seed: of the stream."""
    places = _mixed(index.to(torch.int64) + seed)
    numbers = torch.arange(1, replicates + 1, device=index.device) * _signed(0x9E3779B97F4A7C15)
    uniform = _shifted(_mixed(places.unsqueeze(-1) + numbers), 11).double() * 2.0**-53
    bounds = torch.tensor(_CHANCES, dtype=torch.float64, device=index.device).cumsum(0)
    return torch.bucketize(uniform, bounds, right=True).double()


def resampled(task: Task) -> bool:
    """Whether the task's main metric can be read off sums over items."""
    return _main(task) in _COUNTED or _main(task) in _ROWS or read_pooled(_main(task)) is not None


def vectorised(task: Task) -> bool:
    """Whether `item_sums` runs under vmap."""
    return _main(task) not in _COUNTED


def item_sums(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Each item's share of the sums that the main metric is read off [n, sums], float64: a numerator and a count, a
    confusion matrix, counts of entities. prediction [n, outputs, ...], target [n, ...] as `TaskMetrics` takes them."""
    items = len(target)
    if _main(task) == "entity_f1":
        return entity_counts(task.classes, prediction, target).double()
    prediction, target = rows_of(task, prediction, target)
    if _main(task) == "miou":
        return _confusion(task.outputs, prediction, target, items)
    if _main(task) in _ROWS:
        values, kept = _ROWS[_main(task)](prediction, target)
    else:
        kept = present_rows(task, target)
        filled = torch.where(kept if target.ndim == kept.ndim else kept.unsqueeze(-1), target, 0)
        values = values_of(task, _main(task), prediction, filled)
    pair = torch.stack([torch.where(kept, values, 0).double(), kept.double()])
    return pair.reshape(2, items, -1).sum(-1).T


def read_sums(task: Task, sums: Tensor) -> Tensor:
    """The main metric [...] of sums over items [..., sums]; NaN without a label."""
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
    return {"miou": task.outputs**2, "entity_f1": 3}.get(_main(task), 2)


def _main(task: Task) -> str:
    return task.metrics[0]


def _confusion(classes: int, prediction: Tensor, target: Tensor, items: int) -> Tensor:
    item = torch.arange(items, device=target.device).repeat_interleave(len(target) // max(items, 1))
    kept = target != MISSING_CLASS
    cell = (item[kept] * classes + target[kept]) * classes + prediction[kept].argmax(-1)
    return torch.bincount(cell, minlength=items * classes**2).reshape(items, classes**2).double()


def _depth(relative: bool) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def values(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        kept = target > 0
        truth = torch.where(kept, target, 1).double()
        error = (prediction.double() - truth).abs()
        return (error / truth if relative else error), kept

    return values


def _angles(read: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    def values(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        kept = (target != 0).any(-1) & ~target.isnan().any(-1)
        truth = functional.normalize(torch.where(kept.unsqueeze(-1), target, 1).double(), dim=-1)
        cosine = (functional.normalize(prediction.double(), dim=-1) * truth).sum(-1)
        return read(cosine.clamp(-1.0, 1.0).arccos().rad2deg()), kept

    return values


# metrics of pixels: prediction, target [rows, outputs] -> their values, and which rows have a label
_ROWS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "abs_err": _depth(relative=False),
    "rel_err": _depth(relative=True),
    "angle_mean": _angles(lambda angle: angle),
    "angle_rmse": _angles(torch.square),
    **{f"within_{bound:g}": _angles(lambda angle, bound=bound: angle < bound) for bound in WITHIN},  # type: ignore[misc]
}


def _mixed(value: Tensor) -> Tensor:
    """splitmix64 of every int64: as good as random, and the same on every device."""
    value = value + _signed(0x9E3779B97F4A7C15)
    value = (value ^ _shifted(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shifted(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shifted(value, 31)


def _shifted(value: Tensor, bits: int) -> Tensor:
    """To the right, zeros coming in."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant
