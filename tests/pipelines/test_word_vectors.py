"""Word vectors fitted on a set's own text: which text, the same bytes again, and how encoders come by them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from in_process import prepare

from mtlscale.config import UserError, build, load_experiment
from mtlscale.data.readers.prepared import VECTORS, load_prepared, read_manifest
from mtlscale.execution.planning.check import plan_runs
from mtlscale.execution.planning.plan import Datasets
from mtlscale.records import Home

FITTED = {"vectors": "word2vec", "vector_dimensions": 8}


def vector_bytes(source: Path, home: Path, name: str = "amazon", **options: object) -> bytes:
    return (prepare(name, {**FITTED, **options}, source, home) / VECTORS).read_bytes()


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
def test_every_word_gets_a_vector_and_fitting_again_the_same_bytes(kind: str, fdu_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    first, again = (prepare("amazon", {**FITTED, "vectors": kind}, fdu_folder, tmp_path / home) for home in "ab")
    table = pq.read_table(first / VECTORS)
    words = load_prepared(first).suite.extras["vocabulary"]
    assert set(words[2:]) <= set(table["id"].to_pylist()) <= set(words[1:])
    assert (first / VECTORS).read_bytes() == (again / VECTORS).read_bytes()
    assert read_manifest(first) == read_manifest(again)


def test_they_come_from_train_and_unlabelled_text_alone(fdu_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    options = {"domains": ["books", "dvd"], "length": 64}
    books = fdu_folder / "mtl-dataset" / "books.task.test"
    base = vector_bytes(fdu_folder, tmp_path / "base", **options)

    # The same words in another order: training on them would give other vectors.
    lines = books.read_text().splitlines()
    books.write_text("".join(f"{line[:2]}{' '.join(reversed(line[2:].split()))}\n" for line in lines))
    assert vector_bytes(fdu_folder, tmp_path / "test", **options) == base

    # A text of test that is among the unlabelled ones, too, is left out there.
    append(fdu_folder / "mtl-dataset" / "dvd.task.unlabel", books.read_text().splitlines()[0][2:] + "\n")
    assert vector_bytes(fdu_folder, tmp_path / "copy", **options) == base
    append(fdu_folder / "mtl-dataset" / "dvd.task.unlabel", "bare bare dine\n")
    assert vector_bytes(fdu_folder, tmp_path / "more", **options) != base
    assert vector_bytes(fdu_folder, tmp_path / "none", **options, keep_unlabelled=False) != base


def test_newsgroups_fits_them_on_the_words_its_options_leave(newsgroups_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    whole = vector_bytes(newsgroups_folder, tmp_path, "newsgroups")
    assert whole != vector_bytes(newsgroups_folder, tmp_path, "newsgroups", strip=["headers"])


@pytest.mark.parametrize("encoder", ["textcnn", "lstm"])
def test_encoders_start_from_the_prepared_vectors(encoder: str, fdu_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    folder = prepare("amazon", FITTED, fdu_folder, tmp_path)
    suite = load_prepared(folder).suite
    weight = build("encoders", encoder, {"dimensions": 8, "vectors": "prepared"}).build(suite).embedding.weight
    table = pq.read_table(folder / VECTORS)
    ids = {word: index for index, word in enumerate(suite.extras["vocabulary"])}
    for word, vector in zip(table["id"].to_pylist(), table["vector"].to_pylist(), strict=True):
        torch.testing.assert_close(weight[ids[word]], torch.tensor(vector))
    assert not weight[0].any() and weight.requires_grad
    with pytest.raises(UserError, match="those of amazon have 8 numbers, the encoder 300; set its dimensions to it"):
        build("encoders", encoder, {"vectors": "prepared"}).build(suite)


def test_an_experiment_on_prepared_vectors_passes_the_check_before_its_runs(
    fdu_folder: Path, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("gensim")
    file = experiment_file(
        datasets=f"[{{name: amazon, source: {fdu_folder}, options: {FITTED}, tasks: [books, dvd]}}]",
        methods="[equal]",
        model="{encoder: {name: averaged, dimensions: 8, hidden: [8], vectors: prepared}}",
    )
    experiment, home = load_experiment(file), Home(tmp_path / "home")
    data = Datasets.prepare(experiment, lambda dataset: prepare("amazon", FITTED, fdu_folder, home.root))
    runs = [run for run in experiment.runs(data.fingerprints) if run.method == "equal"]
    assert len(plan_runs(experiment, runs, home, data).todo) == 1

    with pytest.raises(UserError, match=r"equal on amazon: .* amazon have 8 numbers, the encoder 9; set its"):
        plan_runs(experiment, [run.tuned({"model.encoder.dimensions": 9}) for run in runs], home, data)


def test_a_set_prepared_without_vectors_is_named(fdu_folder: Path, tmp_path: Path) -> None:
    suite = load_prepared(prepare("amazon", {}, fdu_folder, tmp_path)).suite
    with pytest.raises(UserError, match="amazon was prepared without; set its option vectors to word2vec"):
        build("encoders", "textcnn", {"vectors": "prepared"}).build(suite)


def test_a_missing_library_is_named_before_anything_is_read(
    fdu_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim", None)
    with pytest.raises(UserError, match=r"vectors = 'word2vec' needs gensim; pip install 'mtlscale\[vectors\]'"):
        prepare("amazon", FITTED, fdu_folder, tmp_path)


def test_a_vocabulary_file_that_does_not_fit_the_manifest_is_named(fdu_folder: Path, tmp_path: Path) -> None:
    folder = prepare("amazon", {}, fdu_folder, tmp_path)
    vocabulary = folder / "vocabulary.txt"
    words = vocabulary.read_text().split("\n")
    size = len(vocabulary.read_bytes())
    # As many bytes as recorded, but two words in one line.
    vocabulary.write_text("\n".join([*words[:2], f"{words[2]}_{words[3]}", *words[4:]]))
    assert len(vocabulary.read_bytes()) == size
    with pytest.raises(UserError, match=r"does not fit the manifest.*delete .* and prepare again") as raised:
        load_prepared(folder)
    assert "\n" not in str(raised.value)
