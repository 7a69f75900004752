"""The reader `stream`: shards are read window by window while a run trains, and no part of the set is kept.

The order of a training epoch is that of `WindowSampler`. A source of pieces reads ahead in this order and hands each
worker its pieces: this process, or another implementation of `Pieces`, such as the tasks of a cluster. Each arriving
row is compared with the one that the step expects. Other splits are read in file order, a row group at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.data.batches import Samples
from mtlscale.data.readers.cache import verify
from mtlscale.data.readers.prepared import PreparedData, as_stored
from mtlscale.data.readers.shards import Columns, Shards
from mtlscale.data.remote import elsewhere, origin_of
from mtlscale.data.sampling.stream_order import EpochPlan, RowIndices

_GROUPS = 2  # row groups that are kept of splits read in order


@dataclass(frozen=True, eq=False)
class StreamChunk:
    """Part of an item for one worker: rows of a stream, and their columns."""

    number: int
    rank: int
    stream: str
    rows: RowIndices
    columns: Columns


class Pieces(Protocol):
    """The interface of a source of pieces for an epoch; all workers of a run call it at once."""

    def __call__(self, shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        """Yield this worker's piece of every item, in order.

        Args:
            shards: Stream -> its shards.
        """
        ...


def pieces_here(shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
    """Read the pieces in this process, each when it is needed."""
    for number in range(len(plan)):
        item = plan[number]
        rows = item.parts[rank]
        yield StreamChunk(number, rank, item.stream, rows, shards[item.stream].read(rows))


class Feed:
    """The pieces of an epoch for one worker, cut to the size of its steps."""

    def __init__(self, pieces: Generator[StreamChunk, None, None], shards: Mapping[str, Shards], rank: int) -> None:
        self._pieces, self._shards, self._rank = pieces, shards, rank
        self._waiting: dict[str, list[tuple[RowIndices, Columns]]] = {stream: [] for stream in shards}
        self._next = 0

    def take(self, stream: str, index: Tensor) -> Columns:
        """Return the next columns of a stream, copied.

        Raises:
            RuntimeError: If they are not those of the rows `index` [B].
        """
        expected_rows, parts = index.numpy(), []

        missing = len(expected_rows)
        while missing:
            rows, columns = self._first(stream)
            if len(rows) > missing:
                self._waiting[stream].insert(
                    0, (rows[missing:], {key: values[missing:] for key, values in columns.items()})
                )
                rows, columns = rows[:missing], {key: values[:missing] for key, values in columns.items()}
            missing -= len(rows)
            parts.append((rows, columns))

        if not parts:
            return {column.name: column.empty(0) for column in self._shards[stream].columns}
        if not np.array_equal(np.concatenate([rows for rows, _ in parts]), expected_rows):
            raise RuntimeError(f"stream {stream}: the rows that passed by are not those of this step")
        return {name: np.concatenate([columns[name] for _, columns in parts]) for name in parts[0][1]}

    def _first(self, stream: str) -> tuple[RowIndices, Columns]:
        waiting = self._waiting
        while not waiting[stream]:
            piece = next(self._pieces, None)
            if piece is None:
                raise RuntimeError(f"stream {stream}: nothing more passes by after {self._next} pieces")
            if (piece.number, piece.rank) != (self._next, self._rank):
                raise RuntimeError(
                    f"worker {self._rank} got piece {piece.number} of worker {piece.rank} instead of its {self._next}"
                )
            self._next += 1
            if len(piece.rows):
                waiting[piece.stream].append((piece.rows, piece.columns))
        return waiting[stream].pop(0)

    def close(self) -> None:
        """Stop reading."""
        self._pieces.close()


class StreamReader:
    """Reader of shards that pass by; `pieces` is the source for the training steps, None for this process."""

    name, ahead = "stream", True

    def __init__(
        self, data: PreparedData, device: torch.device, dtype: torch.dtype, pieces: Pieces | None = None
    ) -> None:
        self._data, self._pieces = data, pieces or pieces_here
        self._device, self._dtype = device, dtype
        self._opened: dict[str, dict[str, Shards]] = {}
        self._group = lru_cache(maxsize=_GROUPS)(self._read_group)

    def sizes(self, split: str) -> dict[str, int]:
        return {stream: len(shards) for stream, shards in self._of(split).items()}

    def starts(self, split: str) -> dict[str, RowIndices]:
        """Return stream -> the starts of the blocks that stay together, and the number of rows."""
        return {stream: shards.starts for stream, shards in self._of(split).items()}

    def feed(self, plan: EpochPlan, rank: int) -> Feed:
        """Return the feed of a worker for the training steps of an epoch; all workers open theirs at once."""
        shards = self._of("train")
        return Feed(self._pieces(shards, plan, rank), shards, rank)

    def take(self, split: str, stream: str, index: Tensor) -> Samples:
        """Return samples at indices in order, or at a few: a row group is read for each of them."""
        columns = self._of(split)[stream].read(index.numpy(), lambda place: self._group(split, stream, place))
        return self.samples(split, stream, index, columns)

    def samples(self, split: str, stream: str, index: Tensor, columns: Columns) -> Samples:
        """Build the samples at these indices from their columns."""
        tensors = {name: torch.from_numpy(values) for name, values in columns.items()}
        samples = as_stored(tensors, self._data.manifest, self._data.suite.streams[stream])
        return samples if self._data.noise is None else self._data.noise.of(split, stream, samples, index)

    def targets(self, split: str, caller: str) -> dict[str, Tensor]:
        labels_by_task: dict[str, Tensor] = {}
        for stream, shards in self._of(split).items():
            names = tuple(f"target.{task}" for task in self._data.suite.streams[stream])
            if any(column.shape for column in shards.columns if column.name in names):
                raise self._refusal(caller, "all training labels at once", "memory or device")
            groups = [shards.group(group_index, names) for group_index in range(len(shards.number) if names else 0)]
            labels = {name: torch.from_numpy(np.concatenate([group[name] for group in groups])) for name in names}
            labels_by_task |= {name.removeprefix("target."): self._label(label) for name, label in labels.items()}

        noise, streams = self._data.noise, self._data.suite.streams
        if noise is None:
            return labels_by_task
        return {
            name: label
            for labelled_stream in streams
            for name, label in noise.labels(split, labelled_stream, labels_by_task, streams[labelled_stream]).items()
        }

    def whole(self, split: str, caller: str) -> Mapping[str, Samples]:
        raise self._refusal(caller, "the whole training set at once", "memory or device")

    def refuse_halves(self, caller: str) -> UserError:
        """Return the error for a component that works on two halves of the training data.

        The samples of a half are scattered over the shards.
        """
        return self._refusal(caller, "two halves of the training set", "mapped, memory or device")

    def _refusal(self, caller: str, content: str, alternatives: str) -> UserError:
        return UserError(
            f"{caller} needs {content}, which the reader stream does not hold; set training.reader to {alternatives}, "
            "or use another method"
        )

    def _label(self, label: Tensor) -> Tensor:
        return label.to(self._device, self._dtype if label.is_floating_point() else torch.int64)

    def _of(self, split: str) -> dict[str, Shards]:
        if split not in self._opened:
            data = self._data
            url = origin_of(data.folder)
            if not elsewhere(data.folder, data.manifest, split):
                verify(data.folder, data.manifest, split)
            streams = data.suite.streams
            self._opened[split] = {
                stream: Shards.of(data.folder, data.manifest, split, stream, url) for stream in streams
            }
        return self._opened[split]

    def _read_group(self, split: str, stream: str, index: int) -> Columns:
        return self._of(split)[stream].group(index)
