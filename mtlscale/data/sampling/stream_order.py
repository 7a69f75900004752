"""The order of a streamed set: shuffled at two levels, a pure function of the seed and the epoch.

Rows lie in blocks, in the order of their files. The blocks of a pass are permuted, a number of consecutive blocks forms
a window, and the rows of a window are permuted: a reader that holds one window at a time can give all samples in this
order. A stream of one window has a full permutation. Works without torch, for processes that read and do not train.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RowIndices = NDArray[np.int64]


def _random(key: str) -> np.random.RandomState:
    # numpy guarantees the same numbers in all its versions for this generator only.
    return np.random.RandomState(np.frombuffer(hashlib.blake2b(key.encode(), digest_size=32).digest(), np.uint32))


@dataclass(frozen=True, eq=False)
class StreamOrder:
    """The order of all rows that a stream gives in an epoch, one pass after another.

    * `starts` [blocks + 1]: the first row of each block, and the number of rows.
    * `window`: the number of blocks in a window.
    * `total_rows`: the number of rows in the epoch.
    """

    starts: RowIndices
    window: int
    key: str
    total_rows: int

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @property
    def per_pass(self) -> int:
        """The windows of a pass."""
        return -(-(len(self.starts) - 1) // self.window)

    def span(self, number: int) -> tuple[int, int]:
        """Return the range of positions in the epoch that the rows of a window take."""
        turn, index = divmod(number, self.per_pass)
        edges = self._pass(turn)[1]
        return turn * self.size + int(edges[index]), min(self.total_rows, turn * self.size + int(edges[index + 1]))

    def rows(self, number: int) -> RowIndices:
        """Return the rows of a window in order."""
        turn, index = divmod(number, self.per_pass)
        blocks = self._pass(turn)[0][index * self.window : (index + 1) * self.window]
        rows = np.concatenate([np.arange(self.starts[block], self.starts[block + 1]) for block in blocks])

        first, end = self.span(number)
        return rows[_random(f"{self.key}/{turn}/{index}").permutation(len(rows))][: end - first]

    def windows(self, start: int = 0) -> Iterator[int]:
        """Yield the windows of the epoch in order, beginning with the one that contains position `start`."""
        number = start // self.size * self.per_pass
        while (span := self.span(number))[0] < self.total_rows:
            if span[1] > start:
                yield number
            number += 1

    def _pass(self, turn: int) -> tuple[RowIndices, RowIndices]:
        """Return the blocks of a pass in order, and the starts of its windows in it, with the end."""
        return _passed(self, turn)


@functools.lru_cache(maxsize=64)
def _passed(order: StreamOrder, turn: int) -> tuple[RowIndices, RowIndices]:
    blocks = _random(f"{order.key}/{turn}").permutation(len(order.starts) - 1)
    ends = np.cumsum(np.diff(order.starts)[blocks])
    return blocks, np.concatenate([[0], ends[order.window - 1 :: order.window], ends[-1:]])[: order.per_pass + 1]


def cut(windows: Iterator[RowIndices], size: int, skip: int) -> Iterator[RowIndices]:
    """Yield consecutive slices of `size` rows; the last may be short.

    Args:
        windows: The rows of each window.
        skip: The number of rows to leave out at the beginning.
    """
    waiting, row_count = [], 0
    for rows in windows:
        rows, skip = rows[skip:], max(0, skip - len(rows))
        waiting.append(rows)
        row_count += len(rows)
        if row_count < size:
            continue

        joined = np.concatenate(waiting)
        full = row_count // size * size
        yield from joined[:full].reshape(-1, size)
        waiting, row_count = [joined[full:]], row_count - full

    if row_count:
        yield np.concatenate(waiting)


@dataclass(frozen=True, eq=False)
class Item:
    """The unit of reading: rows of a stream, and the part of each worker, in its order."""

    number: int
    stream: str
    parts: tuple[RowIndices, ...]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The items that pass by in the training steps of an epoch from step `start` on, for `world` workers.

    `batches` holds the samples of each stream in a step. Items come in the order of the step that first needs them.
    """

    orders: Mapping[str, StreamOrder]
    batches: Mapping[str, int]
    start: int
    world: int

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> Item:
        stream, windows = self._items[number]
        order, batch = self.orders[stream], self.batches[stream]
        first = order.span(windows[0])[0]
        rows = np.concatenate([order.rows(window) for window in windows])

        positions = np.arange(first, first + len(rows))
        worker = np.where(positions < self.start * batch, -1, _worker(positions, batch, order.total_rows, self.world))
        return Item(number, stream, tuple(rows[worker == rank] for rank in range(self.world)))

    @functools.cached_property
    def _items(self) -> list[tuple[str, list[int]]]:
        items: list[tuple[int, str, list[int]]] = []
        most = max(order.size // order.per_pass for order in self.orders.values())  # rows of a window

        for stream, order in self.orders.items():
            windows_per_item = max(1, most // order.size) if order.per_pass == 1 else 1  # passes of a small stream
            windows = list(order.windows(self.start * self.batches[stream]))
            for position in range(0, len(windows), windows_per_item):
                group = windows[position : position + windows_per_item]
                items.append((order.span(group[0])[0] // self.batches[stream], stream, group))
        return [(stream, group) for _, stream, group in sorted(items, key=lambda item: item[0])]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_items"}


def _worker(rows: RowIndices, batch: int, row_count: int, world: int) -> RowIndices:
    """Return the worker of each position: contiguous parts of each batch, sizes differ by at most 1, larger first."""
    position_in_batch = rows % batch
    length = np.minimum(batch, row_count - (rows - position_in_batch))
    small, larger = length // world, length % world
    edge = larger * (small + 1)
    later_worker = larger + (position_in_batch - edge) // np.maximum(1, small)
    workers: RowIndices = np.where(position_in_batch < edge, position_in_batch // (small + 1), later_worker)
    return workers
