"""Text sets by the tokenizer of a pretrained model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import write_checkpoint
from in_process import prepare

from mtlscale.config import SPLITS, UserError, load_experiment
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.encoders.text.pretrained import Pretrained
from mtlscale.execution.cluster.job_bundle import pack
from mtlscale.torchvision_ops import declare

declare()  # transformers imports torchvision
transformers = pytest.importorskip("transformers")

COUNT = 60
LONG = "the bads. " * 20
Load = Callable[..., PreparedData]


@pytest.fixture(params=[0, 5])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "texts" / "model", padding=request.param)


def rows() -> list[tuple[str, str, str]]:
    labels = ["yes", "no"] * (COUNT // 2)
    return [
        (f"The {'Good' if n % 2 else 'bad'} one: {n:06b}!" + (LONG if n % 10 == 0 else ""), f"no. {n:b}", label)
        for n, label in enumerate(labels)
    ]


@pytest.fixture
def load(folder: Path, tmp_path: Path) -> Load:
    source = tmp_path / "texts"
    lines = ["text\tsecond\tlabel", *("\t".join(row) for row in rows())]
    (source / "a.tsv").write_text("\n".join(lines) + "\n")

    def of(**options: Any) -> PreparedData:
        tasks = {"single": "a.tsv", "pairs": {"file": "a.tsv", "second": "second"}}
        told = {"tasks": tasks, "tokenizer": str(folder), **options}
        return load_prepared(prepare("text", told, source, tmp_path / "home"))

    return of


def test_ids_are_those_of_the_tokenizer(load: Load, folder: Path) -> None:
    data = load()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert data.suite.extras["tokenizer"]["separator"] == tokenizer.sep_token_id
    assert data.suite.input_shape == (32,) and data.suite.vocabulary_size == len(tokenizer)
    written, seen = rows(), 0
    for split in SPLITS:
        for task in ("single", "pairs"):
            for id, tokens in zip(read_ids(data.folder, split, task), data.splits[split][task].inputs, strict=True):
                text, second, _ = written[int(id.rpartition("/")[2]) - 2]
                given = (text, second) if task == "pairs" else (text,)
                whole = tokenizer(*given, truncation=True, max_length=32, padding="max_length")["input_ids"]
                swap = {0: tokenizer.pad_token_id, tokenizer.pad_token_id: 0}
                assert tokens.tolist() == [swap.get(id, id) for id in whole]
                seen += 1
    assert seen == 2 * COUNT
    assert read_manifest(data.folder).notes["texts_cut"] == {"pairs": COUNT // 10, "single": COUNT // 10}


def test_the_encoder_reads_what_its_tokenizer_prepared(load: Load, folder: Path, tmp_path: Path) -> None:
    data = load(length=16)
    module = Pretrained(checkpoint=str(folder)).build(data.suite)
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    id, tokens = read_ids(data.folder, "train", "pairs")[0], data.splits["train"]["pairs"].inputs[:1]
    text, second, _ = rows()[int(id.rpartition("/")[2]) - 2]
    told = tokenizer(text, second, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(module(tokens), model(**told).last_hidden_state.mean(1))
    other = write_checkpoint(tmp_path / "other", padding=3)
    with pytest.raises(UserError, match="was prepared with another tokenizer"):
        Pretrained(checkpoint=str(other)).build(data.suite)


def test_a_tokenizer_counts_by_its_content(load: Load, folder: Path, tmp_path: Path) -> None:
    first = load()
    moved = folder.rename(tmp_path / "elsewhere")
    assert load(tokenizer=str(moved)).folder == first.folder
    path = moved / "tokenizer.json"
    path.write_text(path.read_text().replace('"one"', '"two"'))
    changed = load(tokenizer=str(moved))
    assert changed.suite.extras["tokenizer"] != first.suite.extras["tokenizer"]


def test_what_does_not_go_is_told(load: Load, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="drop `vectors` or `tokenizer`"):
        load(vectors="word2vec")
    with pytest.raises(UserError, match="raise `length`"):
        load(length=3)
    with pytest.raises(UserError, match="tokenizer: nowhere is no folder"):
        load(tokenizer="nowhere")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"the tokenizer of .* cannot be loaded"):
        load()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer; save tokenizer\.json"):
        load()


def test_an_experiment_names_it_beside_itself(load: Load, folder: Path, tmp_path: Path) -> None:
    load()  # writes the texts
    file = tmp_path / "texts" / "mine.yaml"
    file.write_text(
        "datasets: [{name: text, options: {tasks: {a: a.tsv}, tokenizer: model}}]\nmethods: [stl]\n"
        "model: {encoder: {name: pretrained, checkpoint: model}}\n"
    )
    assert load_experiment(file).datasets[0].options["tokenizer"] == str(folder)
    package = pack(str(file))
    package.write(tmp_path / "job")
    there = load_experiment(tmp_path / "job" / package.file).datasets[0].options["tokenizer"]
    assert (Path(there) / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_features_are_those_of_the_frozen_encoder(load: Load, folder: Path) -> None:
    tokens, vectors = load(length=16), load(length=16, features="mean")
    assert vectors.suite.input_kind == "vector" and vectors.suite.input_shape == (8,)
    module = Pretrained(checkpoint=str(folder)).build(tokens.suite)
    for split in SPLITS:
        for task in ("single", "pairs"):
            expected = module(tokens.splits[split][task].inputs)
            torch.testing.assert_close(vectors.splits[split][task].inputs, expected, rtol=1e-5, atol=1e-6)
    written = {path: path.stat().st_mtime_ns for path in vectors.folder.rglob("*")}
    assert load(length=16, features="mean").folder == vectors.folder
    assert {path: path.stat().st_mtime_ns for path in vectors.folder.rglob("*")} == written  # computed once
    write_checkpoint(folder, padding=int(tokens.suite.extras["tokenizer"]["padding"]), seed=1)
    assert load(length=16).folder == tokens.folder  # the tokenizer is the same, the model another
    again = load(length=16, features="mean").splits["val"]["single"].inputs
    assert not torch.allclose(again, vectors.splits["val"]["single"].inputs)
    with pytest.raises(UserError, match="name its `tokenizer`"):
        load(features="mean", tokenizer=None)


def write_sets(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Write reviews of one domain, and messages with a header in every group, and return them by data set."""
    from pipelines.text.newsgroups import LABELS, OFFICIAL_SPLITS

    reviews = folder / "reviews"
    reviews.mkdir()
    for part, count in (("train", 40), ("test", 10)):
        lines = (f"{n % 2}\tthe {'good' if n % 2 else 'bad'} one : {n:06b} {part}\n" for n in range(count))
        (reviews / f"MR.task.{part}").write_text("".join(lines))

    for number, part in enumerate(OFFICIAL_SPLITS):
        for group in LABELS:
            (folder / "news" / part / group).mkdir(parents=True)
            for n in range(4):
                message = f"From: nobody\n\nthe good one {n} {part}" if n else "From: nobody\n\n..."
                (folder / "news" / part / group / f"{number}{n}").write_text(message)

    return {
        "amazon": (reviews, {"domains": ["MR"], "keep_unlabelled": False}),
        "newsgroups": (folder / "news", {"strip": ["headers"]}),
    }


@pytest.mark.parametrize("name", ["amazon", "newsgroups"])
def test_sets_of_reviews_and_messages_have_the_same_forms(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    source, options = write_sets(tmp_path)[name]

    def load(**more: Any) -> PreparedData:
        return load_prepared(prepare(name, {**options, **more}, source, tmp_path / "home"))

    words, tokens = load(), load(tokenizer=str(folder), length=16)
    vectors = load(tokenizer=str(folder), length=16, features="mean")
    assert words.folder == load(tokenizer=None, features="none").folder
    assert vectors.suite.input_kind == "vector" and vectors.suite.input_shape == (8,)
    module = Pretrained(checkpoint=str(folder)).build(tokens.suite)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for split in SPLITS:
        for task in (one.name for one in tokens.suite.tasks):
            ids = read_ids(words.folder, split, task)  # the same texts in the same splits
            assert read_ids(tokens.folder, split, task) == read_ids(vectors.folder, split, task) == ids
            expected = module(tokens.splits[split][task].inputs)
            torch.testing.assert_close(vectors.splits[split][task].inputs, expected, rtol=1e-5, atol=1e-6)
    read = tokenizer.decode(tokens.splits["test"][tokens.suite.tasks[0].name].inputs[0].tolist())
    assert "the" in read and "one" in read and "nobody" not in read
    with pytest.raises(UserError, match="are those of a model; name its `tokenizer`"):
        load(features="mean")
