"""Page of test sentences with a network's tag of every word beside the true one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Protocol

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem; color: #222; }
p { line-height: 2.6; }
ruby { margin-right: .5em; } rt { font-size: .65em; color: #666; }
.wrong { color: #b00020; text-decoration: underline; } .wrong + rt { color: #b00020; }
"""


class Tagged(Protocol):
    """Words with their true tags and the tags that a network gives them."""

    @property
    def words(self) -> Sequence[str]: ...
    @property
    def truth(self) -> Sequence[str]: ...
    @property
    def guess(self) -> Sequence[str]: ...


def sentences_page(title: str, tagged_by_task: Mapping[str, Sequence[Tagged]]) -> str:
    """Return the page: every word below the tag that the network gives it; wrong tags are red, the true one behind."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
        "<p>Sentences of the test split, each word below the tag that the network gives it; wrong ones are red, "
        "the true tag behind an arrow.</p>",
    ]

    for task, sentences in tagged_by_task.items():
        parts.append(f"<h2>{escape(task)}</h2>")
        parts += [
            f"<p dir=auto>{''.join(map(_word, sentence.words, sentence.guess, sentence.truth))}</p>"
            for sentence in sentences
        ]

    return "\n".join(parts) + "\n"


def _word(word: str, guess: str, truth: str) -> str:
    if guess == truth:
        return f"<ruby><span>{escape(word)}</span><rt>{escape(guess)}</rt></ruby>"
    return f"<ruby><span class=wrong>{escape(word)}</span><rt>{escape(guess)} → {escape(truth)}</rt></ruby>"
