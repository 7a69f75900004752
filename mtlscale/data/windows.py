"""The order of a set that passes by: shuffled at two levels, a pure function of the seed and the epoch.

Rows lie in blocks, in the order of their files. The blocks of a pass are permuted, so many of them at a time form a
window, and the rows of a window are permuted: whoever holds a window at a time can give all samples in this order. A
stream of one window has a full permutation. Works without torch, for those that read and do not train.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def _random(key: str) -> np.random.RandomState:
    # numpy promises the numbers of this generator, and of no other, for all its versions.
    return np.random.RandomState(np.frombuffer(hashlib.blake2b(key.encode(), digest_size=32).digest(), np.uint32))


@dataclass(frozen=True, eq=False)
class Order:
    """All the rows that a stream gives in an epoch, one pass after another.

    starts [blocks + 1]: where blocks begin, and the number of rows; window: blocks; wanted: rows of the epoch.
    """

    starts: Rows
    window: int
    key: str
    wanted: int

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @property
    def per_pass(self) -> int:
        """Windows of a pass."""
        return -(-(len(self.starts) - 1) // self.window)

    def span(self, number: int) -> tuple[int, int]:
        """The places in the epoch that the rows of a window take."""
        turn, place = divmod(number, self.per_pass)
        edges = self._pass(turn)[1]
        return turn * self.size + int(edges[place]), min(self.wanted, turn * self.size + int(edges[place + 1]))

    def rows(self, number: int) -> Rows:
        """The rows of a window in order."""
        turn, place = divmod(number, self.per_pass)
        blocks = self._pass(turn)[0][place * self.window : (place + 1) * self.window]
        rows = np.concatenate([np.arange(self.starts[block], self.starts[block + 1]) for block in blocks])
        first, end = self.span(number)
        return rows[_random(f"{self.key}/{turn}/{place}").permutation(len(rows))][: end - first]

    def windows(self, start: int = 0) -> Iterator[int]:
        """The windows of the epoch in order, from the one that has place `start` on."""
        number = start // self.size * self.per_pass
        while (span := self.span(number))[0] < self.wanted:
            if span[1] > start:
                yield number
            number += 1

    def _pass(self, turn: int) -> tuple[Rows, Rows]:
        """The blocks of a pass in order, and where its windows begin in it, with the end."""
        return _passed(self, turn)


@functools.lru_cache(maxsize=64)
def _passed(order: Order, turn: int) -> tuple[Rows, Rows]:
    blocks = _random(f"{order.key}/{turn}").permutation(len(order.starts) - 1)
    ends = np.cumsum(np.diff(order.starts)[blocks])
    return blocks, np.concatenate([[0], ends[order.window - 1 :: order.window], ends[-1:]])[: order.per_pass + 1]


def cut(windows: Iterator[Rows], size: int, skip: int) -> Iterator[Rows]:
    """Consecutive slices of so many rows; the last may be short. skip: rows to leave out first."""
    waiting, there = [], 0
    for rows in windows:
        rows, skip = rows[skip:], max(0, skip - len(rows))
        waiting.append(rows)
        there += len(rows)
        if there < size:
            continue
        whole = np.concatenate(waiting)
        full = there // size * size
        yield from whole[:full].reshape(-1, size)
        waiting, there = [whole[full:]], there - full
    if there:
        yield np.concatenate(waiting)


@dataclass(frozen=True, eq=False)
class Item:
    """What is read at once: rows of a stream, and which of them each worker gets, in its order."""

    number: int
    stream: str
    parts: tuple[Rows, ...]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What passes by in the training steps of an epoch from step `start` on, item by item, for so many workers.

    batches: samples of each stream in a step. Items come in the order of the step that first needs them.
    """

    orders: Mapping[str, Order]
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
        place = np.arange(first, first + len(rows))
        worker = np.where(place < self.start * batch, -1, _worker(place, batch, order.wanted, self.world))
        return Item(number, stream, tuple(rows[worker == rank] for rank in range(self.world)))

    @functools.cached_property
    def _items(self) -> list[tuple[str, list[int]]]:
        found: list[tuple[int, str, list[int]]] = []
        most = max(order.size // order.per_pass for order in self.orders.values())  # rows of a window
        for stream, order in self.orders.items():
            together = max(1, most // order.size) if order.per_pass == 1 else 1  # passes of a small stream
            windows = list(order.windows(self.start * self.batches[stream]))
            for place in range(0, len(windows), together):
                group = windows[place : place + together]
                found.append((order.span(group[0])[0] // self.batches[stream], stream, group))
        return [(stream, group) for _, stream, group in sorted(found, key=lambda item: item[0])]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_items"}


def _worker(place: Rows, batch: int, wanted: int, world: int) -> Rows:
    """Which worker has the sample at each of these places in the epoch: contiguous parts of each batch, whose sizes
    differ by at most one, the larger ones first."""
    within = place % batch
    length = np.minimum(batch, wanted - (place - within))
    small, larger = length // world, length % world
    edge = larger * (small + 1)
    behind = larger + (within - edge) // np.maximum(1, small)
    found: Rows = np.where(within < edge, within // (small + 1), behind)
    return found
