"""A share of the training samples, as if the set had no more: which those are is a function of their ids alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mtlscale.data.splits import kept, uniform_hash
from mtlscale.spec import TaskSuite

_SPLIT, _SALT = "train", "train share"


def kept_places(ids: Sequence[str], share: float) -> Tensor:
    """The places of the samples that a share keeps (int64, ascending): those whose ids have the smallest hashes, so
    that a larger share adds to a smaller one."""
    order = sorted(range(len(ids)), key=lambda place: (uniform_hash(ids[place], _SALT), place))
    return torch.tensor(sorted(order[: kept(len(ids), share)]), dtype=torch.int64)


class TrainingShare:
    """A share of the training samples of every stream with labels, or of the streams of some tasks. ids: stream -> of
    its samples, in their order."""

    def __init__(
        self, share: float | Mapping[str, float], suite: TaskSuite, ids: Callable[[str], Sequence[str]]
    ) -> None:
        self.share, self.suite = share, suite
        self._ids = ids
        self._known: dict[str, Tensor] = {}

    def of(self, stream: str) -> float:
        return self.share.get(stream, 1.0) if isinstance(self.share, Mapping) else self.share

    def places(self, split: str, stream: str) -> Tensor | None:
        """Where its samples of a stream lie among all of them; None where it keeps all."""
        if split != _SPLIT or not self.suite.streams[stream] or self.of(stream) == 1:
            return None
        if stream not in self._known:
            self._known[stream] = kept_places(self._ids(stream), self.of(stream))
        return self._known[stream]
