"""Where a run's batches come from: a worker's part of the training steps, and of whole splits."""

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

from mtlscale.data import Batch, EpochSampler, Samples, WindowSampler, Workers, slice_for
from mtlscale.data.readers import Reader, on_device, placed
from mtlscale.data.sequences import cut
from mtlscale.data.streamed import Feed, StreamReader
from mtlscale.spec import TaskSuite
from mtlscale.training.augment import Augment

__all__ = ["Batches", "made_ahead", "on_device"]

AHEAD, THREADS = 4, 2  # steps whose batches are made before they are asked for; threads that make them
Indices = Mapping[str, Tensor]  # stream -> indices of its samples in a step
Micros = list[list[Batch]]
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Part:
    """What an update of a step works on: samples over all workers, this worker's micro-batches, those of its query."""

    samples: int
    micros: Micros
    query: Micros | None

    def batches(self) -> Iterator[Batch]:
        return (batch for micros in (self.micros, self.query or []) for micro in micros for batch in micro)


class Batches:
    """A reader's samples, cut for one worker.

    together: every worker runs every stream of a step, even with no sample of it, because the network exchanges
    something on the way. `waited`: seconds a training step waited for its batches since it was last set.
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
        """Training samples of each stream."""
        return self.reader.sizes("train")

    def targets(self, who: str) -> dict[str, Tensor]:
        """Task -> its training labels [N, ...], all at once for `who` needs them so."""
        return self.reader.targets("train", who)

    def whole(self, who: str) -> Mapping[str, Samples]:
        """The training samples of every stream, all at once for `who` needs them so."""
        return self.reader.whole("train", who)

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        """The samples at these indices [B] on the device, in the run's precision."""
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
        """This worker's part of a global step, cut into micro-batches; a stream without samples here is left out, but
        where all workers have to run it. feed: what passes by, of a reader that has samples in no other way; factors:
        stream -> of its losses."""
        micros: Micros = [[] for _ in range(self.accumulate)]
        for stream, index in indices.items():
            if not len(index):
                continue
            mine = slice_for(index, self.workers.rank, self.workers.size)
            for micro, part in zip(micros, mine.tensor_split(self.accumulate), strict=True):
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
        """The parts of each step, in order, made ahead of it where that pays. parts: for each update of a step its
        indices and those of its query; samplers: of each update, where its indices come from."""
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

        passing = [feed for feed in feeds if feed is not None]
        with ExitStack() as stack:
            for feed in passing:
                stack.enter_context(closing(feed))
            # What passes by comes in one order.
            made = stack.enter_context(closing(self._made(parts, make, batches, threads=1 if passing else THREADS)))
            while True:
                started = time.perf_counter()
                step = next(made, None)
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
        """This worker's share of a split in order, in evaluation batches; streams without labels are left out."""
        return self._made(
            self._parts(split),
            lambda part: Batch(part[0], self.take(split, *part[:2]), part[2]),
            lambda batch: iter((batch,)),
        )

    def _parts(self, split: str) -> Iterator[tuple[str, Tensor, int]]:
        """Stream, indices of a batch, samples of the stream."""
        for stream, size in self.reader.sizes(split).items():
            if not self.suite.streams[stream]:
                continue
            mine = slice_for(torch.arange(size), self.workers.rank, self.workers.size)
            for part in mine.split(self.eval_batch_size):
                if len(part):
                    yield stream, part, size

    def _made(
        self,
        items: Iterable[Item],
        make: Callable[[Item], Made],
        batches: Callable[[Made], Iterator[Batch]],
        threads: int = THREADS,
    ) -> Generator[Made, None, None]:
        """What is made of each item, in their order; by threads ahead of whoever asks where the reader wants that."""
        if not self.reader.ahead:
            yield from map(make, items)
        elif self.device.type != "cuda":
            yield from made_ahead(items, make, threads=threads)
        else:
            for found, event in made_ahead(items, self._beside(make), threads=threads):
                current = torch.cuda.current_stream(self.device)
                current.wait_event(event)
                for batch in batches(found):
                    for tensor in _tensors(batch.samples):
                        tensor.record_stream(current)
                yield found

    def _beside(self, make: Callable[[Item], Made]) -> Callable[[Item], tuple[Made, torch.cuda.Event]]:
        """The same on a CUDA stream of its own, beside the training step, with the event of its end."""
        stream = torch.cuda.Stream(self.device)

        def work(item: Item) -> tuple[Made, torch.cuda.Event]:
            with torch.cuda.stream(stream):
                return make(item), stream.record_event()

        return work


def made_ahead(
    items: Iterable[Item], make: Callable[[Item], Made], ahead: int = AHEAD, threads: int = THREADS
) -> Generator[Made, None, None]:
    """What is made of each item, in their order, by threads; at most `ahead` wait to be asked for. What goes wrong with
    an item is raised where it is asked for."""
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
    """In host memory that a GPU copies from by itself."""
    return Samples(
        samples.inputs.pin_memory(),
        {name: target.pin_memory() for name, target in samples.targets.items()},
        None if samples.weights is None else samples.weights.pin_memory(),
    )
