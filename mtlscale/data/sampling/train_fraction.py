"""Training on a share of the samples, as if the set had no more; the choice is a function of their ids alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mtlscale.config import TaskSuite
from mtlscale.data.sampling.splits import kept_count, uniform_hash

_SPLIT, _SALT = "train", "train share"


def kept_indices(ids: Sequence[str], fraction: float) -> Tensor:
    """Return the indices of the samples that a share keeps (int64, ascending).

    They are those whose ids have the smallest hashes, so that a larger share adds to a smaller one.
    """
    order = sorted(range(len(ids)), key=lambda place: (uniform_hash(ids[place], _SALT), place))
    return torch.tensor(sorted(order[: kept_count(len(ids), fraction)]), dtype=torch.int64)


class TrainFraction:
    """The share of the training samples of every stream with labels, or of the streams of some tasks.

    `ids` maps a stream to its samples' ids, in their order.
    """

    def __init__(
        self, fraction: float | Mapping[str, float], suite: TaskSuite, ids: Callable[[str], Sequence[str]]
    ) -> None:
        self.fraction, self.suite = fraction, suite
        self._ids = ids
        self._known: dict[str, Tensor] = {}

    def of(self, stream: str) -> float:
        return self.fraction.get(stream, 1.0) if isinstance(self.fraction, Mapping) else self.fraction

    def places(self, split: str, stream: str) -> Tensor | None:
        """Return the indices of a stream's kept samples among all of them; None if all are kept."""
        if split != _SPLIT or not self.suite.streams[stream] or self.of(stream) == 1:
            return None
        if stream not in self._known:
            self._known[stream] = kept_indices(self._ids(stream), self.of(stream))
        return self._known[stream]
