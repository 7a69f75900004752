"""Predictions beside the truth, for tasks with a tag for each token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task, TaskSuite
from mtlscale.data import Batch
from mtlscale.training.batches import Batches
from mtlscale.training.engine.session import Session

_UNKNOWN = 1  # id of a word or character that is not in the training set


@dataclass(frozen=True)
class Sentence:
    """Tokens that have a tag, with the true tag of each and the network's guess."""

    words: tuple[str, ...]
    truth: tuple[str, ...]
    guess: tuple[str, ...]


@torch.no_grad()
def tagged(
    session: Session, suite: TaskSuite, batches: Batches, count: int = 6, split: str = "test"
) -> dict[str, list[Sentence]]:
    """Return task -> sentences evenly spread over a split, by the chosen network.

    It is empty where no task is per token.
    """
    sentences: dict[str, list[Sentence]] = {}
    if not suite.per_token:
        return sentences

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
                sentences[task.name] = [_sentence(suite, task, *row) for row in rows]

    return sentences


def _sentence(suite: TaskSuite, task: Task, inputs: Tensor, truth: Tensor, guess: Tensor) -> Sentence:
    positions = (truth != MISSING_CLASS).nonzero()[:, 0].tolist()
    class_names = task.classes or tuple(str(code) for code in range(task.outputs))
    return Sentence(
        tuple(_word(suite, inputs[position], position) for position in positions),
        tuple(class_names[code] for code in truth[positions].tolist()),
        tuple(class_names[code] for code in guess[positions].tolist()),
    )


def _word(suite: TaskSuite, token: Tensor, place: int) -> str:
    """Return a word of the vocabulary, spelled out if training has not seen it; without one, its position from 1."""
    words, letters = suite.extras.get("vocabulary"), suite.extras.get("characters")
    if words is None or token.is_floating_point():
        return str(place + 1)
    code, *spelled = token.reshape(-1).tolist()
    return _spelling(letters, spelled) if code == _UNKNOWN and letters and spelled else str(words[code])


def _spelling(letters: list[str], codes: Iterable[int]) -> str:
    return "".join("\N{REPLACEMENT CHARACTER}" if code == _UNKNOWN else letters[code - 2] for code in codes if code)
