"""The data loader: the batches of every step, with prefetch by threads and pinned memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TypeVar

import torch
from torch import Tensor

from mtlscale.config import TaskSuite
from mtlscale.data import Batch, EpochSampler, Samples, WindowSampler, Workers, slice_for
from mtlscale.data.format.sequences import cut
from mtlscale.data.readers.random_access import Reader, on_device, placed
from mtlscale.data.readers.stream import Feed, StreamReader
from mtlscale.training.augment import Augment

__all__ = ["Batches", "made_ahead", "on_device"]

AHEAD, THREADS = 4, 2  # steps whose batches are prepared ahead; threads that prepare them
Indices = Mapping[str, Tensor]  # stream -> indices of its samples in a step
Micros = list[list[Batch]]
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Part:
    """Input of one update in a step: samples over all workers, this worker's micro-batches, those of its query."""

    samples: int
    micros: Micros
    query: Micros | None

    def batches(self) -> Iterator[Batch]:
        return (batch for micros in (self.micros, self.query or []) for micro in micros for batch in micro)


class Batches:
    """Batches of a reader's samples for one worker.

    Attributes:
        together: every worker runs every stream of a step, even with no sample of it, because the network communicates
            with other workers on the way.
        waited: seconds that training steps waited for their batches since it was last set.
    """

    def __init__(
        self,
        reader: Reader,
        suite: TaskSuite,
        *,
        device: torch.device,
        dtype: torch.dtype,
        workers: Workers,
        accumulate: int = 1,
        eval_batch_size: int = 512,
        augment: Augment | None = None,
    ) -> None:
        self.reader, self.suite = reader, suite
        self.device, self.dtype, self.workers = device, dtype, workers
        self.accumulate, self.eval_batch_size, self.augment = accumulate, eval_batch_size, augment

        self.together = False
        self.waited = 0.0

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of training samples of each stream."""
        return self.reader.sizes("train")

    def targets(self, who: str) -> dict[str, Tensor]:
        """Return task -> its training labels [N, ...], all at once because `who` needs them so."""
        return self.reader.targets("train", who)

    def whole(self, who: str) -> Mapping[str, Samples]:
        """Return the training samples of every stream, all at once because `who` needs them so."""
        return self.reader.whole("train", who)

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        """Return the samples at the indices `index` [B], on the device and in the run's precision."""
        return self._placed(self.reader.take(split, stream, index))

    def _placed(self, samples: Samples) -> Samples:
        if self.suite.per_token:
            samples = cut(samples)
        if self.device.type == "cuda" and samples.inputs.device.type == "cpu":
            samples = _pinned(samples)
        return placed(samples, self.device, self.dtype)

    def micros(
        self, indices: Indices, epoch: int, feed: Feed | None = None, factors: Mapping[str, float] | None = None
    ) -> Micros:
        """Return this worker's part of a global step, cut into micro-batches.

        A stream without samples on this worker is left out, unless all workers have to run it.

        Args:
            indices: stream -> indices of its samples in the step.
            epoch: the epoch, which augmentation depends on.
            feed: the samples in their order, for a reader without random access.
            factors: stream -> factor of its losses.
        """
        micros: Micros = [[] for _ in range(self.accumulate)]

        for stream, index in indices.items():
            if not len(index):
                continue

            worker_indices = slice_for(index, self.workers.rank, self.workers.size)
            for micro, part in zip(micros, worker_indices.tensor_split(self.accumulate), strict=True):
                if len(part) or self.together:
                    samples = self.take("train", stream, part) if feed is None else self._fed(feed, stream, part)
                    if self.augment is not None:
                        samples = self.augment(samples, stream, epoch, part)
                    micro.append(Batch(stream, samples, len(index), (factors or {}).get(stream, 1.0)))

        return micros

    def _fed(self, feed: Feed, stream: str, index: Tensor) -> Samples:
        assert isinstance(self.reader, StreamReader)
        return self._placed(self.reader.samples("train", stream, index, feed.take(stream, index)))

    def steps(
        self,
        parts: Iterable[Sequence[tuple[Indices, Indices | None]]],
        epoch: int,
        samplers: Sequence[EpochSampler] = (),
    ) -> Generator[list[Part], None, None]:
        """Yield the parts of each step, in order, prepared ahead of it where that pays.

        Args:
            parts: for each step and each of its updates, the update's indices and those of its query.
            epoch: the epoch, which feeds and augmentation depend on.
            samplers: for each update, the sampler of its indices.
        """
        feeds = [self._feed(sampler, epoch) for sampler in samplers]

        def make(step: Sequence[tuple[Indices, Indices | None]]) -> list[Part]:
            return [
                Part(
                    sum(map(len, indices.values())),
                    self.micros(indices, epoch, feed, None if sampler is None else sampler.factors(indices)),
                    None if query is None else self.micros(query, epoch),
                )
                for (indices, query), sampler, feed in zip_longest(step, samplers, feeds)
            ]

        def batches(step: list[Part]) -> Iterator[Batch]:
            return (batch for part in step for batch in part.batches())

        open_feeds = [feed for feed in feeds if feed is not None]
        with ExitStack() as stack:
            for feed in open_feeds:
                stack.enter_context(closing(feed))
            # A feed gives its samples in one order, hence to one thread.
            prepared = stack.enter_context(
                closing(self._made(parts, make, batches, threads=1 if open_feeds else THREADS))
            )
            while True:
                started = time.perf_counter()
                step = next(prepared, None)
                self.waited += time.perf_counter() - started
                if step is None:
                    return
                yield step

    def _feed(self, sampler: EpochSampler, epoch: int) -> Feed | None:
        if not isinstance(self.reader, StreamReader):
            return None
        assert isinstance(sampler, WindowSampler)
        return self.reader.feed(sampler.plan(epoch, 0, self.workers.size), self.workers.rank)

    def of_split(self, split: str) -> Iterator[Batch]:
        """Return this worker's share of a split in order, in evaluation batches.

        Streams without labels are left out.
        """
        return self._made(
            self._parts(split),
            lambda part: Batch(part[0], self.take(split, *part[:2]), part[2]),
            lambda batch: iter((batch,)),
        )

    def _parts(self, split: str) -> Iterator[tuple[str, Tensor, int]]:
        """Yield stream, indices and the stream's number of samples for each evaluation batch."""
        for stream, size in self.reader.sizes(split).items():
            if not self.suite.streams[stream]:
                continue
            worker_indices = slice_for(torch.arange(size), self.workers.rank, self.workers.size)
            for part in worker_indices.split(self.eval_batch_size):
                if len(part):
                    yield stream, part, size

    def _made(
        self,
        items: Iterable[Item],
        make: Callable[[Item], Made],
        batches: Callable[[Made], Iterator[Batch]],
        threads: int = THREADS,
    ) -> Generator[Made, None, None]:
        """Yield what `make` returns for each item, in order; threads work ahead where the reader wants that."""
        if not self.reader.ahead:
            yield from map(make, items)
        elif self.device.type != "cuda":
            yield from made_ahead(items, make, threads=threads)
        else:
            for result, event in made_ahead(items, self._beside(make), threads=threads):
                current = torch.cuda.current_stream(self.device)
                current.wait_event(event)
                for batch in batches(result):
                    for tensor in _tensors(batch.samples):
                        tensor.record_stream(current)
                yield result

    def _beside(self, make: Callable[[Item], Made]) -> Callable[[Item], tuple[Made, torch.cuda.Event]]:
        """Return `make` on its own CUDA stream, parallel to the training step; it returns the event of its end, too."""
        stream = torch.cuda.Stream(self.device)

        def work(item: Item) -> tuple[Made, torch.cuda.Event]:
            with torch.cuda.stream(stream):
                return make(item), stream.record_event()

        return work


def made_ahead(
    items: Iterable[Item], make: Callable[[Item], Made], ahead: int = AHEAD, threads: int = THREADS
) -> Generator[Made, None, None]:
    """Yield what `make` returns for each item, in order, made by threads.

    At most `ahead` results wait to be fetched. An exception for an item is raised when that item is fetched.
    """
    grad: Callable[[], AbstractContextManager[None]] = nullcontext if torch.is_grad_enabled() else torch.no_grad

    def work(item: Item) -> Made:
        with grad():
            return make(item)

    with ThreadPoolExecutor(threads, thread_name_prefix="batches") as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _tensors(samples: Samples) -> Iterator[Tensor]:
    yield samples.inputs
    yield from samples.targets.values()
    if samples.weights is not None:
        yield samples.weights


def _pinned(samples: Samples) -> Samples:
    """Copy samples to pinned host memory, from which a GPU copies by itself."""
    return Samples(
        samples.inputs.pin_memory(),
        {name: target.pin_memory() for name, target in samples.targets.items()},
        None if samples.weights is None else samples.weights.pin_memory(),
    )
