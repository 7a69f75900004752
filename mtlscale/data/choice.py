"""Which reader a run gets: what its data take, beside the memory there is."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mtlscale.data.cache import cache_room, in_words
from mtlscale.data.columns import ENCODED, RAGGED, WIDTH

if TYPE_CHECKING:
    import numpy as np

    from mtlscale.data.manifest import Manifest

SHARE = 0.7  # of the memory that is free, which data may take; networks and their gradients want the rest
GPU_SHARE = 0.5
_WIDTHS = {"float32": 4, "float64": 8}
_PACKED = 1.5  # how much smaller the files of float16 vectors may be, at most
_SURE = 1 << 28  # bytes of data for which nobody looks twice
_CGROUP = Path("/sys/fs/cgroup/memory.max")


class Data(Protocol):
    """What has to be known of prepared data."""

    @property
    def folder(self) -> Path: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def on_disk(self) -> bool: ...


@dataclass(frozen=True)
class OnDisk:
    """Prepared data that nobody has opened yet."""

    folder: Path
    manifest: Manifest
    on_disk: bool = True


@dataclass(frozen=True)
class Need:
    """Bytes of all splits: as they are stored, and in a run's precision."""

    stored: int
    placed: int


@dataclass(frozen=True)
class Free:
    """Bytes free on a node, and on its GPU where it has one and anybody can tell."""

    host: int
    gpu: int | None = None

    @classmethod
    def here(cls, gpu: bool) -> Free:
        import psutil

        host = int(psutil.virtual_memory().available)
        limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
        if limit != "max":  # of this container
            host = min(host, int(limit) - psutil.Process().memory_info().rss)
        found = None
        if gpu and "torch" in sys.modules:  # a driver need not load it
            import torch

            found = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None
        return cls(host, found)


@dataclass(frozen=True)
class Choice:
    """A reader, and why it is that one."""

    reader: str
    why: str

    def __str__(self) -> str:
        return f"reader {self.reader} ({self.why})"


def choose(
    data: Data, setting: str, dtype: str, processes: int = 1, *, gpu: bool = False, free: Free | None = None
) -> Choice:
    """The reader of a setting, for so many processes on this node that read the data."""
    if setting != "auto":
        return Choice(setting, "as the experiment says")
    if not data.on_disk:
        return Choice("device", "the data are in memory")
    free = free or Free.here(gpu)
    most = bound(data.manifest)
    if most.placed * processes <= _SURE:
        choice = fitting(most, processes, free, gpu=gpu)
        if choice.reader == "device":
            return choice
    need = needed(data.folder, data.manifest, dtype)
    choice = fitting(need, processes, free, gpu=gpu)
    if choice.reader == "device":
        return choice
    room = cache_room(data.folder)
    if need.stored <= room:
        return choice
    # It is not taken unasked: it gives another order, hence other results.
    hint = f"the cache has room for {in_words(room)}: set training.reader: stream, which needs none"
    return Choice(choice.reader, f"{choice.why}; but {hint}")


def fitting(need: Need, processes: int, free: Free, *, gpu: bool) -> Choice:
    """The first of device, memory and mapped that has room for the data."""
    # A process holds them as stored, on a GPU in the run's precision, too; on the host it does while it reads.
    host = processes * (need.stored if gpu else need.stored + need.placed)
    each = f"{processes} processes of a node, each" if processes > 1 else "one process,"
    have = f"{in_words(free.host)} are free"
    room = SHARE * free.host
    if gpu and free.gpu is None and host <= room:
        return Choice("device", f"{in_words(need.placed)}, unless the GPU has less than twice that free")
    if host <= room and (free.gpu is None or need.placed <= GPU_SHARE * free.gpu):
        return Choice("device", f"{each} at most {in_words(host / processes)}; {have}")
    if gpu and free.gpu is not None and host <= room:
        have = f"{in_words(free.gpu)} are free on the GPU"
    if need.stored <= room:
        why = f"{in_words(need.stored)} once per node; {each} {in_words(max(host / processes, need.placed))}: too much"
        return Choice("memory", f"{why}, {have}")
    return Choice("mapped", f"{in_words(need.stored)} are more than a node holds, {have}")


def bound(manifest: Manifest) -> Need:
    """No data of this manifest take more: every number in eight bytes."""
    total = _bytes(manifest, {})
    return Need(total, total)


@functools.lru_cache(maxsize=64)
def _kinds(folder: Path, fingerprint: str, files: tuple[tuple[str, str], ...]) -> dict[str, np.dtype[Any]]:
    """`<stream>/<column>` -> the type of its numbers, from a file of each stream."""
    import pyarrow.parquet as pq

    from mtlscale.data.columns import kind_of

    return {
        f"{name}/{field.name}": kind_of(field, {})[0]
        for name, file in files
        for field in pq.read_schema(folder / file)
        if field.name != "id"
    }


def _kinds_of(folder: Path, manifest: Manifest) -> dict[str, np.dtype[Any]] | None:
    """The same from the manifest where it says; None where nobody can."""
    import numpy as np

    if manifest.types:
        others = {ENCODED: "uint8", RAGGED: "float16"}
        types = {name: np.dtype(others.get(kind, kind)) for name, kind in manifest.types.items()}
        return {f"{stream}/{name}": kind for stream in manifest.suite.streams for name, kind in types.items()}
    files = tuple((name, manifest.shards("train", name)[0].path) for name in manifest.suite.streams)
    if not all((folder / file).exists() for _, file in files):
        return None
    return _kinds(folder, manifest.fingerprint, files)


def needed(folder: Path, manifest: Manifest, dtype: str) -> Need:
    """What the data of a prepared folder take."""
    kinds = _kinds_of(folder, manifest)
    if kinds is None:  # an earlier version published it, and nothing of it is here yet
        return bound(manifest)
    stored = {name: kind.itemsize for name, kind in kinds.items()}
    placed = {
        name: _WIDTHS[dtype] if kind.kind == "f" else 8 if "/target." in name else kind.itemsize
        for name, kind in kinds.items()
    }
    inputs = {f"{stream}/input": 0 for stream in manifest.suite.streams}  # they are in the files as they are
    if manifest.types.get("input") == ENCODED:
        stored |= inputs
    if manifest.types.get("input") == RAGGED:
        wider = _WIDTHS[dtype] / WIDTH
        return Need(_bytes(manifest, stored | inputs, _PACKED), _bytes(manifest, placed | inputs, _PACKED * wider))
    return Need(_bytes(manifest, stored), _bytes(manifest, placed))


def _bytes(manifest: Manifest, widths: Mapping[str, int], packed: float = 1.0) -> int:
    """Bytes of all splits with numbers of these widths; 8 where nothing is said. packed: how much larger inputs are
    than their files, where these have them as they are."""
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
            total += int(entry.bytes * packed)
        total += entry.rows * (row + widths.get(f"{stream}/weight", 8) * suite.weighted)
    return total
