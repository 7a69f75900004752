"""Random numbers of a step's samples that depend neither on the number of workers nor on where a run is resumed."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from mtlscale.data import Batch, Workers, slice_for


class StepDraws:
    """Generator of uniform numbers for every sample of a step, of which a worker takes those of its own samples.

    They depend on the seed, the number of steps taken, the stream, and how many were drawn for this batch before.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.steps = seed, 0
        self._requests: dict[str, int] = {}  # stream -> number of this worker's samples that this step has begun
        self._stream, self._total, self._first, self._calls = "", 0, 0, 0

    def next(self) -> None:
        """Move on to the next step."""
        self.steps += 1
        self._requests.clear()

    def begin(self, batch: Batch) -> None:
        """Prepare for a batch, before anything is drawn for it."""
        workers = Workers.current()
        own_indices = slice_for(torch.arange(batch.total), workers.rank, workers.size)
        start = self._requests.get(batch.stream, 0)
        start = 0 if start + len(batch.samples) > len(own_indices) else start  # the same batch once more
        self._requests[batch.stream] = start + len(batch.samples)
        first = int(own_indices[0]) if len(own_indices) else 0
        self._stream, self._total, self._first, self._calls = batch.stream, batch.total, first + start, 0

    def __call__(self, count: int, x: Tensor) -> Tensor:
        """Return uniform numbers [count, B], float64, for inputs [B, ...]."""
        key = f"{self.seed}/{self.steps}/{self._stream}/{self._calls}"
        self._calls += 1
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        drawn = torch.rand(self._total, count, dtype=torch.float64, generator=generator)
        return drawn[self._first : self._first + len(x)].T.to(x.device, non_blocking=True)


class DrawnNumbers:
    """Numbers [N, B] that were drawn at once and are handed out row by row.

    A device receives them in one copy.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.taken = numbers, 0

    def __call__(self, count: int, x: Tensor) -> Tensor:
        """Return the next [count, B] numbers for inputs [B, ...]."""
        self.taken += count
        return self.numbers[self.taken - count : self.taken]
