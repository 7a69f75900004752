"""Bootstrap of a score over the items of a test split, from weighted sums of each item's contribution.

A replicate of the Poisson bootstrap gives every item a weight of its own, Poisson(1), which approximates drawing as
many items with replacement. A weight depends only on the item's position in its stream and on the replicate, so all
methods, seeds and workers see the same samples, and sums over workers add up. The item of a dense task is the image, of
a task of tokens the sequence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mtlscale.config import Task
from mtlscale.metrics.contract import Mean, Metric
from mtlscale.metrics.names import metric_named
from mtlscale.metrics.rows import blank_batch, rows_of

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
    return type(_main(task)).item_sums is not Metric.item_sums


def vectorised(task: Task) -> bool:
    """Return whether `item_sums` runs under vmap."""
    return isinstance(_main(task), Mean)


def item_sums(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Return each item's contribution to the sums of the main metric, float64 [n, sums].

    The sums are a numerator and a count, a confusion matrix, or counts of entities.

    Args:
        prediction: [n, outputs, ...].
        target: [n, ...] as `TaskMetrics` takes it.
    """
    rows = (prediction, target) if _main(task).of_tokens else rows_of(task, prediction, target)
    return _main(task).item_sums(task, *rows, len(target))


def read_sums(task: Task, sums: Tensor) -> Tensor:
    """Return the main metric [...] of sums over items [..., sums]; NaN without a label."""
    metric = _main(task)
    found = sums.reshape(-1, sums.shape[-1])
    pooled = (found[:, 0] / found[:, 1]).tolist() if isinstance(metric, Mean) else found
    values = [metric.finish(task, part) for part in pooled]
    return torch.tensor(values, dtype=torch.float64).reshape(sums.shape[:-1])


def sums_per_item(task: Task) -> int:
    """Return the number of sums that `item_sums` gives for each item."""
    return item_sums(task, *blank_batch(task, 1)).shape[1]


def _main(task: Task) -> Metric:
    return metric_named(task.metrics[0])


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
