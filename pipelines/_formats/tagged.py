"""Sentences of words with one tag each, as files have them: lines of columns, a blank line after each sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Problems = list[tuple[str, str]]
OUTSIDE, BEGINS, INSIDE = "O", "B-", "I-"
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


def read_columns(
    where: str, text: str, word: int, tag: int, *, tabs: bool | None = None, tags: Collection[str] | None = None
) -> TaggedFile:
    """Return the sentences of a file of columns.

    Args:
        where: The file as messages name it.
        text: The file's content.
        word: The column of the words, from 1, or from -1 at the end of a line.
        tag: The column of the tags, counted the same way.
        tabs: Whether tabs separate columns, else any white space; None: tabs if the first line that is no comment has
            one. With tabs, lines that begin with `#` and have no tab are comments.
        tags: The allowed tags; None: any.
    """
    read = TaggedFile()

    for _, block in lines_of(text):
        if tabs is None:
            named = [line for _, line in block if not line.startswith(("#", _DOCUMENT))]
            tabs = "\t" in named[0] if named else None
        try:
            _add(block, word, tag, bool(tabs), tags, read)
        except Unusable as error:
            read.problems.append(error.at(where))

    return read


def _add(
    block: Sequence[tuple[int, str]],
    word: int,
    tag: int,
    tabs: bool,
    known: Collection[str] | None,
    content: TaggedFile,
) -> None:
    words, tags, first = [], [], 0
    for number, line in block:
        if line.startswith(_DOCUMENT) or (tabs and line.startswith("#") and "\t" not in line):
            continue
        first = first or number

        columns = line.split("\t") if tabs else line.split()
        width = f"{len(columns)} column{'s' * (len(columns) > 1)}"
        missing = next((column for column in (word, tag) if not -len(columns) <= _index(column) < len(columns)), None)
        if missing is not None:
            raise Unusable(number, f"has {width}, no column {missing}")
        if _index(word) % len(columns) == _index(tag) % len(columns):
            raise Unusable(number, f"has {width}, no tag beside the word")

        text, label = columns[_index(word)].strip(), columns[_index(tag)].strip()
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
