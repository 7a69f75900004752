"""Entities in sequences of tags, counted as `seqeval` counts them in its usual mode.

A tag is a letter of what it is (B, I, E, S, O) and, behind a hyphen, a type; of any other tag, such as NOUN, the first
letter counts as the one and the rest as the other. An entity is a run of tags of one type; I- without a B- before it
begins one. An entity is right where its first and last token and its type are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mtlscale.metrics.accumulators import SumsAccumulator, over_workers
from mtlscale.spec import MISSING_CLASS, Task

_OUTSIDE = "O."  # letters of tags that are no entity
_STARTS = ("B*", "S*", "EE", "EI", "SE", "SI", "OE", "OI")  # letter before, letter; * before: whatever it is
_ENDS = ("E*", "S*", "BB", "BS", "BO", "IB", "IS", "IO")  # letter, letter after; *: whatever it is


class Entities(SumsAccumulator):
    """`f1`: of the entities of all sequences, 2 · right / (true + predicted), a fraction; 0 where there is none.

    Fed with sequences: prediction [B, outputs, L], target [B, L].
    """

    def __init__(self, task: Task) -> None:
        super().__init__(3, torch.int64)
        self.classes = task.classes

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.sums += entity_counts(self.classes, prediction, target).sum(0)

    def compute(self) -> dict[str, float]:
        return {"f1": f1_of(over_workers(self.sums).double()).item()}


def f1_of(counts: Tensor) -> Tensor:
    """Counts [..., 3] of right, predicted and true entities -> their F1 [...], a fraction."""
    both = counts[..., 1] + counts[..., 2]
    return torch.where(both > 0, 2 * counts[..., 0] / both.clamp(min=1), 0.0)


def entity_counts(classes: Sequence[str], prediction: Tensor, target: Tensor) -> Tensor:
    """int64 [B, 3]: right, predicted and true entities of each sequence, of the tokens that have a label alone.
    prediction: [B, outputs, L]; target: [B, L]."""
    if prediction.ndim != 3 or not target.numel():
        return torch.zeros(len(target), 3, dtype=torch.int64, device=target.device)
    counted = target != MISSING_CLASS
    # Tokens with a label come first, in their order, and an O behind them.
    order = torch.argsort((~counted).to(torch.int8), dim=1, stable=True)
    there = counted.gather(1, order)
    guessed, first, kind = _entities(classes, prediction.argmax(1).gather(1, order), there)
    true, true_first, true_kind = _entities(classes, target.gather(1, order), there)
    right = guessed & true & (first == true_first) & (kind == true_kind)
    return torch.stack([right.sum(1), guessed.sum(1), true.sum(1)], 1)


def _entities(classes: Sequence[str], tags: Tensor, there: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each place [B, L + 1]: whether an entity ended before it, where that began, of which type it was.
    tags [B, L] and which of them are `there`."""
    # The last code is that of O, which stands before and behind a sequence.
    letters, types, starts, ends = (table.to(tags.device) for table in _tables((*classes, "O")))
    tags = torch.where(there, tags, len(classes))
    tags = torch.nn.functional.pad(tags, (1, 1), value=len(classes))
    before, now = tags[:, :-1], tags[:, 1:]
    changes = types[before] != types[now]
    begins = starts[letters[before], letters[now]] | (_inside(letters, now) & changes)
    over = ends[letters[before], letters[now]] | (_inside(letters, before) & changes)
    places = torch.arange(now.shape[1], device=tags.device).expand_as(now)
    latest = torch.where(begins, places, 0).cummax(1).values
    previous = torch.nn.functional.pad(latest[:, :-1], (1, 0))
    return over, previous, types[before]


_LETTERS = "BIESO."  # any other is the last, as one


def _inside(letters: Tensor, tags: Tensor) -> Tensor:
    codes = letters[tags]
    return (codes != _LETTERS.index(_OUTSIDE[0])) & (codes != _LETTERS.index(_OUTSIDE[1]))


def _tables(classes: Sequence[str]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Class -> letter, class -> type, and which pairs of letters begin and end an entity."""
    known: dict[str, int] = {}
    letters = [_LETTERS.index(tag[0]) if tag[0] in _LETTERS else len(_LETTERS) for tag in classes]
    types = [known.setdefault(tag[1:].split("-", maxsplit=1)[-1] or "_", len(known)) for tag in classes]
    size = len(_LETTERS) + 1
    starts, ends = torch.zeros(size, size, dtype=torch.bool), torch.zeros(size, size, dtype=torch.bool)
    for table, pairs in ((starts, _STARTS), (ends, _ENDS)):
        for pair in pairs:
            place = _LETTERS.index(pair[0])
            if pair[1] != "*":
                table[place, _LETTERS.index(pair[1])] = True
            elif table is starts:
                table[:, place] = True
            else:
                table[place, :] = True
    return torch.tensor(letters), torch.tensor(types), starts, ends
