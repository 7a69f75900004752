"""Which samples a step sees: a pure function of the seed and the epoch, the same for any number of workers."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mtlscale.data.windows import EpochPlan, Order, Rows, cut


class EpochSampler:
    """Global batches of every stream, step by step; a task whose data run out starts over.

    An epoch is one pass over the largest stream, whose last batch may be short. A smaller stream is cut from one fresh
    permutation after another; a stream of less than a batch gives all its samples in every step. With `steps_per_epoch`
    every stream is cut that way and the epoch has that many steps.
    """

    def __init__(
        self, sizes: Mapping[str, int], batch_size: int, seed: int, *, steps_per_epoch: int | None = None
    ) -> None:
        if not sizes or min(sizes.values()) < 1 or batch_size < 1:
            raise ValueError(f"every stream needs a sample and a batch: sizes {dict(sizes)}, batch_size {batch_size}")
        self.sizes = dict(sizes)
        self.batch_size = batch_size
        self.seed = seed
        self.fixed_steps = steps_per_epoch

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.fixed_steps or -(-max(self.sizes.values()) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        """stream -> indices [≤ batch_size] (int64) of each step of this epoch, from step `start` on."""
        orders = {stream: self._order(stream, epoch) for stream in self.sizes}
        for step in range(start, self.steps):
            yield {stream: orders[stream][step * size : (step + 1) * size] for stream, size in self._batches().items()}

    def factors(self, indices: Mapping[str, Tensor]) -> dict[str, float]:
        """stream -> what the mean losses over its part of this step are multiplied by, where that is not 1."""
        return {}

    def lengths(self) -> dict[str, int]:
        """stream -> about how many samples it has in a step, rather too many."""
        return self._batches()

    def _batches(self) -> dict[str, int]:
        return {stream: min(self.batch_size, size) for stream, size in self.sizes.items()}

    def _wanted(self, stream: str) -> int:
        """How many samples this stream yields in an epoch."""
        size = self.sizes[stream]
        one_pass = self.fixed_steps is None and size == max(self.sizes.values())
        return size if one_pass else self.steps * min(self.batch_size, size)

    def _order(self, stream: str, epoch: int) -> Tensor:
        """All the indices this stream yields in the epoch, in order."""
        return _passes(self.sizes[stream], self._wanted(stream), f"{self.seed}/{epoch}/{stream}")


class PooledSampler(EpochSampler):
    """Batches of the samples of all streams together.

    An epoch is one pass over all samples, whose last batch may be short; with `steps_per_epoch` full batches are cut
    from one permutation after another. A step has every stream, those of which it has no sample with none. A batch of B
    of N samples stands for all of them: (N / B) Σ_b L_b / N_t is the sum of the streams' mean losses on average.
    """

    @property
    def steps(self) -> int:
        return self.fixed_steps or -(-sum(self.sizes.values()) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        total = sum(self.sizes.values())
        size = min(self.batch_size, total)
        wanted = total if self.fixed_steps is None else self.steps * size
        order = _passes(total, wanted, f"{self.seed}/{epoch}/pooled")
        firsts = list(itertools.accumulate(self.sizes.values(), initial=0))
        edges = torch.tensor(firsts[1:-1], dtype=torch.int64)
        for step in range(start, self.steps):
            batch = order[step * size : (step + 1) * size].sort().values
            parts = batch.tensor_split(torch.searchsorted(batch, edges))
            yield {stream: part - first for stream, part, first in zip(self.sizes, parts, firsts, strict=False)}

    def factors(self, indices: Mapping[str, Tensor]) -> dict[str, float]:
        found = {stream: len(index) for stream, index in indices.items()}
        each = sum(self.sizes.values()) / max(1, sum(found.values()))
        return {stream: count * each / self.sizes[stream] for stream, count in found.items()}

    def lengths(self) -> dict[str, int]:
        share = min(1.0, self.batch_size / sum(self.sizes.values()))
        means = {stream: size * share for stream, size in self.sizes.items()}
        return {s: min(self.sizes[s], self.batch_size, math.ceil(m + 3 * m**0.5)) for s, m in means.items()}


SAMPLERS: Mapping[str, type[EpochSampler]] = {"per_task": EpochSampler, "pooled": PooledSampler}


class WindowSampler(EpochSampler):
    """The same for a set that passes by: shuffled at two levels, by blocks and within a window of so many of them.

    starts: stream -> where its blocks begin, and the number of its samples.
    """

    def __init__(
        self, starts: Mapping[str, Rows], batch_size: int, seed: int, *, window: int, steps_per_epoch: int | None = None
    ) -> None:
        sizes = {stream: int(places[-1]) for stream, places in starts.items()}
        super().__init__(sizes, batch_size, seed, steps_per_epoch=steps_per_epoch)
        self.starts, self.window = dict(starts), window

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        slices = {stream: self._slices(self._windows(stream, epoch), stream, start) for stream in self.sizes}
        for _ in range(start, self.steps):
            yield {stream: torch.from_numpy(next(rows)) for stream, rows in slices.items()}

    def plan(self, epoch: int, start: int, world: int) -> EpochPlan:
        """What has to be read for the steps of an epoch, window by window, for so many workers."""
        orders = {stream: self._windows(stream, epoch) for stream in self.sizes}
        return EpochPlan(orders, self._batches(), start, world)

    def _slices(self, order: Order, stream: str, start: int) -> Iterator[Rows]:
        size = self._batches()[stream]
        windows = order.windows(start * size)
        first = next(windows, None)
        if first is None:
            return iter(())
        rows = (order.rows(number) for number in itertools.chain([first], windows))
        return cut(rows, size, start * size - order.span(first)[0])

    def _windows(self, stream: str, epoch: int) -> Order:
        return Order(self.starts[stream], self.window, f"{self.seed}/{epoch}/{stream}", self._wanted(stream))


def _passes(size: int, wanted: int, key: str) -> Tensor:
    """So many places of one fresh permutation after another."""
    passes = range(-(-wanted // size))
    return torch.cat([_permutation(size, f"{key}/{turn}") for turn in passes])[:wanted]


def _permutation(size: int, key: str) -> Tensor:
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest(), "big")
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def slice_for(index: Tensor, rank: int, world: int) -> Tensor:
    """Worker `rank`'s contiguous part of a global batch [B]: sizes differ by at most one, empty where B < world."""
    return index.tensor_split(world)[rank]


def halves(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """The positions of two disjoint halves of so many samples (int64, ascending), drawn by the seed; the first is the
    larger where they cannot be equal."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    cut = (size + 1) // 2
    return order[:cut].sort().values, order[cut:].sort().values
