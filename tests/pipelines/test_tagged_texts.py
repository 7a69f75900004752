"""The pipelines of tagged words, on small sources in the layouts of the real ones."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mtlscale.config import SPLITS, UserError, build
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare
from pipelines import PrepareContext

PARTS = {"train": 6, "dev": 3, "test": 4}  # sentences


def conllu(words: list[tuple[str, str]]) -> str:
    rows = [f"{n}\t{form}\t_\t{tag}\t_\t_\t0\t_\t_\t_" for n, (form, tag) in enumerate(words, start=1)]
    return "# sent_id = 1\n" + "\n".join(rows) + "\n\n"


def treebank(root: Path, code: str, parts: dict[str, int], packed: bool = True) -> None:
    folder = root / f"UD_{code}"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in parts.items():
        sentences = [conllu([(f"{code}", "NOUN"), (f"{part}{n}", "VERB"), (".", "PUNCT")]) for n in range(count)]
        text = "".join(sentences).encode()
        name = f"{code}-ud-{part}.conllu"
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(text) if packed else text)


@pytest.fixture
def ud(tmp_path: Path) -> Path:
    root = tmp_path / "ud"
    for code in ("en_ewt", "en_lines"):
        treebank(root, code, PARTS)
    treebank(root, "te_mtg", PARTS, packed=False)
    treebank(root, "zh_gsd", {"dev": 2, "test": 2})
    for code in ("zh_pud", "zh_hk"):
        treebank(root, code, {"test": 5})
    return root


def made(name: str, source: Path, tmp_path: Path, **options: Any) -> PreparedData:
    return load_prepared(prepare(name, options, source, tmp_path / "home", engine="local"))


def test_languages_are_tasks_and_chinese_has_its_substitute(ud: Path, tmp_path: Path) -> None:
    data = made("ud", ud, tmp_path, languages=["en", "zh", "te"], min_count=1)
    assert data.suite.input_shape == (3, 17) and data.suite.per_token
    assert {task.name: task.metrics[0] for task in data.suite.tasks} == dict.fromkeys(("en", "zh", "te"), "accuracy")
    sizes = {task: [len(data.splits[split][task]) for split in SPLITS] for task in ("en", "zh", "te")}
    assert sizes == {"en": [6, 3, 4], "zh": [10, 2, 2], "te": [6, 3, 4]}
    notes = read_manifest(data.folder).notes
    assert notes["treebanks"]["zh"]["train"] == ["zh_pud:test", "zh_hk:test"]
    assert notes["treebanks"]["en"]["train"] == ["en_ewt:train"]
    assert "cuts_in_long_sentences" not in notes
    classes = data.suite.tasks[0].classes
    for split in SPLITS:
        for tags in data.splits[split]["te"].targets["te"]:
            assert [classes[tag] for tag in tags] == ["NOUN", "VERB", "PUNCT"]


def test_treebanks_are_chosen_and_what_lies_beside_them_does_not_count(ud: Path, tmp_path: Path) -> None:
    chosen = {"en": ["en_ewt", "en_lines"], "zh": {"train": "zh_hk:test", "dev": "zh_gsd", "test": "zh_gsd"}}
    options = {"languages": ["en", "zh"], "treebanks": chosen, "limit": 7}
    data = made("ud", ud, tmp_path, **options)
    assert [len(data.splits["train"][task]) for task in ("en", "zh")] == [7, 5]
    treebank(ud, "te_mtg", {"train": 1}, packed=False)
    assert made("ud", ud, tmp_path, **options).folder == data.folder
    treebank(ud, "zh_hk", {"test": 4})
    assert made("ud", ud, tmp_path, **options).folder != data.folder


def test_who_waits_hears_how_many_sentences_are_read(ud: Path) -> None:
    told: list[tuple[str, int, int]] = []
    pipeline = build("datasets", "ud", {"languages": ["te"]})
    pipeline.prepare(pipeline.locate(ud), PrepareContext(progress=lambda *heard: told.append(heard)))
    assert [heard for heard in told if heard[0] == "read"] == [("read", done, 0) for done in (6, 9, 13)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"languages": ["en", "en"]}, "name each language once"),
        ({"languages": ["vi"]}, "vi has no treebank with train, dev and test in the source; choose by"),
        ({"languages": ["en"], "treebanks": {"en": "en_gum"}}, r"en_gum-ud-train.conllu, train of en, is missing"),
        ({"languages": ["en"], "treebanks": {"te": "te_mtg"}}, "which is not in languages"),
        ({"languages": ["en"], "treebanks": {"en": {"trian": "en_ewt"}}}, "unknown part 'trian'"),
        ({"languages": ["en"], "treebanks": {"en": {"train": "en_ewt"}}}, "treebanks of en names none for val"),
        ({"languages": ["en"], "treebanks": {"en": 3}}, "treebanks of en is 3; write a code"),
        ({"languages": ["en"], "features": True}, "features are those of a model; name its folder as `tokenizer`"),
    ],
)
def test_what_cannot_be_had_of_treebanks(options: dict[str, Any], problem: str, ud: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        made("ud", ud, tmp_path, **options)


def test_a_treebank_that_is_empty_or_damaged_is_named_with_its_line(ud: Path, tmp_path: Path) -> None:
    path = ud / "UD_te_mtg" / "te_mtg-ud-dev.conllu"
    text = path.read_text()
    path.write_text(text.replace("\tVERB\t", "\tVERBE\t", 1))
    with pytest.raises(UserError, match=r"te_mtg-ud-dev.conllu line 3 has the tag 'VERBE', none of the 17"):
        made("ud", ud, tmp_path, languages=["te"])
    left = load_prepared(prepare("ud", {"languages": ["te"]}, ud, tmp_path / "home", engine="local", skip_bad=True))
    assert len(left.splits["val"]["te"]) == 2
    path.write_text("# nothing\n")
    with pytest.raises(UserError, match=r"te_mtg-ud-dev.conllu has no sentence: the treebank is empty"):
        made("ud", ud, tmp_path, languages=["te"])


def entities(root: Path, layout: str) -> Path:
    """Two languages, three parts, in one of the layouts of the set; the first sentence's entity starts inside."""
    counts = {"train": 5, "dev": 3, "test": 3}
    for language in ("en", "de"):
        texts = {}
        for part, count in counts.items():
            blocks = []
            for n in range(count):
                rows = [(f"w{n}", "I-PER"), (f"{part}:x", "I-PER"), ("in", "O"), ("Rome", "B-LOC")]
                blocks.append("".join(
                    f"{place}\t{word}\t{tag}\n" if layout == "conllu" else f"{language}:{word}\t{tag}\n"
                    for place, (word, tag) in enumerate(rows)
                ))  # fmt: skip
            texts[part] = "\n".join(blocks)
        folder = root / layout / language
        folder.mkdir(parents=True)
        for part, text in texts.items():
            if layout == "conllu":
                name = "val" if part == "dev" else part
                (folder / f"{name}.conllu.gz").write_bytes(gzip.compress(text.encode()))
            else:
                (folder / part).write_text(text)
        if layout == "archives":
            with tarfile.open(root / layout / f"{language}.tar.gz", "w:gz") as archive:
                for part in texts:
                    archive.add(folder / part, part)
                    (folder / part).unlink()
            folder.rmdir()
    return root / layout


def test_entities_read_alike_in_every_layout_and_begin_where_they_start(tmp_path: Path) -> None:
    found = [made("wikiann", entities(tmp_path, layout), tmp_path / layout, languages=["en", "de"], min_count=1)
             for layout in ("conllu", "plain", "archives")]  # fmt: skip
    assert len({data.manifest.fingerprint for data in found}) == 1
    data = found[0]
    assert data.suite.tasks[0].metrics[0] == "entity_f1"
    assert data.manifest.notes["entities_that_start_inside"] == {"de": 11, "en": 11}
    classes, samples = data.suite.tasks[0].classes, data.splits["train"]["de"]
    assert [classes[tag] for tag in samples.targets["de"][0]] == ["B-PER", "I-PER", "O", "B-LOC"]
    words = data.suite.extras["vocabulary"]
    assert [words[id] for id in samples.inputs[0, :, 0]] == ["w0", "train:x", "in", "rome"]
    with pytest.raises(UserError, match="nl has no train file"):
        made("wikiann", tmp_path / "plain", tmp_path, languages=["nl"])


def test_columns_of_ones_own_files(tmp_path: Path) -> None:
    for part, count in (("train", 40), ("test", 4)):
        rows = [f"word{n} NN I-{'ORG' if n else 'LOC'}\n, , O\n" for n in range(count)]
        (tmp_path / f"{part}.txt").write_text("-DOCSTART- -X- O\n\n" + "\n".join(rows))
    files = {"train": "train.txt", "test": "test.txt"}
    tasks = {"ner": files, "pos": {**files, "tag": 2}}
    data = made("conll", tmp_path, tmp_path, tasks=tasks, tags="own")
    classes = {task.name: task.classes for task in data.suite.tasks}
    assert classes == {"ner": ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG"), "pos": (",", "NN")}
    held = {task: set(read_ids(data.folder, "val", task)) for task in classes}
    assert 0 < len(held["ner"]) < 15 and {id[4:] for id in held["ner"]} == {id[4:] for id in held["pos"]}
    assert data.splits["test"]["ner"].targets["ner"].tolist() == [[1, 0], *[[3, 0]] * 3]
    assert data.manifest.notes["entities_that_start_inside"]["ner"] == 44
    shared = made("conll", tmp_path, tmp_path, tasks={"a": files, "b": files})
    assert shared.suite.tasks[0].classes == shared.suite.tasks[1].classes


def test_a_tag_that_training_lacks_is_a_class_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"a{n} {'XY'[n % 2]}\n\n" for n in range(30)))
    (tmp_path / "c.txt").write_text("c Z\n\nd X\n")
    data = made("conll", tmp_path, tmp_path, tasks={"a": {"train": "a.txt", "test": "c.txt"}})
    assert data.suite.tasks[0].classes == ("X", "Y", "Z")
    assert data.manifest.notes["tags_not_in_training"] == {"a": 1}


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ({}, "it has no tasks"),
        ({"a": "a.txt"}, "task a should be a name with `{train: FILE, test: FILE}`"),
        ({"a": {"train": "a.txt"}}, "name its `train` and its `test`"),
        ({"a": {"train": "a.txt", "test": "b.txt"}}, "b.txt of task a is missing"),
        ({"a": {"train": "a.txt", "test": "../a.txt"}}, "should lie below the source"),
        ({"a": {"train": "a.txt", "test": "a.txt", "word": 1, "tag": 1}}, "should be two columns"),
        ({"a": {"train": "a.txt", "test": "a.txt", "tags": 2}}, "unknown key 'tags'"),
        ({"a": {"train": "a.txt", "test": "a.txt", "tag": 4}}, "has no sentence to use, conll: a.txt line 1 has 2 col"),
    ],
)
def test_what_cannot_be_had_of_columns(tasks: dict[str, Any], problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"a{n} {'XY'[n % 2]}\n\n" for n in range(30)))
    with pytest.raises(UserError, match=problem):
        made("conll", tmp_path, tmp_path, tasks=tasks)
