from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

FEATURES, LABELS = ("size", "it's wide", "constant"), ("loud", "very calm")
COUNTS = {"train": 120, "test": 25}
XML = '<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n{}</labels>\n'


def values(part: str) -> np.ndarray:
    """Rows of features, then labels."""
    rng = np.random.default_rng(len(part))
    count = COUNTS[part]
    features = np.column_stack([rng.normal(3, 2, count).round(4), rng.integers(0, 2, count), np.full(count, 7.0)])
    return np.column_stack([features, features[:, 0] > 3, np.arange(count) % 3 == 0])


def header() -> str:
    names = "".join(
        f"@attribute {name!r} numeric\n" if " " in name else f"@attribute {name} numeric\n" for name in FEATURES
    )
    names = names.replace('"it\'s wide"', r"'it\'s wide'")
    labels = "@attribute loud {0,1}\n@ATTRIBUTE 'very calm' {0, 1}\n"
    return f"% a comment\n@relation 'x: -C 2'\n\n{names}{labels}\n@data\n"


def dense(row: np.ndarray) -> str:
    return ",".join(f"{value:g}" for value in row)


def sparse(row: np.ndarray) -> str:
    return "{" + ",".join(f"{place} {value:g}" for place, value in enumerate(row) if value) + "}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "multilabel"
    root.mkdir()
    labels = "".join(f'<label name="{name}"></label>\n' for name in LABELS)
    for name, form in (("mine", dense), ("thin", sparse)):
        for part in COUNTS:
            body = header() + "".join(f"{form(row)}\n" for row in values(part))
            (root / f"{name}-{part}.arff").write_text(body)
        (root / f"{name}.xml").write_text(XML.format(labels))
    for path in list(root.glob("thin*")):
        (root / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return root


def test_labels_are_tasks_on_one_input(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("multilabel", {"set": "mine", "standardise": False}, source, tmp_path))
    assert [task.name for task in data.suite.tasks] == ["loud", "very_calm"]
    assert data.suite.streams == {"all": ("loud", "very_calm")} and data.suite.input_shape == (3,)
    assert {task.loss for task in data.suite.tasks} == {"bce"}
    for split in SPLITS:
        samples = data.splits[split]["all"]
        for row, id in enumerate(read_ids(data.folder, split, "all")):
            part, number = id.split("/")
            expected = values(part)[int(number)]
            assert (split == "test") == (part == "test")
            np.testing.assert_allclose(samples.inputs[row].numpy(), expected[:3], rtol=1e-6)
            assert [int(samples.targets[task][row]) for task in ("loud", "very_calm")] == expected[3:].tolist()
    counts = data.manifest.counts["loud"]
    assert counts["test"] == 25 and 6 <= counts["val"] <= 50


def test_features_are_standardised_by_training_alone(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("multilabel", {"set": "mine"}, source, tmp_path))
    train = data.splits["train"]["all"].inputs
    assert torch.allclose(train.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(train[:, :2].std(0, correction=0), torch.ones(2), atol=1e-5)
    assert not train[:, 2].any() and float(data.splits["test"]["all"].inputs.mean(0)[0].abs()) > 1e-4


def test_dense_and_sparse_plain_and_packed_say_the_same(source: Path, tmp_path: Path) -> None:
    options = {"standardise": False, "validation": 0.3}
    found = []
    for name in ("mine", "thin"):
        data = load_prepared(prepare("multilabel", {"set": name, **options}, source, tmp_path))
        rows = torch.cat([data.splits[split]["all"].inputs for split in ("train", "val")])
        found.append(rows[rows[:, 0].argsort()])
    assert torch.equal(found[0], found[1])


def test_equal_rows_are_in_one_split(source: Path, tmp_path: Path) -> None:
    path = source / "mine-train.arff"
    path.write_text(path.read_text() + "".join(f"{dense(row)}\n" for row in values("train")))
    tested = [*values("train")[:9], *values("test")]
    (source / "mine-test.arff").write_text(header() + "".join(f"{dense(row)}\n" for row in tested))
    folder = prepare("multilabel", {"set": "mine"}, source, tmp_path)
    where = {id: split for split in SPLITS for id in read_ids(folder, split, "all")}
    for number in range(120):
        assert where[f"train/{number:06d}"] == where[f"train/{number + 120:06d}"]
    assert read_manifest(folder).notes["test_inputs_in_train_or_val"] == 9


def test_other_sets_beside_it_are_none_of_its(source: Path, tmp_path: Path) -> None:
    folder = prepare("multilabel", {"set": "mine"}, source, tmp_path)
    (source / "thin.xml.gz").unlink()
    assert prepare("multilabel", {"set": "mine"}, source, tmp_path) == folder


def test_labels_that_a_split_has_not(source: Path, tmp_path: Path) -> None:
    path = source / "mine-test.arff"
    rows = values("test")
    rows[:, 3] = 1
    path.write_text(header() + "".join(f"{dense(row)}\n" for row in rows))
    with pytest.raises(
        UserError, match="1 of 2 labels cannot be used, the first: loud has no negative sample in test; se"
    ):
        prepare("multilabel", {"set": "mine"}, source, tmp_path)
    dropped = read_manifest(prepare("multilabel", {"set": "mine", "rare": "drop"}, source, tmp_path))
    assert [task.name for task in dropped.suite.tasks] == ["very_calm"]
    assert dropped.notes["labels_left_out"] == {"loud": "has no negative sample in test"}
    kept = read_manifest(prepare("multilabel", {"set": "mine", "rare": "keep"}, source, tmp_path))
    assert len(kept.suite.tasks) == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("mine-train.arff", "@data", "@date", r"mine-train\.arff has no @data"),
        ("mine-train.arff", "size numeric", "size string", "mine-train.arff: attribute size is no number; leave it"),
        ("mine-train.arff", "constant numeric", "size numeric", "has two columns named 'size'; rename one"),
        ("mine-train.arff", "loud {0,1}", "loud {no,yes}", "attribute loud is no number"),
        ("mine-train.arff", ",7,", ",", r"mine-train\.arff line 11 has 4 values, not 5"),
        ("mine-train.arff", ",7,", ",x,", r"mine-train\.arff line 11 has 'x' in constant, no number"),
        ("mine-test.arff", "attribute size", "attribute sise", r"mine-test\.arff has other attributes than the train"),
        ("mine.xml", "very calm", "calm", r"label calm of mine\.xml is no attribute of its files"),
        ("mine.xml", "</labels>", "", r"mine\.xml is no XML"),
        ("mine.xml", "<labels", "<!DOCTYPE a [<!ENTITY b 'c'>]><labels", "declares a document type"),
        ("mine.xml", "label name", "lable name", r"mine\.xml (names no labels|is no XML)"),
        ("mine-train.arff", ",7,", ",?,", "120 rows cannot be used, the first: mine-.* has no finite number in con"),
        ("mine-test.arff", ",7,0,", ",7,2,", "rows cannot be used, the first: mine-test.* has neither 0 nor 1 in lou"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(file: str, old: str, new: str, said: str, source: Path, tmp_path: Path) -> None:
    content = (source / file).read_text()
    assert old in content
    (source / file).write_text(content.replace(old, new))
    with pytest.raises(UserError, match=said) as caught:
        prepare("multilabel", {"set": "mine"}, source, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_set_that_is_not_there(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"yeast-train\.arff is missing in .*; it has the sets mine, thin"):
        prepare("multilabel", {}, source, tmp_path)
    with pytest.raises(UserError, match=r"set = '\.\./mine' should be the name"):
        prepare("multilabel", {"set": "../mine"}, source, tmp_path)
    with pytest.raises(UserError, match=r"source .* is a file; name the folder with yeast-train"):
        prepare("multilabel", {}, source / "mine.xml", tmp_path)
    (source / "thin-train.arff.gz").write_bytes(b"\x1f\x8b cut")
    with pytest.raises(UserError, match=r"thin-train\.arff cannot be read .*; fetch it again"):
        prepare("multilabel", {"set": "thin"}, source, tmp_path)


@pytest.mark.parametrize(
    ("options", "shape", "labels", "rows"),
    [
        ({}, (103,), 14, (1500, 917)),
        ({"set": "emotions"}, (72,), 6, (391, 202)),
        pytest.param({"set": "medical", "rare": "drop"}, (1449,), 20, (333, 645), marks=pytest.mark.slow),
    ],
)
def test_the_sets_themselves(
    options: dict[str, Any],
    shape: tuple[int, ...],
    labels: int,
    rows: tuple[int, int],
    shared_data: Path,
    tmp_path: Path,
) -> None:
    source = shared_data / "multilabel"
    if not source.is_dir():
        pytest.skip("no multilabel in the folder of real data")
    manifest = read_manifest(prepare("multilabel", options, source, tmp_path))
    assert manifest.suite.input_shape == shape and len(manifest.suite.tasks) == labels
    counts = next(iter(manifest.counts.values()))
    assert (counts["train"] + counts["val"], counts["test"]) == rows
