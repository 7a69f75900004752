"""Anybody's texts: files for tasks, described by options alone."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from image_sets import prepared_bytes

from mtlscale.config import SPLITS, UserError, load_experiment
from mtlscale.data.format.texts import SEPARATOR, SPECIAL_WORDS, words_of
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.execution.cluster.job_bundle import pack
from mtlscale.execution.preparing.prepare import prepare
from pipelines import PrepareContext
from pipelines._texts.labelled_texts import keys_of, own_splits

COUNT = 120
Row = tuple[str, str]


def rows(task: str, count: int = COUNT) -> list[Row]:
    return [(f"{task} No. {n}: the {'good' if n % 3 else 'bad'} one!", "yes" if n % 3 else "no") for n in range(count)]


def table(path: Path, lines: list[Row], separator: str = "\t", header: str = "text\tlabel") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f"{separator.join(line)}\n" for line in lines)
    path.write_text(f"{header}\n{body}", encoding="utf-8")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for task in ("a", "b"):
        table(tmp_path / "texts" / f"{task}.tsv", rows(task))
    return tmp_path / "texts"


TASKS = {"a": "a.tsv", "b": "b.tsv"}
Load = Callable[..., PreparedData]


@pytest.fixture
def load(source: Path, tmp_path: Path) -> Load:
    def of(tasks: dict[str, Any] = TASKS, skip_bad: bool = False, **options: Any) -> PreparedData:
        folder = prepare("text", {"tasks": tasks, **options}, source, tmp_path / "home", skip_bad=skip_bad)
        return load_prepared(folder)

    return of


def texts(data: PreparedData, task: str, split: str) -> dict[str, tuple[str, str]]:
    """id -> what its tokens say, and its class or number."""
    words = data.suite.extras["vocabulary"]
    of_task = next(each for each in data.suite.tasks if each.name == task)
    samples, found = data.splits[split][task], {}
    for id, tokens, label in zip(
        read_ids(data.folder, split, task), samples.inputs.tolist(), samples.targets[task].tolist(), strict=True
    ):
        said = " ".join(words[token] for token in tokens if token)
        found[id] = (said, of_task.classes[label] if of_task.classes else str(label))
    return found


def everything(data: PreparedData, task: str) -> dict[str, tuple[str, str]]:
    return {id: row for split in SPLITS for id, row in texts(data, task, split).items()}


def test_texts_labels_and_shares(load: Load) -> None:
    data = load()
    assert [task.classes for task in data.suite.tasks] == [("no", "yes"), ("no", "yes")]
    for task in TASKS:
        found = everything(data, task)
        assert sorted(label for _, label in found.values()) == sorted(label for _, label in rows(task))
        for id, (said, label) in found.items():
            number = int(id.removeprefix(f"{task}/")) - 2  # of the line, behind the header
            expected = words_of([rows(task)[number][0]])[0].as_py().split()
            known = [word if word in data.suite.extras["vocabulary"] else SPECIAL_WORDS[1] for word in expected]
            assert said.split() == known and label == rows(task)[number][1]
    assert data.suite.input_shape == (6,)  # no wider than the longest text
    train = sum(len(data.splits["train"][task]) for task in TASKS)
    assert 0.7 < train / (2 * COUNT) < 0.9


def test_the_same_text_is_in_one_split_in_all_tasks(source: Path, load: Load) -> None:
    shared = [(f"the same old story {n} again", "yes" if n % 2 else "no") for n in range(60)]
    table(source / "a.tsv", shared + [(f"{text.upper()} !", label) for text, label in shared])
    table(source / "b.tsv", shared[::-1])
    data = load()
    where: dict[str, str] = {}
    for task, count in (("a", 120), ("b", 60)):
        found = {split: texts(data, task, split) for split in SPLITS}
        assert sum(map(len, found.values())) == count
        for split in SPLITS:
            for id in found[split]:
                line = int(id.rpartition("/")[2]) - 2
                text = (shared * 2)[line][0] if task == "a" else shared[::-1][line][0]
                assert where.setdefault(text, split) == split
    assert "test_texts_in_train_or_val" not in data.manifest.notes


def test_another_split_is_another_draw(load: Load) -> None:
    assert set(texts(load(), "a", "test")) != set(texts(load(split=1), "a", "test"))


def test_the_same_bytes_twice_and_in_any_blocks(source: Path, tmp_path: Path) -> None:
    options = {"tasks": {**TASKS, "p": {"file": "a.tsv", "second": "label"}}}
    works = [PrepareContext(), PrepareContext(), PrepareContext(rows_per_block=7)]
    results = [prepared_bytes("text", options, source, tmp_path / str(n), work) for n, work in enumerate(works)]
    assert results[0] == results[1] == results[2] and "vocabulary.txt" in results[0]


def test_files_of_any_kind_say_the_same(source: Path, load: Load) -> None:
    lines = rows("a")
    quoted = [(f'"{text}"', label) for text, label in lines]
    table(source / "a.csv", quoted, ",", "text,label")
    (source / "a.jsonl").write_text("".join(json.dumps({"text": t, "label": y, "more": 1}) + "\n" for t, y in lines))
    table(source / "bare.tsv", lines[1:], header="\t".join(lines[0]))
    found = [everything(load({"a": name}), "a") for name in ("a.tsv", "a.csv", "a.jsonl")]
    found.append(everything(load({"a": {"file": "bare.tsv", "text": "1", "label": "2"}}, header=False), "a"))
    said = [sorted(each.values()) for each in found]
    assert said[0] == said[1] == said[2] == said[3]


def test_quotes_are_text_in_tsv_and_marks_in_csv(source: Path, load: Load) -> None:
    tail = rows("a")[3:]
    table(source / "a.tsv", [('"open', "no"), ('x "y', "yes"), ('z"', "yes"), *tail])
    assert sum(load({"a": "a.tsv"}).manifest.counts["a"].values()) == COUNT
    with pytest.raises(UserError, match=r"^text: a\.tsv line \d+: .*; mend its quotes, or set `quotes: never`"):
        load({"a": "a.tsv"}, quotes="always")
    table(source / "a.csv", [('"one, two\nthree ""four"""', "no"), *tail], ",", "text,label")
    words = {said for said, _ in everything(load({"a": "a.csv"}, split=2), "a").values()}
    assert "one two three four" in words or "<unk> <unk> <unk> <unk>" in words


def test_given_parts_stay_and_validation_is_held_out(source: Path, load: Load) -> None:
    table(source / "train.tsv", rows("a"))
    table(source / "test.tsv", [*rows("b", 20), rows("a")[0]])
    data = load({"a": {"train": "train.tsv", "test": "test.tsv"}})
    assert set(texts(data, "a", "test")) == {f"a/test{n:09d}" for n in range(2, 23)}
    counts = data.manifest.counts["a"]
    assert counts["train"] + counts["val"] == COUNT and 2 <= counts["val"] <= 30
    assert data.manifest.notes["test_texts_in_train_or_val"] == {"a": 1}
    three = load({"a": {"train": "train.tsv", "val": "b.tsv", "test": "test.tsv"}})
    assert three.manifest.counts["a"] == {"train": COUNT, "val": COUNT, "test": 21}
    two = load({"a": {"train": "train.tsv", "val": "b.tsv"}})
    assert two.manifest.counts["a"]["test"] == COUNT and two.manifest.notes["validation_is_test"] == ["a"]


def test_pairs_keep_their_second_text_when_they_are_cut(source: Path, load: Load) -> None:
    many = [" ".join([f"x{n}", *["word"] * 29]) for n in range(40)]
    few = [(f"end{n} z", "yes" if n % 2 else "no") for n in range(40)]
    lines = [(long, short, label) for long, (short, label) in zip(many, few, strict=True)]
    lines += [("short", long, label) for long, (_, label) in zip(many, few, strict=True)]
    lines += [(long, long, label) for long, (_, label) in zip(many, few, strict=True)]
    path = source / "p.tsv"
    path.write_text("question\tanswer\tlabel\n" + "".join("\t".join(line) + "\n" for line in lines))
    pairs = {"file": "p.tsv", "text": "question", "second": "answer"}
    data = load({"p": pairs, "a": "a.tsv"}, length=10, vocabulary=6)  # the separator is in, however small it is
    said = {text for text, _ in everything(data, "p").values()}
    assert data.suite.extras["vocabulary"][2] == SEPARATOR
    assert {text.split().index(SEPARATOR) for text in said} == {7, 1, 5}
    assert {len(text.split()) for text in said} == {10}
    assert data.manifest.notes["texts_cut"] == {"p": 120} and data.suite.input_shape == (10,)
    assert not any(SEPARATOR in text for text, _ in everything(data, "a").values())


def test_pairs_are_split_by_both_texts() -> None:
    first, second = words_of(["One, two"] * 40), words_of([f"b{n}" for n in range(40)])
    assert len(set(own_splits(keys_of(first, second), "s"))) == 3


def test_numbers_that_are_not_all_whole_are_regression(source: Path, load: Load) -> None:
    table(source / "s.tsv", [(f"worth {n}", str(n / 2)) for n in range(COUNT)])
    table(source / "i.tsv", [(f"worth {n}", str(n % 11)) for n in range(COUNT)])
    data = load({"s": "s.tsv", "i": "i.tsv", "r": {"file": "i.tsv", "problem": "regression"}})
    assert [(t.loss, t.outputs, t.metrics[0]) for t in data.suite.tasks] == [
        ("mse", 1, "rmse"), ("cross_entropy", 11, "accuracy"), ("mse", 1, "rmse")
    ]  # fmt: skip
    assert data.suite.tasks[1].classes == tuple(str(n) for n in range(11))  # as numbers, not as texts
    found = torch.cat([data.splits[split]["s"].targets["s"] for split in SPLITS])
    assert sorted(found.tolist()) == [n / 2 for n in range(COUNT)]


def test_a_folder_of_the_datasets_library(source: Path, load: Load) -> None:
    def part(count: int, labels: bool = True) -> datasets.Dataset:
        made = {"text": [], "label": []}
        for said, label in rows("a", count):
            made["text"].append(said)
            made["label"].append(int(label == "yes") if labels else -1)
        kinds = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
        return datasets.Dataset.from_dict(made, kinds)

    datasets.DatasetDict(train=part(80), validation=part(30), test=part(30, labels=False)).save_to_disk(source / "hub")
    part(90).save_to_disk(source / "one")
    data = load({"h": "hub", "o": "one", "a": "a.tsv"})
    assert data.suite.tasks[0].classes == ("no", "yes") and data.manifest.notes["test_without_labels"] == ["h"]
    assert data.manifest.notes["validation_is_test"] == ["h"] and data.manifest.counts["h"]["test"] == 30
    assert sum(data.manifest.counts["o"].values()) == 90 and data.manifest.counts["o"]["train"] < 90


def test_a_source_that_is_such_a_folder_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named as a path, and as `hf:` with a relative or an absolute one; two columns of it are two tasks."""
    texts, labels = zip(*rows("a", 90), strict=True)
    columns = {"said": list(texts), "label": list(labels), "long": [len(text) % 2 == 0 for text in texts]}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    options = {"tasks": {"a": {}, "long": {"label": "long"}}, "text": "said"}
    sources = ("saved", "hf:saved", f"hf:{tmp_path / 'saved'}")
    folders = {prepare("text", options, source, tmp_path / "home") for source in sources}
    assert len(folders) == 1
    manifest = read_manifest(folders.pop())
    assert {task: sum(counts.values()) for task, counts in manifest.counts.items()} == {"a": 90, "long": 90}
    with pytest.raises(UserError, match="source /nowhere does not exist"):
        prepare("text", options, "hf:/nowhere", tmp_path / "home")


@pytest.mark.parametrize("name", ["packed.tar.xz", "packed.tgz", "packed.tar", "packed.zip"])
@pytest.mark.parametrize("below", ["", "packed/"])
def test_an_archive_is_its_files(name: str, below: str, source: Path, tmp_path: Path) -> None:
    parts = {"train": 30, "test": 4}
    for part, count in parts.items():
        (source / "swa").mkdir(exist_ok=True)
        (source / "swa" / f"{part}.txt").write_text("".join(f"{part}{n} B\nya O\n\n" for n in range(count)))
    archive = tmp_path / name
    files = ("a.tsv", "swa/train.txt", "swa/test.txt")
    if name.endswith("zip"):
        with zipfile.ZipFile(archive, "w") as packed:
            for file in files:
                packed.write(source / file, below + file)
    else:
        with tarfile.open(archive, f"w:{ {'.xz': 'xz', '.tgz': 'gz'}.get(archive.suffix, '') }") as tar:
            for file in files:
                tar.add(source / file, below + file)

    texts = {"tasks": {"a": "a.tsv"}}
    tags = {"tasks": {"swa": {"train": "swa/train.txt", "test": "swa/test.txt"}}}
    home = tmp_path / "home"
    for pipeline, options in (("text", texts), ("conll", tags)):
        assert prepare(pipeline, options, archive, home) == prepare(pipeline, options, source, home)
    missing = {"tasks": {"swa": {"train": "swa/train.txt", "test": "swa/dev.txt"}}}
    with pytest.raises(UserError, match=rf"conll: swa/dev.txt of task swa is missing in .*{name}; correct `tasks`"):
        prepare("conll", missing, archive, home)


def test_an_archive_with_a_member_outside_is_refused(source: Path, tmp_path: Path) -> None:
    archive = tmp_path / "odd.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source / "a.tsv", "a.tsv")
        tar.add(source / "b.tsv", "../b.tsv")
    with pytest.raises(UserError, match=r"has the unsafe member '\.\./b\.tsv', outside its own folder"):
        prepare("text", {"tasks": {"a": "a.tsv"}}, archive, tmp_path / "home")
    assert not (tmp_path / "b.tsv").exists()


def test_latin_1_is_read_and_said(source: Path, load: Load) -> None:
    (source / "a.tsv").write_bytes((source / "a.tsv").read_bytes() + "café crème\tyes\n".encode("latin-1"))
    (source / "b.tsv").write_bytes("\ufeff".encode() + (source / "b.tsv").read_bytes() + "naïve\tyes\n".encode())
    data = load(split=3)
    assert data.manifest.notes["read_as_latin_1"] == ["a.tsv"]
    assert {"café", "naïve"} <= set(data.suite.extras["vocabulary"])


def test_texts_without_a_word_stay_and_are_counted(source: Path, load: Load) -> None:
    table(source / "a.tsv", [(":-)", "yes"), ("!!", "no"), *rows("a")])
    data = load()
    assert data.manifest.notes["texts_without_words"] == {"a": 2}
    assert sum(data.manifest.counts["a"].values()) == COUNT + 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("\tyes", "a.tsv line 122 has no text in text"),
        ("fine\t ", "a.tsv line 122 has no label"),
        ("fine", "a.tsv line 122 has 1 fields, not 2"),
        ("fine\tyes\tmore", "a.tsv line 122 has 3 fields, not 2"),
        ("fine\tmaybe", "a.tsv line 122 is the only row of a with the label 'maybe'"),
    ],
)
def test_rows_that_cannot_be_used(line: str, said: str, source: Path, load: Load) -> None:
    (source / "a.tsv").write_text((source / "a.tsv").read_text() + f"{line}\n")
    wanted = rf"^text: 1 row cannot be used, the first: {said}; mend or pass --skip-bad, or set `bad: skip`$"
    with pytest.raises(UserError, match=wanted):
        load()
    for data in (load(skip_bad=True), load(bad="skip")):
        assert sum(data.manifest.counts["a"].values()) == COUNT
        assert data.manifest.notes["skipped"] == {"count": 1, "first": [said]}


def test_a_label_that_training_has_not(source: Path, load: Load) -> None:
    table(source / "train.tsv", rows("a"))
    table(source / "test.tsv", [("new", "maybe"), ("newer", "maybe"), *rows("b", 20)])
    tasks = {"a": {"train": "train.tsv", "test": "test.tsv"}}
    with pytest.raises(
        UserError, match=r"2 rows .* first: test\.tsv line 2 has the label 'maybe', which no training row"
    ):
        load(tasks)
    assert load(tasks, bad="skip").manifest.counts["a"]["test"] == 20


@pytest.mark.parametrize(
    ("tasks", "options", "said"),
    [
        ({}, {}, "it has no tasks; name a file for each"),
        ({"a": "none.tsv"}, {}, r"none\.tsv of task a is missing in .*; correct `tasks`"),
        ({"a": "a.tsv"}, {"text": "txt"}, r"a\.tsv has no column 'txt'; it has text, label; name it by `text`"),
        ({"a": {"file": "a.tsv", "lable": "x"}}, {}, "task a: unknown key 'lable'; did you mean label"),
        ({"a": {"text": "x"}}, {}, "task a: name its `file`, or its `train` and `test`"),
        ({"a": {"test": "a.tsv"}}, {}, "task a: name its `file`, or its `train` and `test`"),
        ({"a": {"file": "a.tsv", "train": "b.tsv"}}, {}, "task a: name its `file`, or its"),
        ({"a": {"file": "a.tsv", "label": 3}}, {}, "task a: label = 3 should be a text; put it in quotes"),
        ({"a": {"file": "a.tsv", "problem": "rank"}}, {}, "task a: problem = 'rank' is none of auto"),
        ({"a": ["a.tsv"]}, {}, "task a should be a name with a file"),
        ({"a": "../a.tsv"}, {}, r"task a: '\.\./a\.tsv' should lie below the source"),
        ({"a": "a.doc"}, {}, r"a\.doc is none of \.tsv"),
        ({"a": "empty.tsv"}, {}, r"empty\.tsv is empty; leave its task out"),
        ({"a": "head.tsv"}, {}, "task a has no row to use; mend its file"),
        ({"a": "bare.tsv"}, {}, r"9 rows cannot be used, the first: bare\.tsv line 2 has 1 fields, not 2; mend"),
        ({"a": "bare.tsv"}, {"bad": "skip"}, "task a has no row to use"),
        ({"a": "wide.tsv"}, {}, r"wide\.tsv is not text: it contains NUL bytes; save it as UTF-8"),
        ({"a": "one.tsv"}, {}, "task a has the label 'yes' alone in training; name another `label`"),
        ({"a": "folder"}, {}, "folder of task a is no folder that `save_to_disk` wrote"),
        ({"a": "two.jsonl"}, {}, r"1 row cannot be used, the first: two\.jsonl line 2 is no JSON object"),
        ({"a": "odd.jsonl"}, {}, r"2 rows cannot be used, the first: odd\.jsonl line 1 is no JSON object"),
        ({"a": {"file": "a.tsv", "problem": "regression"}}, {}, "120 rows .* 'no', which is no number; mend"),
        ({"a": "a.tsv"}, {"quotes": "no"}, "quotes = 'no' is outside auto | always | never"),
    ],
)
def test_a_mistake_gets_one_line(
    tasks: dict[str, Any], options: dict[str, Any], said: str, source: Path, load: Load
) -> None:
    (source / "empty.tsv").write_text("\n")
    (source / "head.tsv").write_text("text\tlabel\n")
    (source / "bare.tsv").write_text("text\tlabel\n" + "no label\n" * 9)
    (source / "a.doc").write_text("text\tlabel\n")
    (source / "wide.tsv").write_bytes(b"text\tlabel\nx\0\ty\n")
    (source / "folder").mkdir()
    table(source / "one.tsv", [(f"x{n}", "yes") for n in range(50)])
    good = [json.dumps({"text": t, "label": y}) for t, y in rows("a")]
    (source / "two.jsonl").write_text(good[0] + "\n{")
    (source / "odd.jsonl").write_text("\n".join(["[1]", "{", *good]))
    with pytest.raises(UserError, match=f"^text: {said}") as caught:
        load(tasks, **options)
    assert "\n" not in str(caught.value)


def test_the_files_lie_beside_the_experiment(
    source: Path, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    """Found from wherever the command runs, known by what they hold, and packed with it."""
    options = "options: {tasks: {a: texts/a.tsv, b: texts/b.tsv}}"
    path = experiment_file(datasets=f"[{{name: text, {options}}}]")
    (dataset,) = load_experiment(path).datasets
    assert dataset.source == str(tmp_path)
    (named,) = load_experiment(path, ("datasets.0.source=texts", "datasets.0.options.tasks={a: a.tsv}")).datasets
    assert named.source == str(source)
    (nowhere,) = load_experiment(path, ("datasets.0.options.tasks={a: c.tsv}",)).datasets
    assert nowhere.source is None  # an earlier preparation, or --source, may have it
    folder = prepare("text", dataset.options, dataset.source, tmp_path / "home")
    (source / "beside.tsv").write_text("nothing of ours")
    assert prepare("text", dataset.options, dataset.source, tmp_path / "home") == folder
    package = pack(str(path))
    package.write(tmp_path / "job")
    there = load_experiment(tmp_path / "job" / package.file)
    assert Path(str(there.datasets[0].source)) == tmp_path / "job" / "data" / "0"
    packed = prepare("text", there.datasets[0].options, there.datasets[0].source, tmp_path / "other")
    assert read_manifest(packed).fingerprint == read_manifest(folder).fingerprint
    fingerprints = {"text": read_manifest(folder).fingerprint}
    ids = [[run.run_id for run in each.runs(fingerprints)] for each in (load_experiment(path), there)]
    assert ids[0] == ids[1]
    (source / "a.tsv").write_text((source / "a.tsv").read_text() + "one more\tyes\n")
    assert prepare("text", dataset.options, dataset.source, tmp_path / "home") != folder
