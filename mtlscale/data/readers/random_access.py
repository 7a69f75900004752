"""Readers: access to samples on the device, in the node's memory, or on its disk while a run trains.

Training asks for the samples at global indices, independent of the reader. All readers but `stream` give the same
samples in the same order to the last bit; they differ in what they keep in memory. `take` returns samples as they are
stored; `placed` puts them on the device in the run's precision.

* `device`: every split on the device in the run's precision, once per process.
* `memory`: one copy per node, as it is stored: the mapped columns of `mtlscale.data.readers.cache`, read from end to
  end before the first step, so that the page cache of the node holds them for all its processes, and no memory stays
  allocated when they end. Data without files are used as they are.
* `mapped`: the same columns, of which the page cache holds as much as it can.
* `stream` (`mtlscale.data.readers.stream`): no copy; the shards pass by, in an order of their own.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, UserError
from mtlscale.data.batches import Samples
from mtlscale.data.format.columns import RAGGED
from mtlscale.data.format.encoded_images import EncodedSamples
from mtlscale.data.format.sequences import RaggedSamples
from mtlscale.data.readers.cache import CachedSet
from mtlscale.data.readers.prepared import PreparedData, as_stored, tensors_of
from mtlscale.data.readers.reader_selection import Choice, check_room, choose
from mtlscale.data.readers.stream import Pieces, StreamReader
from mtlscale.data.sampling.label_noise import with_noise
from mtlscale.data.sampling.train_fraction import TrainFraction

Split = Mapping[str, Samples]  # by stream
_READ = 8 << 20  # bytes per read when a file is loaded into the page cache
_LOOK = 256  # samples whose labels are checked at a time
_WIDE = 4096  # bytes of a sample from which on its pages are prefetched


class Reader(Protocol):
    """The interface of a reader: samples by split, stream and index."""

    name: str
    ahead: bool  # whether `take` is slow enough to be done ahead of the step

    def sizes(self, split: str) -> dict[str, int]:
        """Return the number of samples of each stream."""
        ...

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        """Copy the samples at these indices [B] (int64, on the host), as stored, to the host or the device."""
        ...

    def targets(self, split: str, caller: str) -> dict[str, Tensor]:
        """Return task -> all its labels [N, ...], placed.

        Args:
            caller: The component that needs all labels at once, for the error message.

        Raises:
            UserError: If the reader cannot provide them.
        """
        ...

    def whole(self, split: str, caller: str) -> Split:
        """Return all samples of a split, placed.

        Args:
            caller: The component that needs all samples at once, for the error message.

        Raises:
            UserError: If the reader cannot provide them.
        """
        ...


class DeviceReader:
    """Reader that keeps every split on the device in the run's precision, from its first use on."""

    name, ahead = "device", False

    def __init__(self, splits: Mapping[str, Split], device: torch.device, dtype: torch.dtype) -> None:
        self._splits, self._device, self._dtype = splits, device, dtype
        self._placed: dict[str, Split] = {}

    def sizes(self, split: str) -> dict[str, int]:
        return {stream: len(samples) for stream, samples in self._of(split).items()}

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        # The host need not wait: the indices are copied at once.
        return self._of(split)[stream].take(index.to(self._device, non_blocking=True))

    def targets(self, split: str, caller: str) -> dict[str, Tensor]:
        return {name: target for samples in self._of(split).values() for name, target in samples.targets.items()}

    def whole(self, split: str, caller: str) -> Split:
        return self._of(split)

    def _of(self, split: str) -> Split:
        if split not in self._placed:
            self._placed[split] = on_device(self._splits[split], self._device, self._dtype)
        return self._placed[split]


class HostReader:
    """Reader of samples as they are stored, in memory or mapped.

    `held` says that they are in memory, so that a method may have all of them at once.
    """

    ahead = True

    def __init__(
        self, name: str, splits: Mapping[str, Split], device: torch.device, dtype: torch.dtype, *, in_memory: bool
    ) -> None:
        self.name, self._splits, self._in_memory = name, splits, in_memory
        self._device, self._dtype = device, dtype

    def sizes(self, split: str) -> dict[str, int]:
        return {stream: len(samples) for stream, samples in self._splits[split].items()}

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        samples = self._splits[split][stream]
        if isinstance(samples, MappedSamples):
            samples.expect(index)
        return samples.take(index)

    def targets(self, split: str, caller: str) -> dict[str, Tensor]:
        streams = self._splits[split]
        if not self._in_memory and any(
            label.ndim > 1 for samples in streams.values() for label in samples.targets.values()
        ):
            raise self._refusal(caller, "all training labels")

        return {
            name: target
            for samples in streams.values()
            for name, target in placed(
                Samples(torch.empty(0), samples.targets), self._device, self._dtype
            ).targets.items()
        }

    def whole(self, split: str, caller: str) -> Split:
        if not self._in_memory:
            raise self._refusal(caller, "the whole training set")
        return on_device(self._splits[split], self._device, self._dtype)

    def _refusal(self, caller: str, content: str) -> UserError:
        return UserError(
            f"{caller} needs {content} at once, which the reader {self.name} does not hold; set training.reader to "
            "memory or device, or use fewer samples"
        )


class TrainFractionReader:
    """Reader that gives a share of the training samples of another reader.

    Raises:
        UserError: If the share leaves a task without a label.
    """

    def __init__(self, reader: Reader, train_fraction: TrainFraction) -> None:
        self.name, self.ahead = reader.name, reader.ahead
        self._reader, self._train_fraction = reader, train_fraction
        for stream, tasks in train_fraction.suite.streams.items():
            for task in tasks:
                if not self._labelled(stream, task):
                    raise UserError(
                        f"train: {train_fraction.of(stream):g} of the samples of {train_fraction.suite.name} leaves "
                        f"task {task} without a label; use a larger share"
                    )

    def sizes(self, split: str) -> dict[str, int]:
        all_sizes = self._reader.sizes(split)
        kept_indices = {stream: self._train_fraction.places(split, stream) for stream in all_sizes}
        return {
            stream: size if (indices := kept_indices[stream]) is None else len(indices)
            for stream, size in all_sizes.items()
        }

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        indices = self._train_fraction.places(split, stream)
        return self._reader.take(split, stream, index if indices is None else indices[index])

    def targets(self, split: str, caller: str) -> dict[str, Tensor]:
        labels = self._reader.targets(split, caller)
        for stream, tasks in self._train_fraction.suite.streams.items():
            indices = self._train_fraction.places(split, stream)
            if indices is not None:
                labels |= {task: labels[task][indices.to(labels[task].device)] for task in tasks}
        return labels

    def whole(self, split: str, caller: str) -> Split:
        samples_by_stream = dict(self._reader.whole(split, caller))
        for stream, samples in samples_by_stream.items():
            indices = self._train_fraction.places(split, stream)
            if indices is not None:
                samples_by_stream[stream] = samples.take(indices.to(samples.inputs.device))
        return samples_by_stream

    def _labelled(self, stream: str, task: str) -> bool:
        for indices in torch.arange(self.sizes("train")[stream]).split(_LOOK):
            target = self.take("train", stream, indices).targets[task]
            present = ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
            if present.any():
                return True
        return False


class MappedSamples(Samples):
    """Samples whose tensors are memory-mapped files."""

    files: tuple[tuple[mmap.mmap, int, int], ...] = ()  # with wide rows: (map, offset of row 0, bytes of a row)

    def expect(self, index: Tensor) -> None:
        """Prefetch the pages of these samples, all at once and in the order of the file."""
        for pages, first, width in self.files:
            for row in index.sort().values.tolist():
                start = first + row * width
                page = start - start % mmap.PAGESIZE
                pages.madvise(mmap.MADV_WILLNEED, page, start + width - page)


class _Cached(Mapping[str, Split]):
    """The splits of a cached set; `warm` says that they are read from end to end on first access."""

    def __init__(self, data: PreparedData, warm: bool) -> None:
        self._data, self._warm = data, warm
        self._set = CachedSet(data.folder, data.manifest)
        self._open: dict[str, Split] = {}

    def __getitem__(self, split: str) -> Split:
        if split not in self._open:
            streams = self._data.suite.streams
            self._open[split] = {stream: self._samples(split, stream) for stream in streams}
        return self._open[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data.splits)

    def __len__(self) -> int:
        return len(self._data.splits)

    def _samples(self, split: str, stream: str) -> Samples:
        columns = self._set.columns(split, stream)
        stored = as_stored(tensors_of(columns), self._data.manifest, self._data.suite.streams[stream])
        if self._warm:
            for array in columns.values():
                _load_into_page_cache(array)

        if isinstance(stored, EncodedSamples | RaggedSamples):
            return stored

        samples = MappedSamples(stored.inputs, stored.targets, stored.weights)
        if not self._warm:
            files = [
                (getattr(column, "_mmap", None), getattr(column, "offset", 0), column[:1].nbytes)
                for column in columns.values()
            ]
            samples.files = tuple(
                (pages, first % mmap.ALLOCATIONGRANULARITY, width)
                for pages, first, width in files
                if pages is not None and width >= _WIDE
            )

        return samples


def _load_into_page_cache(array: Any) -> None:
    name = getattr(array, "filename", None)
    if name is None:
        return
    buffer = bytearray(_READ)
    with open(name, "rb", buffering=0) as file:  # noqa: PTH123 (numpy's own name of it)
        while file.readinto(buffer):
            pass


def open_reader(
    data: PreparedData,
    setting: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    processes: int = 1,
    pieces: Pieces | None = None,
) -> tuple[Reader, Choice]:
    """Open the reader for a setting (`auto` selects one), and return it with the reason for the selection.

    Args:
        setting: The reader's name, or `auto`.
        dtype: The run's precision.
        processes: The number of processes on this node that read the data.
        pieces: The source of the pieces for the reader `stream`; default: this process.
    """
    precision, gpu = str(dtype).removeprefix("torch."), device.type == "cuda"
    choice = choose(data, setting, precision, processes, gpu=gpu)
    check_room(data, choice.reader, precision, processes, gpu=gpu)
    reader = _opened(data, choice.reader, device, dtype, pieces)
    return reader if data.train_fraction is None else TrainFractionReader(reader, data.train_fraction), choice


def _opened(
    data: PreparedData, kind: str, device: torch.device, dtype: torch.dtype, pieces: Pieces | None
) -> DeviceReader | HostReader | StreamReader:
    if kind == "device":
        return DeviceReader(with_noise(data.splits, data.noise), device, dtype)

    if not data.on_disk:
        if kind in ("mapped", "stream"):
            raise UserError(f"reader {kind} reads files, and {data.suite.name} has none; set training.reader to memory")
        return HostReader("memory", with_noise(data.splits, data.noise), device, dtype, in_memory=True)

    if kind == "stream":
        if data.manifest.types.get("input") == RAGGED:
            raise UserError(f"reader stream has no sequences of vectors, as {data.suite.name} has; set training.reader "
                            "to mapped")  # fmt: skip
        if data.train_fraction is not None:
            raise UserError(f"reader stream has no share of {data.suite.name}; set training.reader to another")
        return StreamReader(data, device, dtype, pieces)

    in_memory = kind == "memory"
    return HostReader(kind, with_noise(_Cached(data, in_memory), data.noise), device, dtype, in_memory=in_memory)


def placed(samples: Samples, device: torch.device, dtype: torch.dtype) -> Samples:
    """Move samples to the model's device: numbers in the run's precision, labels as integers that losses index with."""

    def move(tensor: Tensor, label: bool = False) -> Tensor:
        tensor = tensor.to(device, non_blocking=True)  # in the stored type, which is smaller
        if tensor.is_floating_point():
            return tensor.to(dtype)
        return tensor.long() if label else tensor

    targets = {name: move(target, label=True) for name, target in samples.targets.items()}
    weights = None if samples.weights is None else move(samples.weights)
    if isinstance(samples, RaggedSamples):
        return samples.placed(device, dtype, Samples(torch.empty(0), targets, weights))
    return Samples(move(samples.inputs), targets, weights)


def on_device(split: Split, device: torch.device, dtype: torch.dtype) -> dict[str, Samples]:
    """Apply `placed` to every stream."""
    return {stream: placed(samples, device, dtype) for stream, samples in split.items()}
