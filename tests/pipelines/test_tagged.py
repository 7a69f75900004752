"""Files of tagged words: CoNLL-U as XTREME reads it, columns, entities; the real ones where they are."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines._formats.conllu import UPOS, read_conllu
from pipelines._formats.tagged import is_iob2, read_columns, with_begin_tags, with_beginnings

UD = Path(os.environ.get("MTLSCALE_DATA", "/nowhere"), "ud")
# Six treebanks with fused words, hidden nodes, spaces in words or neither.
REAL = ("English-EWT/en_ewt", "Chinese-GSD/zh_gsd", "Telugu-MTG/te_mtg", "Vietnamese-VTB/vi_vtb",
        "Italian-ParTUT/it_partut", "Tamil-TTB/ta_ttb")  # fmt: skip


def word(id: str, form: str, tag: str = "_", head: str = "_", deps: str = "_") -> str:
    return "\t".join([id, form, "_", tag, "_", "_", head, "_", deps, "_"])


def sentence(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("# text = a", *lines, ""))


def test_fused_words_take_the_tag_of_their_highest_part_and_empty_nodes_are_gone() -> None:
    text = sentence(
        word("1-2", "Don't"), word("1", "Do", "AUX", "3"), word("2", "n't", "PART", "3"), word("3", "go", "VERB", "0"),
        word("3.1", "there"), word("4-5", "to the"), word("4", "to", "ADP", "6"), word("5", "the", "DET", "6"),
        word("6", "Mor\u200cden café", "PROPN", "3"), word("7-8", "'tis"), word("7", "it", "PRON", "8"),
        word("8", "is", "VERB", "3"),
    )  # fmt: skip
    read = read_conllu("f", text)
    (found,) = read.sentences
    assert found.words == ("Don't", "go", "tothe", "Mordencafé", "'tis")
    assert found.tags == ("AUX", "VERB", "ADP", "PROPN", "VERB")  # AUX and ADP come first in the order of tags
    assert (found.line, read.problems) == (2, [])
    assert read.counts == {"fused_words": 3, "words_with_spaces": 2, "words": 5}


def test_the_order_of_tags_is_the_languages_and_the_enhanced_graph_counts() -> None:
    pair = [
        word("1-2", "dammi"),
        word("1", "da", "NOUN", "3"),
        word("2", "mi", "PRON", "3"),
        word("3", "x", "VERB", "0"),
    ]
    assert read_conllu("f", sentence(*pair)).sentences[0].tags[0] == "NOUN"
    assert read_conllu("f", sentence(*pair), "it").sentences[0].tags[0] == "PRON"  # which has no NOUN
    pair[1] = word("1", "da", "NOUN", "3", "3:obj|4:x")
    pair.append(word("4", "y", "X", "3"))
    assert read_conllu("f", sentence(*pair)).sentences[0].tags[0] == "PRON"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (word("2", "b", "NOUN", "1")[:-2], "has 9 columns, not 10"),
        (word("2", "b", "CONJ", "1"), "has the tag 'CONJ', none of the 17 of column 4"),
        (word("2", "b", "_", "1"), "has the tag '_'"),
        (word("3", "b", "NOUN", "1"), "is word 3, where word 2 should stand"),
        (word("x", "b", "NOUN", "1"), "begins with 'x', which is no number of a word"),
        (word("1-2", "ab"), "joins the words 1 to 2, which the sentence has not"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_its_sentence_left_out(line: str, problem: str) -> None:
    good = sentence(word("1", "a", "X", "0"))
    read = read_conllu("f", good + sentence(word("1", "a", "X", "0"), line) + good)
    assert len(read.sentences) == 2
    ((where, told),) = read.problems
    assert where == "f line 6" and problem in told


def test_sentences_without_their_words_are_left_out_and_counted() -> None:
    hidden = sentence(word("1", "_", "X", "0"), word("2", "_", "X", "1"))
    shown = sentence(word("1", "a", "X", "0"), word("2", "_", "SYM", "1"), word("3", "b", "X", "1"))
    read = read_conllu("f", hidden + shown)
    assert [one.words for one in read.sentences] == [("a", "_", "b")]
    assert read.counts["sentences_without_words"] == 1


def slowly(text: str) -> list[list[tuple[str, set[str]]]]:
    """Every sentence's words by another way, and the tags each may have: those of its parts."""
    found = []
    for block in text.split("\n\n"):
        rows = [line.split("\t") for line in block.split("\n") if line and line[0] != "#"]
        spans = {int(row[0].split("-")[0]): (int(row[0].split("-")[1]), row[1]) for row in rows if "-" in row[0]}
        plain = {int(row[0]): row for row in rows if row[0].isdigit()}
        words, at = [], 1
        while at in plain:
            last, form = spans.get(at, (at, plain[at][1]))
            words.append(("".join(form.split(" ")), {plain[part][3] for part in range(at, last + 1)}))
            at = last + 1
        if words:
            found.append(words)
    return found


@pytest.mark.skipif(not UD.is_dir(), reason="the treebanks are not in MTLSCALE_DATA")
@pytest.mark.parametrize("treebank", REAL)
def test_every_word_of_a_real_treebank_has_its_tag(treebank: str) -> None:
    text = gzip.decompress((UD / f"UD_{treebank}-ud-test.conllu.gz").read_bytes()).decode()
    read, expected = read_conllu("f", text, treebank.partition("/")[2][:2]), slowly(text)
    assert not read.problems and len(read.sentences) == len(expected)
    for one, other in zip(read.sentences, expected, strict=True):
        assert list(one.words) == [form for form, _ in other]
        for tag, (_, possible) in zip(one.tags, other, strict=True):
            assert tag in possible and tag in UPOS


@pytest.mark.parametrize(
    ("tags", "mended", "count"),
    [
        ("O I-A I-A O", "O B-A I-A O", 1),
        ("B-A I-B I-B B-B", "B-A B-B I-B B-B", 1),
        ("I-A O I-A B-A I-A", "B-A O B-A B-A I-A", 2),
        ("O B-A I-A I-A", "O B-A I-A I-A", 0),
    ],
)
def test_an_entity_that_starts_inside_begins_there(tags: str, mended: str, count: int) -> None:
    assert with_begin_tags(tags.split()) == (tuple(mended.split()), count)


def test_what_tags_are_those_of_entities() -> None:
    assert is_iob2({"O", "I-A"}) and is_iob2({"B-A"})
    assert not any(map(is_iob2, ({"O"}, {"O", "NOUN"}, {"B-", "O"}, set(UPOS))))


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("# c\na\tX\tO\nb c\tY\tO\n\n\n#\tX\tO\n", (1, 2), [(("a", "b c"), ("X", "Y")), (("#",), ("X",))]),
        ("-DOCSTART- -X- O\n\na X O\r\n# Y O\r\n", (1, -1), [(("a", "#"), ("O", "O"))]),
        ("0\ten:a\tO\n1\ten:b\tO", (-2, -1), [(("en:a", "en:b"), ("O", "O"))]),
    ],
)
def test_columns(text: str, columns: tuple[int, int], expected: Sequence[object]) -> None:
    read = read_columns("f", text, *columns)
    assert [(one.words, one.tags) for one in read.sentences] == expected and not read.problems


def test_columns_that_are_missing_and_tags_that_nobody_knows() -> None:
    read = read_columns("f", "a\tO\n\nb\n\nc\tB-X\n\n\tO\n\nd\tI-P\n", 1, 2, tags=("O", "I-P"))
    assert read.problems == [
        ("f line 3", "has 1 column, no column 2"),
        ("f line 5", "has the tag 'B-X', none of I-P, O"),
        ("f line 7", "has no word"),
    ]
    assert with_beginnings(read).counts == {"entities_that_start_inside": 1}


def test_a_line_without_a_tag_is_no_tag_of_its_own() -> None:
    read = read_columns("f", "a O\nword\n\nb X O\n", 1, -1)
    assert read.problems == [("f line 2", "has 1 column, no tag beside the word")]
    assert [one.tags for one in read.sentences] == [("O",)]
    assert read_columns("f", "a O\n", 2, -1).problems == [("f line 1", "has 2 columns, no tag beside the word")]
