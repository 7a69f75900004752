"""Sentences of words with a tag each, as files have them: lines of columns, a blank line behind every sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Problems = list[tuple[str, str]]
OUTSIDE, BEGINS, INSIDE = "O", "B-", "I-"
_DOCUMENT = "-DOCSTART-"  # a line of its own between the documents of CoNLL 2002 and 2003


class Unusable(Exception):
    """Why a sentence cannot be used, and the line that makes it so."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line, self.problem = line, problem

    def at(self, where: str) -> tuple[str, str]:
        return f"{where} line {self.line}", self.problem


class Sentence(NamedTuple):
    """Words and as many tags; line: where its first word stands."""

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass
class Read:
    """What a file has: its sentences, those that cannot be used as (place, problem), and what else was counted."""

    sentences: list[Sentence] = field(default_factory=list)
    problems: Problems = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        if by:
            self.counts[what] = self.counts.get(what, 0) + by


def lines_of(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """(line of its first, [(line, content)]) of every run of lines that are not blank."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            block.append((number, line.removesuffix("\r")))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block


def read_columns(
    where: str, text: str, word: int, tag: int, *, tabs: bool | None = None, known: Collection[str] | None = None
) -> Read:
    """Sentences of a file with any columns; word and tag: which, from 1, or from -1 at the end of a line.

    tabs: whether columns lie between tabs, else between any white space; None: where the first line that is no
    comment has a tab. Lines that begin with `#` and have no tab are comments where columns lie between tabs. known: the
    tags there are, where others are a mistake.
    """
    found = Read()
    for _, block in lines_of(text):
        if tabs is None:
            named = [line for _, line in block if not line.startswith(("#", _DOCUMENT))]
            tabs = "\t" in named[0] if named else None
        try:
            _add(block, word, tag, bool(tabs), known, found)
        except Unusable as error:
            found.problems.append(error.at(where))
    return found


def _add(
    block: Sequence[tuple[int, str]], word: int, tag: int, tabs: bool, known: Collection[str] | None, found: Read
) -> None:
    words, tags, first = [], [], 0
    for number, line in block:
        if line.startswith(_DOCUMENT) or (tabs and line.startswith("#") and "\t" not in line):
            continue
        first = first or number
        columns = line.split("\t") if tabs else line.split()
        width = f"{len(columns)} column{'s' * (len(columns) > 1)}"
        missing = next((place for place in (word, tag) if not -len(columns) <= _index(place) < len(columns)), None)
        if missing is not None:
            raise Unusable(number, f"has {width}, no column {missing}")
        if _index(word) % len(columns) == _index(tag) % len(columns):
            raise Unusable(number, f"has {width}, no tag beside the word")
        its, label = columns[_index(word)].strip(), columns[_index(tag)].strip()
        if not its or not label:
            raise Unusable(number, f"has no {'tag' if its else 'word'}")
        if known is not None and label not in known:
            raise Unusable(number, f"has the tag {label[:20]!r}, none of {', '.join(sorted(known)[:20])}")
        words.append(its)
        tags.append(label)
    if words:
        found.sentences.append(Sentence(first, tuple(words), tuple(tags)))


def _index(column: int) -> int:
    return column - 1 if column > 0 else column


def is_iob2(tags: set[str]) -> bool:
    """Whether tags are those of entities: `O`, `B-` and `I-` of a type, and at least one of the latter."""
    return any(tag != OUTSIDE for tag in tags) and all(
        tag == OUTSIDE or (tag.startswith((BEGINS, INSIDE)) and len(tag) > len(BEGINS)) for tag in tags
    )


def begun(tags: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """IOB2 tags in which every entity begins with `B-`, and how many did not: an `I-` that follows neither `B-` nor
    `I-` of its type is read as a beginning. So IOB1, which marks no beginnings but between neighbours, becomes IOB2."""
    mended, count, open_type = [], 0, ""
    for tag in tags:
        if tag.startswith(INSIDE) and tag[len(INSIDE) :] != open_type:
            tag, count = BEGINS + tag[len(INSIDE) :], count + 1
        open_type = "" if tag == OUTSIDE else tag[len(BEGINS) :]
        mended.append(tag)
    return tuple(mended), count


def with_beginnings(read: Read) -> Read:
    """The same with every entity begun, how many did not counted."""
    sentences = []
    for sentence in read.sentences:
        tags, count = begun(sentence.tags)
        read.count("entities_that_start_inside", count)
        sentences.append(sentence._replace(tags=tags))
    return Read(sentences, read.problems, read.counts)
