"""Sentences with tags as words and characters, or as pieces: every tag at its word, on real treebanks, too."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from checkpoints import needs_transformers, write_checkpoint

from mtlscale.config import UserError
from mtlscale.data.format.tokenizer import frame
from pipelines import PrepareContext
from pipelines._formats.conllu import UPOS, read_conllu
from pipelines._formats.tagged import TaggedFile, TaggedSentence
from pipelines._texts.tagged_texts import TaggedCorpus
from pipelines._texts.token_rows import by_subwords, by_words

UD = Path(os.environ.get("MTLSCALE_DATA", "/nowhere"), "ud")
E5 = Path(os.environ.get("MTLSCALE_E5", "/nowhere"))  # a folder that benchmarks/cases/e5_checkpoint.py wrote
REAL = ("English-EWT/en_ewt", "Chinese-GSD/zh_gsd", "Telugu-MTG/te_mtg", "Vietnamese-VTB/vi_vtb",
        "Italian-ParTUT/it_partut", "Tamil-TTB/ta_ttb")  # fmt: skip


def rows(sentences: Sequence[TaggedSentence], classes: Sequence[str] = UPOS, split: str = "train") -> pa.Table:
    gathered = TaggedCorpus()
    gathered.add("a", split, [TaggedFile(list(sentences))], classes, 0)
    return gathered.rows[0]


def matrix(table: pa.Table, name: str) -> np.ndarray:
    column = table[name].combine_chunks()
    return column.flatten().to_numpy().reshape(len(table), -1)


def of(text: str) -> TaggedSentence:
    """`a/X b/Y`"""
    pairs = [one.rsplit("/", 1) for one in text.split()]
    return TaggedSentence(1, tuple(word for word, _ in pairs), tuple(tag for _, tag in pairs))


def dropping(folder: Path) -> Path:
    """A checkpoint whose tokenizer drops soft hyphens."""
    path = write_checkpoint(folder) / "tokenizer.json"
    told = json.loads(path.read_text())
    gone = {"type": "Replace", "pattern": {"String": "\u00ad"}, "content": ""}
    told["normalizer"] = {"type": "Sequence", "normalizers": [told["normalizer"], gone]}
    path.write_text(json.dumps(told))
    return folder


def test_words_are_lower_case_characters_are_as_written_and_long_sentences_are_cut() -> None:
    table = rows([of("The/X the/X Bad/Y"), of("bad/Y a/X the/X aB/Y the/X")], "XY")
    found = by_words(table, 3, 100, 2, 2, PrepareContext())
    assert found.words == ["<pad>", "<unk>", "the", "bad"] and found.width == 3
    assert found.characters == ["a", "e", "h", "t", "B", "d"]  # by how often; one T and one b are too few
    assert found.rows["id"].to_pylist() == ["a/train000000", "a/train000001", "a/train000001+1"]
    inputs = matrix(found.rows, "input").reshape(3, 3, 3)
    assert inputs[0].tolist() == [[2, 1, 4], [2, 5, 4], [3, 6, 2]]
    assert inputs[2].tolist() == [[1, 2, 6], [2, 5, 4], [0, 0, 0]]
    assert matrix(found.rows, "label").tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, -1]]


@needs_transformers
@pytest.mark.parametrize("padding", [0, 5])
def test_pieces_have_the_tag_at_the_first_and_sentences_are_cut_between_words(padding: int, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", padding=padding)
    sentence = of("The/X bads/Y good/X " + "ones/Y " * 3 + "a0101/X")
    found = by_subwords("it", rows([sentence], "XY"), 9, folder, PrepareContext())
    # [CLS] the bad ##s good one ##s [SEP], then one ##s one ##s and a ##0 …: five pieces, 4 + 5 are more than 7
    assert found.rows["id"].to_pylist() == ["a/train000000", "a/train000000+1", "a/train000000+2"]
    labels = matrix(found.rows, "label")
    assert labels.tolist() == [
        [-1, 0, 1, -1, 0, 1, -1, -1], [-1, 1, -1, 1, -1, -1, -1, -1], [-1, 0, -1, -1, -1, -1, -1, -1],
    ]  # fmt: skip
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    swap = {0: tokenizer.pad_token_id, tokenizer.pad_token_id: 0}
    whole = tokenizer(["The bads good ones"], padding="max_length", max_length=8)["input_ids"][0]
    assert matrix(found.rows, "input")[0].tolist() == [swap.get(id, id) for id in whole]


@needs_transformers
def test_a_word_that_is_dropped_or_too_long_is_the_unknown_one_and_named(tmp_path: Path) -> None:
    folder = dropping(tmp_path / "model")
    sentence = of("good/X \u00ad/Y a0101010101/X bad/Y \u00ad/Y")
    found = by_subwords("it", rows([sentence], "XY"), 9, folder, PrepareContext())
    assert found.dropped == {"\u00ad": 2} and found.long == {"a0101010101": 1}
    unknown = frame("it", folder, 9).unknown
    inputs, labels = matrix(found.rows, "input")[0], matrix(found.rows, "label")[0]
    assert labels.tolist() == [-1, 0, 1, 0, 1, 1, -1] and (inputs[[2, 3, 5]] == unknown).all()


@needs_transformers
def test_a_tokenizer_without_an_unknown_word_names_the_one_it_drops(tmp_path: Path) -> None:
    folder = dropping(tmp_path / "model")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (path := folder / name).exists():
            path.write_text(path.read_text().replace('"unk_token"', '"no_token"'))
    with pytest.raises(UserError, match=r"has no token for '\\xad', and none for unknown words"):
        by_subwords("it", rows([of("good/X \u00ad/Y")], "XY"), 9, folder, PrepareContext())


@pytest.mark.skipif(not UD.is_dir(), reason="the treebanks are not in MTLSCALE_DATA")
@pytest.mark.parametrize("treebank", REAL)
def test_every_tag_of_a_real_treebank_is_at_its_word(treebank: str) -> None:
    read = read_conllu("it", gzip.decompress((UD / f"UD_{treebank}-ud-test.conllu.gz").read_bytes()).decode())
    found = by_words(rows(read.sentences), 10_000, 10**6, 1, 40, PrepareContext())
    inputs = matrix(found.rows, "input").reshape(len(found.rows), found.width, 41)
    labels, letters = matrix(found.rows, "label"), ["", "?", *found.characters]
    for sentence, ids, tags in zip(read.sentences, inputs, labels, strict=True):
        count = len(sentence.words)
        assert tuple(UPOS[tag] for tag in tags[:count]) == sentence.tags and (tags[count:] == -1).all()
        for word, (its, *spelt) in zip(sentence.words, ids[:count].tolist(), strict=True):
            assert found.words[its] == word.lower() and "".join(letters[one] for one in spelt) == word[:40]
        assert not ids[count:].any()


@pytest.mark.slow
@needs_transformers
@pytest.mark.skipif(not (UD.is_dir() and E5.is_dir()), reason="no treebanks in MTLSCALE_DATA, or no MTLSCALE_E5")
@pytest.mark.parametrize("treebank", REAL)
def test_every_tag_of_a_real_treebank_is_at_the_first_piece_of_its_word(treebank: str) -> None:
    import transformers

    read = read_conllu("it", gzip.decompress((UD / f"UD_{treebank}-ud-test.conllu.gz").read_bytes()).decode())
    found = by_subwords("it", rows(read.sentences), 128, E5, PrepareContext())
    tokenizer, parts = transformers.AutoTokenizer.from_pretrained(E5), found.rows["id"].to_pylist()
    inputs, labels = matrix(found.rows, "input"), matrix(found.rows, "label")
    of_sentence: dict[str, list[int]] = {}
    for row, id in enumerate(parts):
        of_sentence.setdefault(id.partition("+")[0], []).append(row)
    for number, sentence in enumerate(read.sentences):
        mine = of_sentence[f"a/train{number:06d}"]
        tags = [UPOS[tag] for row in mine for tag in labels[row] if tag >= 0]
        assert tags == list(sentence.tags)
        if len(mine) == 1 and not any(word in found.long for word in sentence.words):
            whole = tokenizer(list(sentence.words), is_split_into_words=True)
            its, bare = whole.word_ids(), tokenizer.convert_tokens_to_ids("▁")
            places = [at + (whole["input_ids"][at] == bare and its[at + 1] == word)
                      for word, at in ((word, its.index(word)) for word in range(len(sentence.words)))]  # fmt: skip
            assert np.flatnonzero(labels[mine[0]] >= 0).tolist() == places
            swapped = [{0: 1, 1: 0}.get(id, id) for id in whole["input_ids"]]
            assert inputs[mine[0], : len(swapped)].tolist() == swapped and not inputs[mine[0], len(swapped) :].any()
