from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

Change = Callable[[pd.DataFrame], pd.DataFrame]


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = 240
    return pd.DataFrame(
        {
            "store": np.repeat(["north side", "south", "west/2"], [120, 80, 40]),
            "size": rng.normal(5, 2, rows),
            "visits": rng.integers(0, 90, rows),
            "open": rng.random(rows) > 0.5,
            "kind": rng.choice(["a", "b", "c"], rows),
            "sales": rng.normal(100, 30, rows),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """The example's file, changed; .csv or .parquet."""

    def write(change: Change = lambda f: f, name: str = "shop.csv") -> Path:
        path = tmp_path / name
        changed = change(frame())
        changed.to_csv(path, index=False) if path.suffix == ".csv" else changed.to_parquet(path, index=False)
        return path

    return write


CLASSES = {"task": "store", "target": "kind", "features": ["size", "visits", "open"]}
SALES = {"task": "store", "target": "sales", "features": ["size", "visits", "open"]}


@pytest.mark.parametrize("name", ["shop.csv", "shop.parquet"])
def test_a_task_per_value_of_the_task_column(name: str, table: Callable[..., Path], tmp_path: Path) -> None:
    folder = prepare("table", CLASSES, table(name=name), tmp_path)
    data = load_prepared(folder)
    assert {task: sum(counts.values()) for task, counts in data.manifest.counts.items()} == {
        "north_side": 120,
        "south": 80,
        "west_2": 40,
    }
    assert data.manifest.counts["south"] == {"train": 51, "val": 13, "test": 16}
    assert data.suite.tasks[0].classes == ("a", "b", "c") and data.manifest.notes["features"] == CLASSES["features"]
    original = frame()
    for task in data.suite.streams:
        for split in SPLITS:
            rows = [int(id) for id in read_ids(folder, split, task)]
            kinds = [data.suite.tasks[0].classes[code] for code in data.splits[split][task].targets[task]]
            assert kinds == original["kind"][rows].tolist()
            assert {value.replace(" ", "_").replace("/", "_") for value in original["store"][rows]} == {task}
    train = torch.cat([data.splits["train"][task].inputs for task in data.suite.streams])
    torch.testing.assert_close(train.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.std(0, correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_numbers_with_a_point_are_regression_and_may_stay_as_they_are(
    table: Callable[..., Path], tmp_path: Path
) -> None:
    folder = prepare("table", {**SALES, "standardise": False}, table(), tmp_path)
    data = load_prepared(folder)
    assert data.suite.tasks[0].loss == "mse" and data.suite.tasks[0].metrics == ("rmse", "mae")
    rows = [int(id) for id in read_ids(folder, "test", "south")]
    expected = torch.tensor(frame()[["size", "visits", "open"]].to_numpy(float)[rows], dtype=torch.float32)
    torch.testing.assert_close(data.splits["test"]["south"].inputs, expected)
    assert float(data.splits["test"]["south"].targets["south"].mean()) == pytest.approx(
        frame()["sales"][rows].mean(), rel=1e-5
    )


def test_the_problem_may_be_named(table: Callable[..., Path], tmp_path: Path) -> None:
    whole = lambda f: f.assign(kind=f["visits"] % 3)  # noqa: E731
    options = {**CLASSES, "features": ["size"]}
    assert load_prepared(prepare("table", options, table(whole), tmp_path)).suite.tasks[0].outputs == 3
    numbers = prepare("table", {**options, "problem": "regression"}, table(whole), tmp_path)
    assert load_prepared(numbers).suite.tasks[0].loss == "mse"
    with pytest.raises(UserError, match="target 'kind' holds string, no numbers; set `problem` to classification"):
        prepare("table", {**CLASSES, "problem": "regression"}, table(), tmp_path)


def test_an_id_column_keeps_the_split_when_rows_move(table: Callable[..., Path], tmp_path: Path) -> None:
    named = lambda f: f.assign(key=[f"k{row}" for row in range(len(f))])  # noqa: E731
    options = {**CLASSES, "id": "key"}
    prints = [
        read_manifest(prepare("table", options, table(change), tmp_path)).fingerprint
        for change in (named, lambda f: named(f).sample(frac=1, random_state=0))
    ]
    assert prints[0] == prints[1]
    with pytest.raises(UserError, match="a value of the id column 'open' occurs twice"):
        prepare("table", {**CLASSES, "features": ["size"], "id": "open"}, table(), tmp_path)


def test_shares_and_splits_are_options(table: Callable[..., Path], tmp_path: Path) -> None:
    folder = prepare("table", {**CLASSES, "test": 0.5, "validation": 0.5}, table(), tmp_path)
    assert read_manifest(folder).counts["south"] == {"train": 20, "val": 20, "test": 40}
    other = prepare("table", {**CLASSES, "split": 1}, table(), tmp_path)
    first = prepare("table", CLASSES, table(), tmp_path)
    assert set(read_ids(other, "test", "south")) != set(read_ids(first, "test", "south"))


def test_tasks_may_have_classes_of_their_own(table: Callable[..., Path], tmp_path: Path) -> None:
    fewer = lambda f: f[(f["store"] != "south") | (f["kind"] != "b")]  # noqa: E731
    with pytest.raises(UserError, match="task south has no sample of class b; leave the task out or set `classes`"):
        prepare("table", CLASSES, table(fewer), tmp_path)
    data = load_prepared(prepare("table", {**CLASSES, "classes": "own"}, table(fewer), tmp_path))
    assert [task.classes for task in data.suite.tasks] == [("a", "b", "c"), ("a", "c"), ("a", "b", "c")]
    assert set(data.splits["train"]["south"].targets["south"].tolist()) == {0, 1}


def test_a_constant_feature_is_named_or_dropped(table: Callable[..., Path], tmp_path: Path) -> None:
    options = {**CLASSES, "features": ["size", "always", "visits"]}
    constant = lambda f: f.assign(always=7)  # noqa: E731
    with pytest.raises(UserError, match="column 'always' is constant over the training rows; leave it out"):
        prepare("table", options, table(constant), tmp_path)
    folder = prepare("table", {**options, "constant": "drop"}, table(constant), tmp_path)
    assert read_manifest(folder).notes["features"] == ["size", "visits"]
    assert load_prepared(folder).suite.input_shape == (2,)


def test_rows_with_empty_cells_stop_or_are_left_out(table: Callable[..., Path], tmp_path: Path) -> None:
    def holes(f: pd.DataFrame) -> pd.DataFrame:
        f.loc[3, "size"] = np.nan
        f.loc[7, "kind"] = None
        f.loc[9, "size"] = np.inf
        return f

    with pytest.raises(UserError, match="3 rows cannot be used, the first: row 4 has no value in size; mend or pass"):
        prepare("table", CLASSES, table(holes), tmp_path)
    folder = prepare("table", CLASSES, table(holes), tmp_path, skip_bad=True)
    manifest = read_manifest(folder)
    assert sum(manifest.counts["north_side"].values()) == 117 and manifest.notes["skipped"]["count"] == 3


@pytest.mark.parametrize(
    ("options", "change", "expected"),
    [
        ({"task": "shop"}, None, "there is no column 'shop'; .*; set the option task"),
        ({"task": "stor"}, None, r"there is no column 'stor'; did you mean store\?; set the option task"),
        ({"target": "label"}, None, "there is no column 'label'; .*; set the option target"),
        ({"id": "key"}, None, "there is no column 'key'; .*; set the option id"),
        ({"features": ["size", "wide"]}, None, "there is no column 'wide'; .*; correct `features`"),
        ({"features": ["size", "store"]}, None, "column 'store' is task, target or id and a feature as well"),
        (
            {"features": []},
            lambda f: f.assign(colour="red"),
            "feature 'colour' holds string, no numbers; name it in `categorical`",
        ),
        (
            {"target": "sales"},
            lambda f: f.drop(index=range(2, 120)),
            "task north_side has 2 samples, too few for 20% test",
        ),
        ({}, lambda f: f.replace({"store": {"south": "north_side"}}), "task .* both called north_side in file names"),
        ({}, lambda f: f.iloc[:0], "shop.csv has no row"),
        ({"features": ["size", "gap"]}, lambda f: f.assign(gap=np.nan), "column 'gap' holds null, no numbers"),
        ({"features": ["size"], "constant": "drop"}, lambda f: f.assign(size=1.0), "every input is constant"),
        (
            {"features": ["size"], "standardise": False},
            lambda f: f.assign(size=f["visits"] % 2 + 2.0**24),
            "column 'size' loses its differences in float32",
        ),
        (
            {"features": ["size"], "constant": "drop"},
            lambda f: f.assign(size=10**18 + f["visits"].astype(int) % 2),
            "column 'size' loses its differences in float64",
        ),
        ({"test": 0}, None, r"test = 0.0 is outside \(0, 1\)"),
        ({"split": -1}, None, r"split = -1 is outside \[0, ∞\)"),
    ],
)
def test_a_mistake_gets_one_line(
    options: dict[str, Any], change: Change | None, expected: str, table: Callable[..., Path], tmp_path: Path
) -> None:
    path = table(change or (lambda f: f))
    with pytest.raises(UserError, match=f"^table: {expected}") as caught:
        prepare("table", {**CLASSES, **options}, path, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_file_is_found_in_a_folder_or_named(table: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    home = tmp_path / "home"
    with pytest.raises(UserError, match=r"tables holds no file that ends in .csv, .tsv, .parquet, .arff; name one by"):
        prepare("table", CLASSES, folder, home)
    table().rename(folder / "one.csv")
    assert read_manifest(prepare("table", CLASSES, folder, home)).source.description == "one.csv"
    table(name="two.parquet").rename(folder / "two.parquet")
    with pytest.raises(UserError, match=r"holds one.csv, two.parquet; name one by option `file` or --source"):
        prepare("table", CLASSES, folder, home)
    prepare("table", {**CLASSES, "file": "two.parquet"}, folder, home)
    (folder / "notes.txt").write_text("nothing")
    with pytest.raises(UserError, match=r"notes.txt is none of .csv, .tsv, .parquet, .arff; rename or convert it"):
        prepare("table", CLASSES, folder / "notes.txt", home)
    (folder / "two.parquet").write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(UserError, match=r"two.parquet cannot be read: ") as caught:
        prepare("table", CLASSES, folder / "two.parquet", home)
    assert "\n" not in str(caught.value)


def test_whole_numbers_with_a_point_are_classes(table: Callable[..., Path], tmp_path: Path) -> None:
    """As pandas writes a column of classes in which a cell was empty once."""
    pointed = lambda f: f.assign(kind=(f["visits"] % 3).astype(float))  # noqa: E731
    suite = load_prepared(prepare("table", {**CLASSES, "features": ["size"]}, table(pointed), tmp_path)).suite
    assert suite.tasks[0].loss == "cross_entropy" and suite.tasks[0].classes == ("0", "1", "2")


def test_test_inputs_that_stand_in_training_are_counted_across_tasks(
    table: Callable[..., Path], tmp_path: Path
) -> None:
    """The same measurements under two tasks, as a table of several targets has them in long form."""
    twice = lambda f: pd.concat([f[f["store"] == "south"], f[f["store"] == "south"].assign(store="again")])  # noqa: E731
    folder = prepare("table", CLASSES, table(twice), tmp_path)
    data = load_prepared(folder)
    known = {
        tuple(row)
        for split in ("train", "val")
        for samples in data.splits[split].values()
        for row in samples.inputs.tolist()
    }
    counts = {
        task: sum(tuple(row) in known for row in samples.inputs.tolist())
        for task, samples in data.splits["test"].items()
    }
    assert sum(counts.values()) > 8
    assert data.manifest.notes["test_inputs_in_train_or_val"] == counts
    assert "test_inputs_in_train_or_val" not in read_manifest(prepare("table", CLASSES, table(), tmp_path)).notes


def test_categories_become_codes_and_those_that_training_lacks_are_unknown(
    table: Callable[..., Path], tmp_path: Path
) -> None:
    def change(f: pd.DataFrame) -> pd.DataFrame:
        f = f.assign(colour=np.where(f["visits"] % 2, "red", "blue"), floor=f["visits"] % 4 + 8)
        f.loc[5, "colour"] = "green"
        return f

    options = {**CLASSES, "features": ["size", "colour", "floor"], "categorical": ["colour", "floor"]}
    splits = [
        (folder, next(split for split in SPLITS if "000000005" in read_ids(folder, split, "north_side")))
        for seed in range(4)
        for folder in [prepare("table", {**options, "split": seed}, table(change), tmp_path)]
    ]
    assert {split == "train" for _, split in splits} == {True, False}
    for folder, split in splits:
        data = load_prepared(folder)
        known = ["blue", "green", "red"] if split == "train" else ["blue", "red"]
        assert data.manifest.notes["categories"] == {"colour": known, "floor": ["8", "9", "10", "11"]}
        assert data.suite.categories == (0, 1 + len(known), 5)
        assert data.manifest.notes.get("unknown_categories", {}) == ({} if split == "train" else {"colour": 1})
        ids = read_ids(folder, split, "north_side")
        row = data.splits[split]["north_side"].inputs[ids.index("000000005")].tolist()
        rows = change(frame())
        assert row[1:] == [known.index("green") + 1 if "green" in known else 0, rows["floor"][5] - 7]
        sizes = torch.cat([data.splits["train"][task].inputs[:, 0] for task in data.suite.streams])
        assert float(sizes.mean()) == pytest.approx(0, abs=1e-6) and float(sizes.std()) == pytest.approx(1, abs=0.01)


def test_latin_1_is_read_as_text_reads_it(table: Callable[..., Path], tmp_path: Path) -> None:
    path = table(lambda f: f.replace({"store": {"south": "süd"}}))
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    manifest = read_manifest(prepare("table", CLASSES, path, tmp_path))
    assert "süd" in manifest.counts and manifest.notes["read_as_latin_1"] == ["shop.csv"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"task,x1,x1,target\na,1,2,0\n", "shop.csv has two columns named 'x1'; rename one"),
        (b"PK\x03\x04\x00\x00", "shop.csv is a spreadsheet or a zip archive, no CSV; save its sheet as CSV"),
        (b"a,\x00\n", "shop.csv is not text: it contains NUL bytes"),
    ],
)
def test_a_file_that_is_something_else_is_told_by_what_it_is(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^table: {expected}") as caught:
        prepare("table", CLASSES, path, tmp_path)
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "shop.parquet"
    pq.write_table(pa.table([[1], [2]], names=["x1", "x1"]), path)
    with pytest.raises(UserError, match=r"^table: shop.parquet has two columns named 'x1'; rename one"):
        prepare("table", CLASSES, path, tmp_path)
