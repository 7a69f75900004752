"""Where a run's batches come from: a worker's part of the training steps, and of whole splits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mtlscale.data import Batch, Samples, Workers, slice_for
from mtlscale.spec import TaskSuite
from mtlscale.training.augment import Augment


class Batches:
    """Splits on the device, cut for one worker.

    together: every worker runs every stream of a step, even with no sample of it, because the network exchanges
    something on the way. `waited`: seconds spent making training batches since it was last set.
    """

    def __init__(
        self,
        splits: Mapping[str, Mapping[str, Samples]],
        suite: TaskSuite,
        *,
        device: torch.device,
        dtype: torch.dtype,
        workers: Workers,
        accumulate: int = 1,
        eval_batch_size: int = 512,
        augment: Augment | None = None,
    ) -> None:
        self._splits, self.suite = splits, suite
        self.device, self.dtype, self.workers = device, dtype, workers
        self.accumulate, self.eval_batch_size, self.augment = accumulate, eval_batch_size, augment
        self.train = on_device(splits["train"], device, dtype)
        self.together = False
        self.waited = 0.0

    @property
    def sizes(self) -> dict[str, int]:
        """Training samples of each stream."""
        return {stream: len(samples) for stream, samples in self.train.items()}

    @property
    def targets(self) -> dict[str, Tensor]:
        """Task -> its training labels [N, ...]."""
        return {name: target for samples in self.train.values() for name, target in samples.targets.items()}

    def micros(self, indices: Mapping[str, Tensor], epoch: int) -> list[list[Batch]]:
        """This worker's part of a global step, cut into micro-batches; a stream without samples here is left out, but
        where all workers have to run it."""
        started = time.perf_counter()
        micros: list[list[Batch]] = [[] for _ in range(self.accumulate)]
        for stream, index in indices.items():
            mine = slice_for(index, self.workers.rank, self.workers.size)
            for micro, part in zip(micros, mine.tensor_split(self.accumulate), strict=True):
                if len(part) or self.together:
                    samples = self.train[stream].take(self._placed(part))
                    if self.augment is not None:
                        samples = self.augment(samples, stream, epoch, part)
                    micro.append(Batch(stream, samples, len(index)))
        self.waited += time.perf_counter() - started
        return micros

    def of_split(self, split: str) -> Iterator[Batch]:
        """This worker's share of a split in order, in evaluation batches; streams without labels are left out."""
        data = self.train if split == "train" else on_device(self._splits[split], self.device, self.dtype)
        for stream, samples in data.items():
            if not samples.targets:
                continue
            mine = slice_for(torch.arange(len(samples)), self.workers.rank, self.workers.size)
            for part in mine.split(self.eval_batch_size):
                if len(part):
                    yield Batch(stream, samples.take(self._placed(part)), len(samples))

    def _placed(self, index: Tensor) -> Tensor:
        """The index where the samples are. The host has nothing to wait for: the numbers are taken at once."""
        return index.to(self.device, non_blocking=True)


def on_device(split: Mapping[str, Samples], device: torch.device, dtype: torch.dtype) -> dict[str, Samples]:
    """Tensors where the model is, numbers in the run's precision."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    return {
        stream: Samples(
            move(s.inputs),
            {name: move(target) for name, target in s.targets.items()},
            None if s.weights is None else move(s.weights),
        )
        for stream, s in split.items()
    }
