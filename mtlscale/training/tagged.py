"""Predictions beside truth, where tasks have a tag for each token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.data import Batch
from mtlscale.spec import MISSING_CLASS, Task, TaskSuite
from mtlscale.training.batches import Batches
from mtlscale.training.session import Session

_UNKNOWN = 1  # id of a word or character that training has not


@dataclass(frozen=True)
class Sentence:
    """The tokens that have a tag, with what is true of each and what a network says."""

    words: tuple[str, ...]
    truth: tuple[str, ...]
    guess: tuple[str, ...]


@torch.no_grad()
def tagged(
    session: Session, suite: TaskSuite, batches: Batches, count: int = 6, split: str = "test"
) -> dict[str, list[Sentence]]:
    """Task -> sentences evenly spread over a split, by the chosen network; nothing where no task is per token."""
    found: dict[str, list[Sentence]] = {}
    if not suite.per_token:
        return found
    sizes = batches.reader.sizes(split)
    with session.chosen():
        session.model.eval()
        for stream, names in suite.streams.items():
            if not names or not sizes[stream]:
                continue
            index = torch.linspace(0, sizes[stream] - 1, min(count, sizes[stream])).round().long()
            samples = batches.take(split, stream, index)
            predictions = session.model(Batch(stream, samples, len(index))).predictions
            for task in (task for task in suite.tasks if task.name in names):
                truth, guess = samples.targets[task.name].cpu(), predictions[task.name].argmax(1).cpu()
                rows = zip(samples.inputs.cpu(), truth, guess, strict=True)
                found[task.name] = [_sentence(suite, task, *row) for row in rows]
    return found


def _sentence(suite: TaskSuite, task: Task, inputs: Tensor, truth: Tensor, guess: Tensor) -> Sentence:
    places = (truth != MISSING_CLASS).nonzero()[:, 0].tolist()
    known = task.classes or tuple(str(code) for code in range(task.outputs))
    return Sentence(
        tuple(_word(suite, inputs[place], place) for place in places),
        tuple(known[code] for code in truth[places].tolist()),
        tuple(known[code] for code in guess[places].tolist()),
    )


def _word(suite: TaskSuite, token: Tensor, place: int) -> str:
    """As the set knows it, one that training has not by its characters; else its place, from 1."""
    words, letters = suite.extras.get("vocabulary"), suite.extras.get("characters")
    if words is None or token.is_floating_point():
        return str(place + 1)
    code, *spelled = token.reshape(-1).tolist()
    return _spelling(letters, spelled) if code == _UNKNOWN and letters and spelled else str(words[code])


def _spelling(letters: list[str], codes: Iterable[int]) -> str:
    return "".join("\N{REPLACEMENT CHARACTER}" if code == _UNKNOWN else letters[code - 2] for code in codes if code)
