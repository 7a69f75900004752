"""Selection of a run's reader, from the size of its data and the free memory."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mtlscale.config import UserError
from mtlscale.data.format.columns import ENCODED, RAGGED, WIDTH
from mtlscale.data.memory_limits import address_space, cgroup_memory
from mtlscale.data.readers.cache import cache_room, in_words

if TYPE_CHECKING:
    import numpy as np

    from mtlscale.config import TaskSuite
    from mtlscale.data.format.manifest import Manifest

MEMORY_FRACTION = 0.7  # of the free memory, for data; the remainder is for networks and their gradients
GPU_SHARE = 0.5
_WIDTHS = {"float32": 4, "float64": 8}
_PACKED = 1.5  # how much smaller the files of float16 vectors may be, at most
_SURE = 1 << 28  # bytes of data below which an upper bound of the size is enough


class Data(Protocol):
    """The properties of prepared data that the selection needs."""

    @property
    def folder(self) -> Path: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def on_disk(self) -> bool: ...


@dataclass(frozen=True)
class OnDisk:
    """Prepared data that have not been opened yet."""

    folder: Path
    manifest: Manifest
    on_disk: bool = True

    @property
    def suite(self) -> TaskSuite:
        """The suite with its words and word vectors, which the manifest has not."""
        from mtlscale.data.readers.prepared import load_prepared

        if self.manifest.vocabulary is None:
            return self.manifest.suite
        extras = load_prepared(self.folder, ()).suite.extras
        return replace(self.manifest.suite, extras={**extras, **self.manifest.suite.extras})


@dataclass(frozen=True)
class Need:
    """The bytes of all splits: as they are stored, and in a run's precision."""

    stored: int
    placed: int


@dataclass(frozen=True)
class Free:
    """The free bytes of a node, and of its GPU if it has one and its memory can be read.

    Attributes:
        host: What this process may still take.
        gpu: The same of the GPU.
        most: What this process could ever have: the node's memory, or less under a limit.
        limit: What sets that limit, in words; "" for the node's memory.
    """

    host: int
    gpu: int | None = None
    most: float = math.inf
    limit: str = ""

    @classmethod
    def of_this_node(cls, gpu: bool) -> Free:
        import psutil

        memory = psutil.virtual_memory()
        host, most, limit = int(memory.available), int(memory.total), ""
        if (group := cgroup_memory()) is not None and group.limit < most:
            host, most, limit = min(host, group.free), group.limit, "the limit of its control group"
        if (space := address_space()) is not None and space[0] < most:
            host, most, limit = min(host, space[1]), space[0], "ulimit -v"

        gpu_free = None
        if gpu and "torch" in sys.modules:  # a driver need not import torch
            import torch

            gpu_free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None

        return cls(host, gpu_free, most, limit)


@dataclass(frozen=True)
class Choice:
    """The selected reader, and the reason."""

    reader: str
    why: str

    def __str__(self) -> str:
        return f"reader {self.reader} ({self.why})"


def choose(
    data: Data, setting: str, dtype: str, processes: int = 1, *, gpu: bool = False, free: Free | None = None
) -> Choice:
    """Return the reader for a setting.

    Args:
        setting: The reader's name, or `auto`.
        dtype: The run's precision.
        processes: The number of processes on this node that read the data.
        gpu: Whether the run trains on a GPU.
        free: The free memory; default: measured on this node.
    """
    if setting != "auto":
        return Choice(setting, "as the experiment says")
    if not data.on_disk:
        return Choice("device", "the data are in memory")

    free = free or Free.of_this_node(gpu)
    upper_bound = bound(data.manifest)
    if upper_bound.placed * processes <= _SURE:
        choice = fitting(upper_bound, processes, free, gpu=gpu)
        if choice.reader == "device":
            return choice

    need = needed(data.folder, data.manifest, dtype)
    choice = fitting(need, processes, free, gpu=gpu)
    if choice.reader == "device":
        return choice

    room = cache_room(data.folder)
    if need.stored <= room:
        return choice
    # `stream` is never selected automatically: its order differs, hence the results.
    hint = f"the cache has room for {in_words(room)}: set training.reader: stream, which needs none"
    return Choice(choice.reader, f"{choice.why}; but {hint}")


def check_room(
    data: Data, reader: str, dtype: str, processes: int = 1, *, gpu: bool = False, free: Free | None = None
) -> None:
    """Refuse a reader that can never have the memory for its data; see `choose` for the arguments.

    Raises:
        UserError: If the data take more than this process may ever use.
    """
    if reader not in ("device", "memory") or not data.on_disk:
        return
    free = free or Free.of_this_node(gpu)
    if bound(data.manifest).placed * 2 * processes <= min(_SURE, free.most):
        return

    need = needed(data.folder, data.manifest, dtype)
    host = need.stored if reader == "memory" else _host_bytes(need, processes, gpu=gpu)
    if host > free.most:
        raise UserError(
            f"reader {reader} would hold {in_words(host)} of {data.manifest.name}, more than the {in_words(free.most)} "
            f"of {free.limit or 'the node'}; set training.reader to auto or mapped"
        )


def _host_bytes(need: Need, processes: int, *, gpu: bool) -> int:
    """Return the host memory, in bytes, that the reader `device` takes of a node."""
    # A process holds the data as stored; on the host, also in the run's precision while it reads.
    return processes * (need.stored if gpu else need.stored + need.placed)


def fitting(need: Need, processes: int, free: Free, *, gpu: bool) -> Choice:
    """Return the first of device, memory and mapped that has room for the data."""
    host = _host_bytes(need, processes, gpu=gpu)
    readers = f"{processes} processes of a node, each" if processes > 1 else "one process,"
    free_text = f"{in_words(free.host)} are free"
    if free.limit:
        free_text = f"{free_text} ({free.limit}: {in_words(free.most)})"
    room = MEMORY_FRACTION * free.host

    if gpu and free.gpu is None and host <= room:
        return Choice("device", f"{in_words(need.placed)}, unless the GPU has less than twice that free")
    if host <= room and (free.gpu is None or need.placed <= GPU_SHARE * free.gpu):
        return Choice("device", f"{readers} at most {in_words(host / processes)}; {free_text}")

    if gpu and free.gpu is not None and host <= room:
        free_text = f"{in_words(free.gpu)} are free on the GPU"

    if need.stored <= room:
        reason = (
            f"{in_words(need.stored)} once per node; {readers} {in_words(max(host / processes, need.placed))}: too much"
        )
        return Choice("memory", f"{reason}, {free_text}")
    return Choice("mapped", f"{in_words(need.stored)} are more than a node holds, {free_text}")


def bound(manifest: Manifest) -> Need:
    """Return an upper bound of the bytes of this manifest's data: every number in eight bytes."""
    total = _bytes(manifest, {})
    return Need(total, total)


@functools.lru_cache(maxsize=64)
def _kinds(folder: Path, fingerprint: str, files: tuple[tuple[str, str], ...]) -> dict[str, np.dtype[Any]]:
    """Return `<stream>/<column>` -> the type of its numbers, read from a file of each stream."""
    import pyarrow.parquet as pq

    from mtlscale.data.format.columns import kind_of

    return {
        f"{name}/{field.name}": kind_of(field, {})[0]
        for name, file in files
        for field in pq.read_schema(folder / file)
        if field.name != "id"
    }


def _kinds_of(folder: Path, manifest: Manifest) -> dict[str, np.dtype[Any]] | None:
    """Return the types of the columns' numbers, from the manifest if it lists them; None if they are unknown."""
    import numpy as np

    if manifest.types:
        special_types = {ENCODED: "uint8", RAGGED: "float16"}
        types = {name: np.dtype(special_types.get(kind, kind)) for name, kind in manifest.types.items()}
        return {f"{stream}/{name}": kind for stream in manifest.suite.streams for name, kind in types.items()}
    files = tuple((name, manifest.shards("train", name)[0].path) for name in manifest.suite.streams)
    if not all((folder / file).exists() for _, file in files):
        return None
    return _kinds(folder, manifest.fingerprint, files)


def needed(folder: Path, manifest: Manifest, dtype: str) -> Need:
    """Return the bytes that the data of a prepared folder take."""
    kinds = _kinds_of(folder, manifest)
    if kinds is None:  # an earlier version published the set, and none of its files is on this node yet
        return bound(manifest)

    stored = {name: kind.itemsize for name, kind in kinds.items()}
    placed = {
        name: _WIDTHS[dtype] if kind.kind == "f" else 8 if "/target." in name else kind.itemsize
        for name, kind in kinds.items()
    }

    inputs = {f"{stream}/input": 0 for stream in manifest.suite.streams}  # counted by the size of their files
    if manifest.types.get("input") == ENCODED:
        stored |= inputs
    if manifest.types.get("input") == RAGGED:
        wider = _WIDTHS[dtype] / WIDTH
        return Need(_bytes(manifest, stored | inputs, _PACKED), _bytes(manifest, placed | inputs, _PACKED * wider))

    return Need(_bytes(manifest, stored), _bytes(manifest, placed))


def _bytes(manifest: Manifest, widths: Mapping[str, int], packed: float = 1.0) -> int:
    """Return the bytes of all splits with numbers of the given widths (`<stream>/<column>` -> bytes, default 8)."""
    suite, total = manifest.suite, 0
    for entry in manifest.files:
        _, _, stream = entry.path.partition("/")
        stream = stream.partition("/")[0].removesuffix(".parquet")
        if stream not in suite.streams:
            continue

        row = widths.get(f"{stream}/input", 8) * math.prod(suite.input_shape)
        for task in suite.streams[stream]:
            row += widths.get(f"{stream}/target.{task}", 8) * math.prod(manifest.target_shapes.get(task, ()))

        if manifest.types.get("input") in (ENCODED, RAGGED):
            # `packed`: how many times larger these inputs are than their files.
            total += int(entry.bytes * packed)
        total += entry.rows * (row + widths.get(f"{stream}/weight", 8) * suite.weighted)

    return total
