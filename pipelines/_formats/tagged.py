"""Sentences of words with one tag each, as files have them: lines of columns, a blank line after each sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ne
from typing import NamedTuple

Problems = list[tuple[str, str]]
OUTSIDE, BEGINS, INSIDE = "O", "B-", "I-"
_SPACES = re.compile(r"[ \t]+")
_SCHEME_TAG = re.compile(r"[BIESLUMW]-.+")
_NUMBER = re.compile(r"\d+([-.]\d+)?")
_CONLLU_COLUMNS = 10
_DOCUMENT = "-DOCSTART-"  # a line of its own between the documents of CoNLL 2002 and 2003


class Unusable(Exception):
    """Error for a sentence that cannot be used, with the line at fault."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line, self.problem = line, problem

    def at(self, where: str) -> tuple[str, str]:
        """Return (file and line, problem) for a list of problems."""
        return f"{where} line {self.line}", self.problem


class TaggedSentence(NamedTuple):
    """Words and as many tags.

    Attributes:
        line: The line of the first word.
        words: The words.
        tags: The tags.
    """

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass
class TaggedFile:
    """The content of a file.

    Attributes:
        sentences: The usable sentences.
        problems: (file and line, problem) of the unusable ones.
        counts: Further counts by name.
    """

    sentences: list[TaggedSentence] = field(default_factory=list)
    problems: Problems = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, counter: str, by: int = 1) -> None:
        """Add to a count; zero leaves no entry."""
        if by:
            self.counts[counter] = self.counts.get(counter, 0) + by


def lines_of(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Yield (number of its first line, [(number, line)]) of every run of lines that are not blank."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            block.append((number, line.removesuffix("\r")))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block


@dataclass(frozen=True)
class _Layout:
    """The layout of a file of columns: its separator, the usual number of columns, and the tags that occur."""

    tabs: bool
    width: int
    tags: frozenset[str]
    conllu: bool  # ten columns, the first of which numbers words

    def columns(self, line: str) -> list[str]:
        """Return the columns of a line; a no-break space belongs to a word."""
        return line.split("\t") if self.tabs else _SPACES.split(line.strip(" \t"))

    def skips(self, line: str, tag: int) -> bool:
        """Return whether a line is no word: a comment, or the mark of a document."""
        if line.startswith(_DOCUMENT):
            return True
        if not line.startswith("#"):
            return False
        columns = self.columns(line)
        if len(columns) != self.width:
            return True
        return columns[0].strip() == "#" and columns[_index(tag)].strip() not in self.tags


def read_columns(
    where: str, text: str, word: int, tag: int, *, tabs: bool | None = None, tags: Collection[str] | None = None
) -> TaggedFile:
    """Return the sentences of a file of columns.

    A line that begins with `#` is a word if it has as many columns as the others, and a tag that they have; otherwise
    it is a comment. In files of CoNLL-U, fused tokens (`1-2`) and empty nodes (`1.1`) are left out and counted.

    Args:
        where: The file as messages name it.
        text: The file's content.
        word: The column of the words, from 1, or from -1 at the end of a line.
        tag: The column of the tags, counted the same way.
        tabs: Whether tabs separate columns, else spaces and tabs; None: tabs if the first line that is no comment has
            one.
        tags: The allowed tags; None: any.
    """
    read = TaggedFile()
    blocks = list(lines_of(text))
    layout = _layout([line for _, block in blocks for _, line in block], tag, tabs)
    for _, block in blocks:
        try:
            _add(block, word, tag, layout, tags, read)
        except Unusable as error:
            read.problems.append(error.at(where))

    return read


def _layout(lines: Sequence[str], tag: int, tabs: bool | None) -> _Layout:
    words = [line for line in lines if not line.startswith(("#", _DOCUMENT))]
    if tabs is None:
        tabs = "\t" in words[0] if words else any("\t" in line for line in lines)
    layout = _Layout(tabs, 0, frozenset(), False)
    rows = [layout.columns(line) for line in words]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    index = _index(tag)
    known = frozenset(row[index].strip() for row in rows if -len(row) <= index < len(row))
    numbered = width == _CONLLU_COLUMNS and all(_NUMBER.fullmatch(row[0]) for row in rows)
    return _Layout(tabs, width, known, numbered)


def _add(
    block: Sequence[tuple[int, str]],
    word: int,
    tag: int,
    layout: _Layout,
    known: Collection[str] | None,
    content: TaggedFile,
) -> None:
    words, tags, first = [], [], 0
    for number, line in block:
        if layout.skips(line, tag):
            continue
        first = first or number

        columns = layout.columns(line)
        if layout.conllu and not columns[0].isdigit():
            content.count("fused_tokens_and_empty_nodes")
            continue
        width = f"{len(columns)} column{'s' * (len(columns) > 1)}"
        missing = next((column for column in (word, tag) if not -len(columns) <= _index(column) < len(columns)), None)
        if missing is not None:
            raise Unusable(number, f"has {width}, no column {missing}")
        if _index(word) % len(columns) == _index(tag) % len(columns):
            raise Unusable(number, f"has {width}, no tag beside the word")

        text, label = columns[_index(word)].strip(" \t"), columns[_index(tag)].strip()
        if not text or not label:
            raise Unusable(number, f"has no {'tag' if text else 'word'}")
        if known is not None and label not in known:
            raise Unusable(number, f"has the tag {label[:20]!r}, none of {', '.join(sorted(known)[:20])}")

        words.append(text)
        tags.append(label)

    if words:
        content.sentences.append(TaggedSentence(first, tuple(words), tuple(tags)))


def _index(column: int) -> int:
    return column - 1 if column > 0 else column


def is_iob2(tags: set[str]) -> bool:
    """Return whether tags are those of entities: `O`, and at least one `B-` or `I-` of a type."""
    return any(tag != OUTSIDE for tag in tags) and all(
        tag == OUTSIDE or (tag.startswith((BEGINS, INSIDE)) and len(tag) > len(BEGINS)) for tag in tags
    )


def scheme_of(tags: Collection[str]) -> dict[str, str]:
    """Return the letters of an entity scheme that IOB2 does not have -> those of IOB2; empty for IOB2 and other tags.

    IOBES marks the end of an entity (`E-`) and one of a single word (`S-`), BILOU calls them `L-` and `U-`, BMES and
    BMEWO write `M-` inside and `W-` for a single word.
    """
    entities = [tag for tag in tags if tag != OUTSIDE]
    letters = {tag[0] for tag in entities}
    if not entities or any(_SCHEME_TAG.fullmatch(tag) is None for tag in entities) or letters <= {"B", "I"}:
        return {}
    if not (OUTSIDE in tags or "B" in letters):
        return {}
    return {letter: "B" if letter in "SUW" else "I" for letter in letters - {"B", "I"}}


def in_iob2(read: TaggedFile, scheme: Mapping[str, str]) -> TaggedFile:
    """Return the sentences with the letters of their scheme replaced, counting the tags that change."""
    if not scheme:
        return read
    sentences = []
    for sentence in read.sentences:
        tags = tuple(f"{scheme.get(tag[0], tag[0])}{tag[1:]}" if tag[1:2] == "-" else tag for tag in sentence.tags)
        read.count("tags_of_another_scheme", sum(map(ne, tags, sentence.tags)))
        sentences.append(sentence._replace(tags=tags))
    return TaggedFile(sentences, read.problems, read.counts)


def with_begin_tags(tags: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Return IOB2 tags in which every entity begins with `B-`, and the number of tags that were changed.

    An `I-` that follows neither `B-` nor `I-` of its type is read as a beginning. Thus IOB1, which marks beginnings
    only between neighbours, becomes IOB2.
    """
    mended, count, open_type = [], 0, ""
    for tag in tags:
        if tag.startswith(INSIDE) and tag[len(INSIDE) :] != open_type:
            tag, count = BEGINS + tag[len(INSIDE) :], count + 1
        open_type = "" if tag == OUTSIDE else tag[len(BEGINS) :]
        mended.append(tag)
    return tuple(mended), count


def with_beginnings(read: TaggedFile) -> TaggedFile:
    """Return the sentences with every entity begun, counting the entities that were not."""
    sentences = []
    for sentence in read.sentences:
        tags, count = with_begin_tags(sentence.tags)
        read.count("entities_that_start_inside", count)
        sentences.append(sentence._replace(tags=tags))
    return TaggedFile(sentences, read.problems, read.counts)
