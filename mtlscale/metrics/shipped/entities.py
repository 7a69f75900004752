"""Entities in sequences of tags, counted as `seqeval` counts them in its usual mode.

A tag is a letter for its position in the entity (B, I, E, S, O) and, behind a hyphen, a type; of any other tag, such as
NOUN, the first letter counts as the letter and the remainder as the type. An entity is a run of tags of one type; I-
without a B- before it begins one. An entity is right if its first token, its last token and its type are.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.contract import Metric

_OUTSIDE = "O."  # letters of tags outside entities
_STARTS = ("B*", "S*", "EE", "EI", "SE", "SI", "OE", "OI")  # letter before, letter; B*: B after any letter
_ENDS = ("E*", "S*", "BB", "BS", "BO", "IB", "IS", "IO")  # letter, letter after; E*: E before any letter


class EntityF1(Metric):
    """Micro F1 of entities in sequences of IOB2 tags, right in type, first and last token; of other tags runs of one.

    2 · right / (true + predicted), as `seqeval` counts them; 0 without entities.
    """

    name = "entity_f1"
    higher_is_better = True
    losses = ("cross_entropy",)
    unit = "%"
    of_tokens = True

    def item_sums(self, task: Task, prediction: Tensor, target: Tensor, items: int) -> Tensor:
        return entity_counts(task.classes, prediction, target).double().reshape(items, -1, 3).sum(1)

    def finish(self, task: Task, sums: Tensor) -> float:
        right, predicted, true = sums.tolist()
        return 100.0 * (2 * right / (predicted + true)) if predicted + true else 0.0


def entity_counts(classes: Sequence[str], prediction: Tensor, target: Tensor) -> Tensor:
    """Return the right, predicted and true entities of each sequence, int64 [B, 3].

    Only the tokens with a label count.

    Args:
        classes: The tags of the classes.
        prediction: [B, outputs, L].
        target: [B, L].
    """
    if prediction.ndim != 3 or not target.numel():
        return torch.zeros(len(target), 3, dtype=torch.int64, device=target.device)
    counted = target != MISSING_CLASS
    # Tokens with a label come first, in their order, and an O behind them.
    order = torch.argsort((~counted).to(torch.int8), dim=1, stable=True)
    present = counted.gather(1, order)

    predicted, predicted_first, predicted_kind = _entities(classes, prediction.argmax(1).gather(1, order), present)
    true, true_first, true_kind = _entities(classes, target.gather(1, order), present)

    right = predicted & true & (predicted_first == true_first) & (predicted_kind == true_kind)
    return torch.stack([right.sum(1), predicted.sum(1), true.sum(1)], 1)


def _entities(classes: Sequence[str], tags: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether an entity ended before each position [B, L + 1], its first token, and its type."""
    # The last code is that of O, which is added before and behind a sequence.
    letters, types, starts, ends = (table.to(tags.device) for table in _tables((*classes, "O")))
    tags = torch.where(mask, tags, len(classes))
    tags = torch.nn.functional.pad(tags, (1, 1), value=len(classes))

    before, current = tags[:, :-1], tags[:, 1:]
    changes = types[before] != types[current]
    begins = starts[letters[before], letters[current]] | (_inside(letters, current) & changes)
    ended = ends[letters[before], letters[current]] | (_inside(letters, before) & changes)

    positions = torch.arange(current.shape[1], device=tags.device).expand_as(current)
    latest_start = torch.where(begins, positions, 0).cummax(1).values
    start_before = torch.nn.functional.pad(latest_start[:, :-1], (1, 0))
    return ended, start_before, types[before]


_LETTERS = "BIESO."  # every other letter gets one code, the one behind them


def _inside(letters: Tensor, tags: Tensor) -> Tensor:
    codes = letters[tags]
    return (codes != _LETTERS.index(_OUTSIDE[0])) & (codes != _LETTERS.index(_OUTSIDE[1]))


def _tables(classes: Sequence[str]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return class -> letter, class -> type, and the pairs of letters that begin and end an entity."""
    type_codes: dict[str, int] = {}
    letters = [_LETTERS.index(tag[0]) if tag[0] in _LETTERS else len(_LETTERS) for tag in classes]
    types = [type_codes.setdefault(tag[1:].split("-", maxsplit=1)[-1] or "_", len(type_codes)) for tag in classes]

    size = len(_LETTERS) + 1
    starts, ends = torch.zeros(size, size, dtype=torch.bool), torch.zeros(size, size, dtype=torch.bool)
    for table, pairs in ((starts, _STARTS), (ends, _ENDS)):
        for pair in pairs:
            row = _LETTERS.index(pair[0])
            if pair[1] != "*":
                table[row, _LETTERS.index(pair[1])] = True
            elif table is starts:
                table[:, row] = True
            else:
                table[row, :] = True

    return torch.tensor(letters), torch.tensor(types), starts, ends
