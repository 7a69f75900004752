"""Reader for CoNLL-U, the format of Universal Dependencies: words with one part of speech each, as XTREME makes them.

A token that is written as one word and analysed as several (`3-4`) is one word in its written form; its tag is that of
the part highest in the tree: the part with the fewest words above it, ties broken by an order of tags. Empty nodes
(`5.1`) are left out. Spaces and U+200C inside words are removed. Sentences whose words are hidden (`_`) for their
licence are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelines._formats.tagged import TaggedFile, TaggedSentence, Unusable, lines_of

UPOS = ("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
        "SYM", "VERB", "X")  # fmt: skip
_COLUMNS = 10
_ID, _FORM, _UPOS, _HEAD, _DEPS = 0, 1, 3, 6, 8
_HIDDEN = "_"
_NON_JOINER = "\u200c"
# If parts of a fused word stand equally high, the first tag in this order wins, as in the tools that XTREME uses.
_ORDERS = {
    "es": ("VERB", "AUX", "PRON", "ADP", "DET"),
    "fr": ("VERB", "AUX", "PRON", "NOUN", "ADJ", "ADV", "ADP", "DET", "PART", "SCONJ"),
    "it": ("VERB", "AUX", "ADV", "PRON", "ADP", "DET", "INTJ"),
}
_COARSE_TAGS = ("VERB", "NOUN", "PROPN", "PRON", "ADJ", "NUM", "ADV", "INTJ", "AUX", "ADP", "DET", "PART", "CCONJ",
                "SCONJ", "X", "PUNCT")  # fmt: skip


@dataclass
class _Tree:
    """The words of a sentence by number, from 1, and its fused tokens by the number of their first word."""

    forms: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    heads: list[set[int]] = field(default_factory=list)
    fused: dict[int, tuple[int, str]] = field(default_factory=dict)  # first -> (last, form)


def read_conllu(where: str, text: str, language: str = "") -> TaggedFile:
    """Return the sentences of a file.

    Args:
        where: The file as messages name it.
        text: The file's content.
        language: The language code, which decides the tags of fused words.
    """
    read = TaggedFile()
    order = _ORDERS.get(language, _COARSE_TAGS)

    for _, block in lines_of(text):
        try:
            tree, first = _tree(block)
            if tree.forms:
                _add(tree, first, order, read)
        except Unusable as error:
            read.problems.append(error.at(where))

    return read


def _add(tree: _Tree, first: int, order: Sequence[str], content: TaggedFile) -> None:
    hidden = sum(form == _HIDDEN for form in tree.forms)
    if hidden and hidden >= len(tree.forms) - 1:
        content.count("sentences_without_words")
        return

    words, tags, number = [], [], 1
    while number <= len(tree.forms):
        last, form = tree.fused.get(number, (number, tree.forms[number - 1]))
        word = form.replace(_NON_JOINER, "").replace(" ", "")
        if not word:
            raise Unusable(first, f"begins a sentence in which word {number} has no letter")
        words.append(word)
        tags.append(tree.tags[_highest(tree, range(number, last + 1), order) - 1])
        content.count("fused_words", int(last > number))
        content.count("words_with_spaces", int(" " in form))
        number = last + 1

    content.count("words", len(words))
    content.sentences.append(TaggedSentence(first, tuple(words), tuple(tags)))


def _tree(block: Iterable[tuple[int, str]]) -> tuple[_Tree, int]:
    """Return the tree of a sentence, and the line of its first word."""
    tree, first, spans = _Tree(), 0, []
    for number, line in block:
        if line.startswith("#"):
            continue

        first = first or number
        columns = line.split("\t")
        if len(columns) != _COLUMNS:
            raise Unusable(number, f"has {len(columns)} columns, not {_COLUMNS}")

        word_id = columns[_ID]
        if word_id.isdigit():
            _add_word(tree, number, columns)
        elif "." in word_id and all(part.isdigit() for part in word_id.split(".", 1)):
            continue
        else:
            first_word, dash, last_word = word_id.partition("-")
            if not (dash and first_word.isdigit() and last_word.isdigit() and int(first_word) < int(last_word)):
                raise Unusable(number, f"begins with {word_id[:20]!r}, which is no number of a word")
            spans.append((number, int(first_word), int(last_word), columns[_FORM]))

    for number, begin, end, form in spans:
        if end > len(tree.forms) or any(begin <= fused_end for fused_end, _ in tree.fused.values()):
            raise Unusable(number, f"joins the words {begin} to {end}, which the sentence has not, or not free")
        tree.fused[begin] = (end, form)
    return tree, first


def _add_word(tree: _Tree, number: int, columns: Sequence[str]) -> None:
    if int(columns[_ID]) != len(tree.forms) + 1:
        raise Unusable(number, f"is word {columns[_ID]}, where word {len(tree.forms) + 1} should stand")
    if columns[_UPOS] not in UPOS:
        raise Unusable(number, f"has the tag {columns[_UPOS][:20]!r}, none of the {len(UPOS)} of column 4")
    tree.forms.append(columns[_FORM])
    tree.tags.append(columns[_UPOS])
    # Edges of the enhanced graph count too, because the tools that XTREME uses walk both.
    heads = {columns[_HEAD], *(edge.partition(":")[0] for edge in columns[_DEPS].split("|"))}
    tree.heads.append({int(head) for head in heads if head.isdigit()})


def _highest(tree: _Tree, span: range, order: Sequence[str]) -> int:
    """Return the word of a span with the fewest words above it, ties broken by the order of tags."""
    if len(span) == 1:
        return span[0]
    above = {word: len(_above(tree, word)) for word in span}
    highest = [word for word in span if above[word] == min(above.values())]
    return min(
        highest, key=lambda word: order.index(tree.tags[word - 1]) if tree.tags[word - 1] in order else len(order)
    )


def _above(tree: _Tree, word: int) -> set[int]:
    """Return all words above a word, including the root, 0."""
    ancestors: set[int] = set()
    pending = [word]
    while pending:
        number = pending.pop()
        heads = tree.heads[number - 1] if 0 < number <= len(tree.heads) else set()
        pending += heads - ancestors
        ancestors |= heads
    return ancestors - {word}
