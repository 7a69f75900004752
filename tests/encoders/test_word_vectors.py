"""Word vectors from files: formats, coverage, and every way a file can fail to fit."""

import logging
from pathlib import Path
from unittest import TestCase

import pytest
import torch

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders.text._word_vectors import read_vectors

WORDS = ["<pad>", "<unk>", "the", "café", "unseen", "1999"]
LINES = ["the 0.5 -1 2", "elsewhere 9 9 9", "café 1e-1 0.25 3", "the 7 7 7", "1999 4 5 6"]
VECTORS = {2: [0.5, -1, 2], 3: [0.1, 0.25, 3], 5: [4, 5, 6]}


def write(folder: Path, lines: list[str], header: str = "") -> Path:
    path = folder / "vectors.txt"
    path.write_text("".join(f"{line}\n" for line in ([header] if header else []) + lines), encoding="utf-8")
    return path


def suite(vocabulary: list[str] | None = WORDS, size: int = len(WORDS)) -> TaskSuite:
    extras = {} if vocabulary is None else {"vocabulary": vocabulary}
    return TaskSuite(
        name="texts",
        tasks=(),
        inputs="shared",
        input_kind="tokens",
        input_shape=(8,),
        vocabulary_size=size,
        extras=extras,
    )


@pytest.mark.parametrize("header", ["", "5 3"], ids=["glove", "word2vec"])
def test_reads_both_text_formats(tmp_path, header):
    with TestCase().assertLogs("mtlscale", logging.INFO) as logs:
        ids, vectors = read_vectors(write(tmp_path, LINES, header), WORDS, 3)
    assert ids.tolist() == list(VECTORS)
    torch.testing.assert_close(vectors, torch.tensor(list(VECTORS.values())))
    assert "3 of 6 words (50.0 %)" in logs.output[0]


@pytest.mark.parametrize("name", ["textcnn", "lstm", "bilstm"])
def test_encoders_start_from_the_file(tmp_path, name):
    path = write(tmp_path, LINES)
    weight = build("encoders", name, {"dimensions": 3, "vectors": str(path)}).build(suite()).embedding.weight
    assert weight.requires_grad
    for i, vector in VECTORS.items():
        assert weight[i].tolist() == pytest.approx(vector)
    assert not weight[0].any()
    assert weight[[1, 4]].all()


def test_padding_has_no_vector_even_where_the_file_has_one(tmp_path):
    path = write(tmp_path, ["<pad> 1 2 3", *LINES])
    embedding = build("encoders", "lstm", {"dimensions": 3, "vectors": str(path)}).build(suite()).embedding
    assert not embedding.weight[0].any()


def test_words_the_file_lacks_are_as_spread_as_those_it_has(tmp_path):
    words = ["<pad>", "<unk>", *(f"w{i}" for i in range(2000))]
    path = write(tmp_path, [f"w{i} {5 * (-1) ** i} 5 -5" for i in range(1000)])
    torch.manual_seed(0)
    encoder = build("encoders", "lstm", {"dimensions": 3, "vectors": str(path)}).build(suite(words, len(words)))
    assert 4.5 < encoder.embedding.weight[1002:].std() < 5.5


@pytest.mark.parametrize(
    ("lines", "mistake"),
    [
        (["the 1 2"], "line 1 has 2 numbers, the encoder 3"),
        (["other 1 2 3", "the 1 2 3 4"], "line 2 has 4 numbers, the encoder 3"),
        (["the 1 two 3"], "line 1 is not a word and its numbers"),
        (["the 1 nan 3"], "line 1 holds a number that is not finite"),
        (["le 1 2 3", "la 4 5 6"], "none of the 6 words"),
        ([], "none of the 6 words"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, lines, mistake):
    with pytest.raises(UserError, match=mistake) as raised:
        read_vectors(write(tmp_path, lines), WORDS, 3)
    assert "\n" not in str(raised.value)


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "vectors.bin"
    path.write_bytes(b"5 3\nthe \x00\x80\xff\x3f\x00\x12\n\x93\x00caf")
    with pytest.raises(UserError, match="word2vec or GloVe text format"):
        read_vectors(path, WORDS, 3)


@pytest.mark.parametrize(
    ("of", "mistake"),
    [
        (suite(vocabulary=None), "which keeps none"),
        (suite(size=7), "has 6 words, its manifest says 7"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_named(tmp_path, of, mistake):
    path = write(tmp_path, LINES)
    with pytest.raises(UserError, match=mistake):
        build("encoders", "textcnn", {"dimensions": 3, "vectors": str(path)}).build(of)


def test_a_missing_file_is_named():
    with pytest.raises(UserError, match=r"nowhere\.txt is not a file"):
        build("encoders", "textcnn", {"dimensions": 3, "vectors": "nowhere.txt"}).build(suite())
