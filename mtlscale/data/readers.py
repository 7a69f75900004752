"""Where samples lie while a run trains: on the device, in the node's memory, or on its disk.

Training asks for the samples at global indices and does not know. All readers but `stream` give the same samples in the
same order to the last bit; they differ in what they hold. What a reader takes is as it is stored; `placed` puts it on
the device in the run's precision.

* `device`: every split on the device in the run's precision, once per process.
* `memory`: one copy per node, as it is stored: the mapped columns of `mtlscale.data.cache`, read from end to end before
  the first step, so that the page cache of the node holds them for all its processes and nothing is left behind when
  they end. Data that have no files are taken as they are.
* `mapped`: the same columns, of which the page cache holds what it can.
* `stream` (`mtlscale.data.streamed`): nothing; the shards pass by, in an order of their own.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from mtlscale.data.batches import Samples
from mtlscale.data.cache import CachedSet
from mtlscale.data.choice import Choice, choose
from mtlscale.data.columns import RAGGED
from mtlscale.data.encoded import EncodedSamples
from mtlscale.data.noise import with_noise
from mtlscale.data.prepared import PreparedData, as_stored, tensors_of
from mtlscale.data.sequences import RaggedSamples
from mtlscale.data.share import TrainingShare
from mtlscale.data.streamed import Pieces, StreamReader
from mtlscale.spec import MISSING_CLASS, UserError

Split = Mapping[str, Samples]  # by stream
_READ = 8 << 20  # bytes at a time, when a file is read into the page cache
_LOOK = 256  # samples that are looked at at a time
_WIDE = 4096  # bytes of a sample from which its pages are asked for before they are touched


class Reader(Protocol):
    """Samples by split, stream and index."""

    name: str
    ahead: bool  # whether taking costs enough to be done ahead of the step

    def sizes(self, split: str) -> dict[str, int]:
        """Samples of each stream."""
        ...

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        """The samples at these indices [B] (int64, on the host), as stored: copies, on the host or the device."""
        ...

    def targets(self, split: str, who: str) -> dict[str, Tensor]:
        """Task -> all its labels [N, ...], placed, for `who` needs them at once. `UserError` where that cannot be."""
        ...

    def whole(self, split: str, who: str) -> Split:
        """All samples of a split, placed, for `who` needs them at once. `UserError` where that cannot be."""
        ...


class DeviceReader:
    """Every split on the device in the run's precision from when it is first asked for."""

    name, ahead = "device", False

    def __init__(self, splits: Mapping[str, Split], device: torch.device, dtype: torch.dtype) -> None:
        self._splits, self._device, self._dtype = splits, device, dtype
        self._placed: dict[str, Split] = {}

    def sizes(self, split: str) -> dict[str, int]:
        return {stream: len(samples) for stream, samples in self._of(split).items()}

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        # The host has nothing to wait for: the numbers are taken at once.
        return self._of(split)[stream].take(index.to(self._device, non_blocking=True))

    def targets(self, split: str, who: str) -> dict[str, Tensor]:
        return {name: target for samples in self._of(split).values() for name, target in samples.targets.items()}

    def whole(self, split: str, who: str) -> Split:
        return self._of(split)

    def _of(self, split: str) -> Split:
        if split not in self._placed:
            self._placed[split] = on_device(self._splits[split], self._device, self._dtype)
        return self._placed[split]


class HostReader:
    """Samples as they are stored, in memory or mapped.

    held: they are in memory, so that a method may have all of them at once.
    """

    ahead = True

    def __init__(
        self, name: str, splits: Mapping[str, Split], device: torch.device, dtype: torch.dtype, *, held: bool
    ) -> None:
        self.name, self._splits, self._held = name, splits, held
        self._device, self._dtype = device, dtype

    def sizes(self, split: str) -> dict[str, int]:
        return {stream: len(samples) for stream, samples in self._splits[split].items()}

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        samples = self._splits[split][stream]
        if isinstance(samples, MappedSamples):
            samples.expect(index)
        return samples.take(index)

    def targets(self, split: str, who: str) -> dict[str, Tensor]:
        streams = self._splits[split]
        if not self._held and any(t.ndim > 1 for samples in streams.values() for t in samples.targets.values()):
            raise self._refusal(who, "all training labels")
        return {
            name: target
            for samples in streams.values()
            for name, target in placed(_labels_of(samples), self._device, self._dtype).targets.items()
        }

    def whole(self, split: str, who: str) -> Split:
        if not self._held:
            raise self._refusal(who, "the whole training set")
        return on_device(self._splits[split], self._device, self._dtype)

    def _refusal(self, who: str, what: str) -> UserError:
        return UserError(
            f"{who} needs {what} at once, which the reader {self.name} does not hold; set training.reader to memory or "
            "device, or use fewer samples"
        )


class ShareReader:
    """What a reader has, and a share of its training samples. `UserError` where a task has no label among those."""

    def __init__(self, reader: Reader, share: TrainingShare) -> None:
        self.name, self.ahead = reader.name, reader.ahead
        self._reader, self._share = reader, share
        for stream, tasks in share.suite.streams.items():
            for task in tasks:
                if not self._labelled(stream, task):
                    raise UserError(
                        f"train: {share.of(stream):g} of the samples of {share.suite.name} leaves task {task} without "
                        "a label; use a larger share"
                    )

    def sizes(self, split: str) -> dict[str, int]:
        whole = self._reader.sizes(split)
        places = {stream: self._share.places(split, stream) for stream in whole}
        return {stream: size if (at := places[stream]) is None else len(at) for stream, size in whole.items()}

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        at = self._share.places(split, stream)
        return self._reader.take(split, stream, index if at is None else at[index])

    def targets(self, split: str, who: str) -> dict[str, Tensor]:
        found = self._reader.targets(split, who)
        for stream, tasks in self._share.suite.streams.items():
            at = self._share.places(split, stream)
            if at is not None:
                found |= {task: found[task][at.to(found[task].device)] for task in tasks}
        return found

    def whole(self, split: str, who: str) -> Split:
        found = dict(self._reader.whole(split, who))
        for stream, samples in found.items():
            at = self._share.places(split, stream)
            if at is not None:
                found[stream] = samples.take(at.to(samples.inputs.device))
        return found

    def _labelled(self, stream: str, task: str) -> bool:
        for part in torch.arange(self.sizes("train")[stream]).split(_LOOK):
            target = self.take("train", stream, part).targets[task]
            there = ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
            if there.any():
                return True
        return False


def _labels_of(samples: Samples) -> Samples:
    return Samples(torch.empty(0), samples.targets)


class MappedSamples(Samples):
    """Samples whose tensors are mapped files."""

    files: tuple[tuple[mmap.mmap, int, int], ...] = ()  # those with wide rows: the map, where rows begin, bytes of one

    def expect(self, index: Tensor) -> None:
        """Have the pages of these samples read, all at once and in the order of the file, before they are touched."""
        for pages, first, width in self.files:
            for row in index.sort().values.tolist():
                start = first + row * width
                page = start - start % mmap.PAGESIZE
                pages.madvise(mmap.MADV_WILLNEED, page, start + width - page)


class _Cached(Mapping[str, Split]):
    """The splits of a cached set. warm: read from end to end when they are first asked for."""

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
        found = as_stored(tensors_of(columns), self._data.manifest, self._data.suite.streams[stream])
        if self._warm:
            for array in columns.values():
                _read(array)
        if isinstance(found, EncodedSamples | RaggedSamples):
            return found
        samples = MappedSamples(found.inputs, found.targets, found.weights)
        if not self._warm:
            files = [(getattr(a, "_mmap", None), getattr(a, "offset", 0), a[:1].nbytes) for a in columns.values()]
            samples.files = tuple(
                (pages, first % mmap.ALLOCATIONGRANULARITY, width)
                for pages, first, width in files
                if pages is not None and width >= _WIDE
            )
        return samples


def _read(array: Any) -> None:
    """Have the node's page cache hold a mapped file."""
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
    """The reader of a setting (`auto` chooses), and why it is that one. processes: that read the data on this node;
    pieces: who reads for `stream`."""
    choice = choose(data, setting, str(dtype).removeprefix("torch."), processes, gpu=device.type == "cuda")
    reader = _opened(data, choice.reader, device, dtype, pieces)
    return reader if data.share is None else ShareReader(reader, data.share), choice


def _opened(
    data: PreparedData, kind: str, device: torch.device, dtype: torch.dtype, pieces: Pieces | None
) -> DeviceReader | HostReader | StreamReader:
    if kind == "device":
        return DeviceReader(with_noise(data.splits, data.noise), device, dtype)
    if not data.on_disk:
        if kind in ("mapped", "stream"):
            raise UserError(f"reader {kind} reads files, and {data.suite.name} has none; set training.reader to memory")
        return HostReader("memory", with_noise(data.splits, data.noise), device, dtype, held=True)
    if kind == "stream":
        if data.manifest.types.get("input") == RAGGED:
            raise UserError(f"reader stream has no sequences of vectors, as {data.suite.name} has; set training.reader "
                            "to mapped")  # fmt: skip
        if data.share is not None:
            raise UserError(f"reader stream has no share of {data.suite.name}; set training.reader to another")
        return StreamReader(data, device, dtype, pieces)
    held = kind == "memory"
    return HostReader(kind, with_noise(_Cached(data, held), data.noise), device, dtype, held=held)


def placed(samples: Samples, device: torch.device, dtype: torch.dtype) -> Samples:
    """Samples where the model is: numbers in the run's precision, labels as losses index with them."""

    def move(tensor: Tensor, label: bool = False) -> Tensor:
        tensor = tensor.to(device, non_blocking=True)  # in the fewest bytes, then in more
        if tensor.is_floating_point():
            return tensor.to(dtype)
        return tensor.long() if label else tensor

    targets = {name: move(target, label=True) for name, target in samples.targets.items()}
    weights = None if samples.weights is None else move(samples.weights)
    if isinstance(samples, RaggedSamples):
        return samples.placed(device, dtype, Samples(torch.empty(0), targets, weights))
    return Samples(move(samples.inputs), targets, weights)


def on_device(split: Split, device: torch.device, dtype: torch.dtype) -> dict[str, Samples]:
    """`placed`, stream by stream."""
    return {stream: placed(samples, device, dtype) for stream, samples in split.items()}
