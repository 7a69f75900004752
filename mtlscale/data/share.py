"""A share of the training samples, as if the set had no more: which those are is a function of their ids alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mtlscale.data.batches import Samples
from mtlscale.data.splits import kept, uniform_hash
from mtlscale.spec import MISSING_CLASS, TaskSuite, UserError

if TYPE_CHECKING:
    from mtlscale.data.readers import Reader

_SPLIT, _SALT = "train", "train share"
_LOOK = 256  # samples that are looked at at a time


def kept_places(ids: Sequence[str], share: float) -> Tensor:
    """The places of the samples that a share keeps (int64, ascending): those whose ids have the smallest hashes, so
    that a larger share adds to a smaller one."""
    order = sorted(range(len(ids)), key=lambda place: (uniform_hash(ids[place], _SALT), place))
    return torch.tensor(sorted(order[: kept(len(ids), share)]), dtype=torch.int64)


class TrainingShare:
    """A share of the training samples of every stream with labels. ids: stream -> of its samples, in their order."""

    def __init__(self, share: float, suite: TaskSuite, ids: Callable[[str], Sequence[str]]) -> None:
        self.share, self.suite = share, suite
        self._ids = ids
        self._known: dict[str, Tensor] = {}

    def places(self, split: str, stream: str) -> Tensor | None:
        """Where its samples of a stream lie among all of them; None where it keeps all."""
        if split != _SPLIT or not self.suite.streams[stream]:
            return None
        if stream not in self._known:
            self._known[stream] = kept_places(self._ids(stream), self.share)
        return self._known[stream]


class ShareReader:
    """What a reader has, and a share of its training samples. `UserError` where a task has no label among those."""

    def __init__(self, reader: Reader, share: TrainingShare) -> None:
        self.name, self.ahead = reader.name, reader.ahead
        self._reader, self._share = reader, share
        for stream, tasks in share.suite.streams.items():
            for task in tasks:
                if not self._labelled(stream, task):
                    raise UserError(
                        f"train: {share.share:g} of the samples of {share.suite.name} leaves task {task} without a "
                        "label; use a larger share"
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

    def whole(self, split: str, who: str) -> Mapping[str, Samples]:
        found = dict(self._reader.whole(split, who))
        for stream, samples in found.items():
            at = self._share.places(split, stream)
            if at is not None:
                found[stream] = samples.take(at.to(samples.inputs.device))
        return found

    def _labelled(self, stream: str, task: str) -> bool:
        for part in torch.arange(self.sizes(_SPLIT)[stream]).split(_LOOK):
            target = self.take(_SPLIT, stream, part).targets[task]
            there = ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
            if there.any():
                return True
        return False
