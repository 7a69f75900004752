"""Accumulators of what metrics pool over the batches of a split and over workers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from mtlscale.lazy import Tensor, torch


class Accumulator(Protocol):
    """The interface of an accumulator, which is fed with the rows of `Metric.sums`."""

    def to(self, device: torch.device | str) -> Any: ...

    def reset(self) -> None: ...

    def update(self, *rows: Any) -> None: ...

    def compute(self) -> Any:
        """Return what all workers have pooled since the last `reset`; all of them have to call it."""
        ...


class Sums:
    """Accumulator of what `sums` returns for rows, which `merge` adds up over batches and workers."""

    def __init__(self, sums: Callable[..., Any], merge: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.sums, self.merge = sums, merge
        self.total: Tensor | None = None

    def to(self, device: torch.device | str) -> Sums:
        self.total = None if self.total is None else self.total.to(device)
        return self

    def reset(self) -> None:
        self.total = None

    def update(self, *rows: Any) -> None:
        added = self.sums(*rows)
        added = added.double() if added.is_floating_point() else added
        self.total = added if self.total is None else self.merge(self.total, added)

    def compute(self) -> Tensor:
        assert self.total is not None
        return functools.reduce(self.merge, of_workers(self.total))


class Scores:
    """Accumulator of the pairs that `scores` returns for rows, which are gathered from all batches and workers."""

    def __init__(self, scores: Callable[..., tuple[Tensor, Tensor]]) -> None:
        self.scores = scores
        self.batches: list[tuple[Tensor, Tensor]] = []

    def to(self, device: torch.device | str) -> Scores:
        self.batches = [(scores.to(device), labels.to(device)) for scores, labels in self.batches]
        return self

    def reset(self) -> None:
        self.batches = []

    def update(self, *rows: Any) -> None:
        self.batches.append(self.scores(*rows))

    def compute(self) -> tuple[Tensor, Tensor]:
        scores, labels = zip(*self.batches, strict=True)
        return gathered(scores), gathered(labels)


def over_workers(sums: Tensor) -> Tensor:
    """Return a copy of the sums, summed over workers if there are several."""
    return torch.stack(of_workers(sums)).sum(0)


def of_workers(state: Tensor) -> list[Tensor]:
    """Return every worker's tensor, in the order of their ranks; all have the same shape."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [state]
    states = [torch.empty_like(state) for _ in range(dist.get_world_size())]
    dist.all_gather(states, state)
    return states


def gathered(batches: tuple[Tensor, ...]) -> Tensor:
    """Return the rows of all batches of all workers, in the order of their ranks.

    Args:
        batches: At least one tensor [n, ...]; n may differ, the rest may not.
    """
    own = torch.cat(batches)
    lengths = [int(length) for length in of_workers(torch.tensor(len(own), device=own.device))]

    padded = own.new_zeros(max(lengths), *own.shape[1:])
    padded[: len(own)] = own
    return torch.cat([rows[:length] for rows, length in zip(of_workers(padded), lengths, strict=True)])
