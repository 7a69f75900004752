"""Base classes of metric accumulators: sums that are added up over workers, or all samples gathered from them."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Accumulator(Protocol):
    """The interface of a metric accumulator, which is fed with rows, one per sample or pixel.

    Rows are a prediction [n, outputs] with classes [n], or with numbers [n, outputs]. Labels may be missing among them
    (`MISSING_CLASS`, NaN); n may be 0.
    """

    def to(self, device: torch.device | str) -> Any: ...

    def reset(self) -> None: ...

    def update(self, prediction: Tensor, target: Tensor) -> None: ...

    def compute(self) -> Any:
        """Return the metric over all samples that all workers have seen since the last `reset`."""
        ...


class SumsAccumulator:
    """Base of accumulators with one vector of sums or counts, added up over workers."""

    def __init__(self, size: int, dtype: torch.dtype = torch.float64) -> None:
        self.sums = torch.zeros(size, dtype=dtype)

    def to(self, device: torch.device | str) -> SumsAccumulator:
        self.sums = self.sums.to(device)
        return self

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Add the rows of a batch.

        Args:
            prediction: [n, outputs].
            target: [n] classes or [n, outputs] numbers, some of them missing.
        """
        raise NotImplementedError

    def compute(self) -> Any:
        """Return the metric, or several metrics by name; NaN without a label. All workers have to call it."""
        raise NotImplementedError


class GatheredScores:
    """Base of accumulators that gather all scores and labels of the split from all workers.

    For metrics that no sum determines, such as ranks.
    """

    def __init__(self) -> None:
        self.scores: list[Tensor] = []  # [n, ...] float64
        self.labels: list[Tensor] = []  # [n, ...]

    def to(self, device: torch.device | str) -> GatheredScores:
        self.scores = [batch.to(device) for batch in self.scores]
        self.labels = [batch.to(device) for batch in self.labels]
        return self

    def reset(self) -> None:
        self.scores, self.labels = [], []

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Add the rows of a batch.

        Args:
            prediction: [n, outputs].
            target: [n] classes or [n, outputs] numbers, some of them missing.
        """
        self.scores.append(prediction.double())
        self.labels.append(target)

    def compute(self) -> float:
        return self.value(gathered(self.scores), gathered(self.labels))

    def value(self, scores: Tensor, labels: Tensor) -> float:
        """Return the metric of the whole split; NaN if it is not defined."""
        raise NotImplementedError


def over_workers(sums: Tensor) -> Tensor:
    """Return a copy of the sums, summed over workers if there are several."""
    total = sums.clone()
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(total)
    return total


def of_workers(state: Tensor) -> list[Tensor]:
    """Return every worker's tensor, in the order of their ranks; all have the same shape."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [state]
    states = [torch.empty_like(state) for _ in range(dist.get_world_size())]
    dist.all_gather(states, state)
    return states


def gathered(batches: list[Tensor]) -> Tensor:
    """Return the rows of all batches of all workers, in the order of their ranks.

    Args:
        batches: At least one tensor [n, ...]; n may differ, the rest may not.
    """
    own = torch.cat(batches)
    lengths = [int(length) for length in of_workers(torch.tensor(len(own), device=own.device))]

    padded = own.new_zeros(max(lengths), *own.shape[1:])
    padded[: len(own)] = own
    return torch.cat([rows[:length] for rows, length in zip(of_workers(padded), lengths, strict=True)])
