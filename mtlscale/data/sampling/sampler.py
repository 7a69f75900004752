"""Samplers (task sampling, mixing of tasks in a batch): a function of seed and epoch, for any workers."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mtlscale.data.sampling.stream_order import EpochPlan, RowIndices, StreamOrder, cut


class EpochSampler:
    """Sampler of global batches of every stream, step by step; a task whose data run out starts over.

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
        """The steps of an epoch."""
        return self.fixed_steps or -(-max(self.sizes.values()) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        """Yield stream -> indices [≤ batch_size] (int64) of each step of an epoch, from step `start` on."""
        orders = {
            stream: _passes(size, self._sample_count(stream), f"{self.seed}/{epoch}/{stream}")
            for stream, size in self.sizes.items()
        }
        for step in range(start, self.steps):
            yield {stream: orders[stream][step * size : (step + 1) * size] for stream, size in self._batches().items()}

    def factors(self, indices: Mapping[str, Tensor]) -> dict[str, float]:
        """Return stream -> factor of the mean losses over its part of this step, for factors other than 1."""
        return {}

    def lengths(self) -> dict[str, int]:
        """Return stream -> approximate number of its samples in a step, rather too large."""
        return self._batches()

    def _batches(self) -> dict[str, int]:
        return {stream: min(self.batch_size, size) for stream, size in self.sizes.items()}

    def _sample_count(self, stream: str) -> int:
        """Return the number of samples that a stream yields in an epoch."""
        size = self.sizes[stream]
        one_pass = self.fixed_steps is None and size == max(self.sizes.values())
        return size if one_pass else self.steps * min(self.batch_size, size)


class PooledSampler(EpochSampler):
    """Sampler of batches from the samples of all streams together.

    An epoch is one pass over all samples, whose last batch may be short; with `steps_per_epoch` full batches are cut
    from one permutation after another. A step has every stream; one without samples in the batch has an empty index. A
    batch of B of N samples stands for all of them: (N / B) Σ_b L_b / N_t is the sum of the streams' mean losses on
    average.
    """

    @property
    def steps(self) -> int:
        return self.fixed_steps or -(-sum(self.sizes.values()) // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        total = sum(self.sizes.values())
        size = min(self.batch_size, total)
        length = total if self.fixed_steps is None else self.steps * size
        order = _passes(total, length, f"{self.seed}/{epoch}/pooled")
        firsts = list(itertools.accumulate(self.sizes.values(), initial=0))
        boundaries = torch.tensor(firsts[1:-1], dtype=torch.int64)

        for step in range(start, self.steps):
            batch = order[step * size : (step + 1) * size].sort().values
            parts = batch.tensor_split(torch.searchsorted(batch, boundaries))
            yield {stream: part - first for stream, part, first in zip(self.sizes, parts, firsts, strict=False)}

    def factors(self, indices: Mapping[str, Tensor]) -> dict[str, float]:
        counts = {stream: len(index) for stream, index in indices.items()}
        scale = sum(self.sizes.values()) / max(1, sum(counts.values()))
        return {stream: count * scale / self.sizes[stream] for stream, count in counts.items()}

    def lengths(self) -> dict[str, int]:
        share = min(1.0, self.batch_size / sum(self.sizes.values()))
        means = {stream: size * share for stream, size in self.sizes.items()}
        return {
            name: min(self.sizes[name], self.batch_size, math.ceil(mean + 3 * mean**0.5))
            for name, mean in means.items()
        }


SAMPLERS: Mapping[str, type[EpochSampler]] = {"per_task": EpochSampler, "pooled": PooledSampler}


class WindowSampler(EpochSampler):
    """Sampler for a streamed set: shuffled at two levels, by blocks and within a window of blocks.

    `starts` maps a stream to the starts of its blocks and its number of samples; `window` is the number of blocks in a
    window.
    """

    def __init__(
        self,
        starts: Mapping[str, RowIndices],
        batch_size: int,
        seed: int,
        *,
        window: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        sizes = {stream: int(rows[-1]) for stream, rows in starts.items()}
        super().__init__(sizes, batch_size, seed, steps_per_epoch=steps_per_epoch)
        self.starts, self.window = dict(starts), window

    def epoch(self, epoch: int, start: int = 0) -> Iterator[dict[str, Tensor]]:
        slices = {stream: self._slices(self._windows(stream, epoch), stream, start) for stream in self.sizes}
        for _ in range(start, self.steps):
            yield {stream: torch.from_numpy(next(rows)) for stream, rows in slices.items()}

    def plan(self, epoch: int, start: int, world: int) -> EpochPlan:
        """Return the plan of the reads for the steps of an epoch, window by window, for `world` workers."""
        orders = {stream: self._windows(stream, epoch) for stream in self.sizes}
        return EpochPlan(orders, self._batches(), start, world)

    def _slices(self, order: StreamOrder, stream: str, start: int) -> Iterator[RowIndices]:
        size = self._batches()[stream]
        windows = order.windows(start * size)
        first = next(windows, None)
        if first is None:
            return iter(())
        rows = (order.rows(number) for number in itertools.chain([first], windows))
        return cut(rows, size, start * size - order.span(first)[0])

    def _windows(self, stream: str, epoch: int) -> StreamOrder:
        return StreamOrder(
            self.starts[stream], self.window, f"{self.seed}/{epoch}/{stream}", self._sample_count(stream)
        )


def _passes(size: int, sample_count: int, key: str) -> Tensor:
    """Return the first `sample_count` indices of one fresh permutation after another."""
    passes = range(-(-sample_count // size))
    return torch.cat([_permutation(size, f"{key}/{turn}") for turn in passes])[:sample_count]


def _permutation(size: int, key: str) -> Tensor:
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=7).digest(), "big")
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def slice_for(index: Tensor, rank: int, world: int) -> Tensor:
    """Return worker `rank`'s contiguous part of a global batch [B].

    Sizes differ by at most one; the part may be empty if B < world.
    """
    return index.tensor_split(world)[rank]


def halves(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of two disjoint halves of `size` samples (int64, ascending), drawn by the seed.

    The first half is the larger if they cannot be equal.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    cut = (size + 1) // 2
    return order[:cut].sort().values, order[cut:].sort().values
