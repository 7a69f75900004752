"""Tables that are read in parts: the same samples as those that are read at once, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mtlscale.config import SPLITS, UserError
from mtlscale.data.format.manifest import Manifest
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.data.tables.csv_file import read_csv, words_in
from mtlscale.data.tables.missing_words import WORDS
from mtlscale.data.tables.table_format import TableFormat
from mtlscale.execution.cluster.cluster import session
from mtlscale.execution.preparing.prepare import prepare
from pipelines._tables import table_parts
from pipelines._tables.column_sums import ColumnSums, sums_of
from pipelines._tables.table_parts import common_type, parts_of
from pipelines._tables.text_columns import summary_of
from pipelines.table_inspection import inspect_table
from pipelines.vectors.table import TableFile

ROWS = 1200
TARGETS = {"grower": "class", "alcohol": "regression", "tags": "multilabel"}
Prepare = Callable[..., Path]


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    hours = pd.date_range("2020-01-01", periods=ROWS, freq="3h")
    return pd.DataFrame(
        {
            "key": [f"k{number}" for number in rng.permutation(ROWS)],
            "ash": rng.normal(5, 2, ROWS),
            "year": rng.integers(1990, 2010, ROWS),
            "holes": np.where(rng.random(ROWS) > 0.1, rng.normal(size=ROWS), np.nan),
            "organic": rng.random(ROWS) > 0.5,
            "bottled": hours.strftime("%Y-%m-%d %H:%M:%S"),
            "soil": rng.choice(["clay", "sand", "lime", ""], ROWS),
            "street": [f"street {number}" for number in rng.integers(0, 300, ROWS)],
            "late": np.where(np.arange(ROWS) < ROWS // 2, "3", "1.5"),  # whole numbers in the first parts alone
            "weight": rng.random(ROWS),
            "grower": rng.choice(["anna", "ben", "cleo"], ROWS),
            "alcohol": np.where(rng.random(ROWS) > 0.2, rng.normal(100, 10, ROWS), np.nan),
            "tags": [";".join(tag for tag in ("dry", "red", "old") if rng.random() > 0.5) for _ in range(ROWS)],
        }
    )


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """The table, as a whole or in parts of 20 kB, in this process."""
    monkeypatch.setattr(TableFile, "collects", False)
    monkeypatch.setattr(table_parts, "PART_BYTES", 20_000)

    def make(
        table: pd.DataFrame,
        name: str,
        *,
        large: bool,
        engine: Any = "local",
        targets: dict[str, str] = TARGETS,
        **options: Any,
    ) -> Path:
        monkeypatch.setattr(table_parts, "LARGE", 0 if large else 1 << 40)
        path, skip_bad = tmp_path / name, options.pop("skip_bad", False)
        if path.suffix == ".parquet":
            typed = table.assign(bottled=pd.to_datetime(table["bottled"]))
            typed.to_parquet(path, index=False, row_group_size=500)
        else:
            table.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
        home = tmp_path / f"home {name} {large} {engine}"
        return prepare("table", {"targets": targets, **options}, path, home, engine=engine, skip_bad=skip_bad)

    return make


def assert_same(whole: Path, parts: Path) -> tuple[Manifest, Manifest]:
    expected, data, manifests = load_prepared(whole), load_prepared(parts), (read_manifest(whole), read_manifest(parts))
    for split, stream in product(SPLITS, data.suite.streams):
        ids = list(read_ids(parts, split, stream))
        order = [ids.index(id) for id in read_ids(whole, split, stream)]
        assert len(order) == len(ids)
        one, other = expected.splits[split][stream], data.splits[split][stream]
        assert np.allclose(one.inputs.numpy(), other.inputs.numpy()[order], atol=1e-5)
        for task, labels in one.targets.items():
            assert np.allclose(labels.numpy(), other.targets[task].numpy()[order], equal_nan=True), task
    for field in ("suite", "counts", "class_counts"):
        assert getattr(manifests[0], field) == getattr(manifests[1], field)
    return manifests


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("wine.csv", {"id": "key", "weight": "weight", "most_categories": 250}),
        ("wine.parquet", {"features": ("ash", "holes", "bottled", "soil", "year"), "categorical": ("year",)}),
        ("wine.tsv", {"group": "street", "standardise": False}),
    ],
)
def test_a_large_table_gives_the_samples_of_a_small_one(prepared: Prepare, name: str, options: dict[str, Any]) -> None:
    paths = [prepared(frame(), name, large=large, **options) for large in (False, True)]
    whole, parts = (manifest.notes for manifest in assert_same(*paths))
    assert set(whole) == set(parts)
    assert whole.get("hashed_categories") == parts.get("hashed_categories")
    assert whole.get("unknown_categories") == parts.get("unknown_categories")
    assert [column["indicator"] for column in whole["columns"]] == [column["indicator"] for column in parts["columns"]]


def test_molecules_are_read_in_parts(prepared: Prepare) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(["C", "N", "O", "C(=O)"], rng.integers(4, 40))) for _ in range(ROWS)]
    table = frame()[["bottled", "grower", "alcohol"]].assign(smiles=texts)
    options = {"smiles": "smiles", "targets": {"grower": "class", "alcohol": "regression"}}
    whole, parts = (manifest.notes for manifest in assert_same(
        *(prepared(table, "molecules.csv", large=large, **options) for large in (False, True))))  # fmt: skip
    assert (
        whole == parts and "standardised" not in parts and parts["left_out"] == {"bottled": "the molecule is the input"}
    )

    table.loc[1000, "smiles"] = "C1CC"
    with pytest.raises(UserError, match="1 row cannot be used, the first: row 1001 has 'C1CC' in smiles, no SMILES"):
        prepared(table, "bad.csv", large=True, **options)
    assert (
        read_manifest(prepared(table, "bad.csv", large=True, skip_bad=True, **options)).notes["skipped"]["count"] == 1
    )


def test_a_column_of_tasks_is_read_in_parts(prepared: Prepare) -> None:
    table = frame().assign(task=lambda f: f["grower"], late=lambda f: f["late"].astype(float))
    options = {"targets": {}, "target": "soil", "features": ("ash", "year", "street", "late"), "id": "key",
               "categorical": ("street",), "skip_bad": True}  # fmt: skip
    table.loc[[5, 1100], "ash"] = np.nan
    whole, parts = (manifest.notes for manifest in assert_same(
        *(prepared(table, "tasks.csv", large=large, **options) for large in (False, True))))  # fmt: skip
    assert whole["categories"] == parts["categories"] and whole["skipped"] == parts["skipped"]
    assert whole["skipped"]["count"] == 2 + int((table["soil"][~table.index.isin([5, 1100])] == "").sum())
    assert whole["unknown_categories"] == parts["unknown_categories"]
    with pytest.raises(UserError, match="rows cannot be used, the first: row 6 has no value in ash"):
        prepared(table.assign(soil="clay"), "tasks.csv", large=True, **{**options, "skip_bad": False})
    with pytest.raises(UserError, match="column 'ash' holds numbers that are not whole; leave it out of `categorical`"):
        prepared(table, "tasks.csv", large=True, **{**options, "categorical": ("ash",)})


def test_what_is_suspicious_is_noted(prepared: Prepare) -> None:
    table = frame().drop(columns=["key", "weight"]).assign(copy=lambda f: f["grower"])
    twice = pd.concat([table, table[:50]])
    notes = [read_manifest(prepared(twice, "twice.csv", large=large)).notes for large in (False, True)]
    assert notes[1]["perfect_predictors"] == {"copy": "grower"}
    assert notes[1]["test_inputs_in_train_or_val"] == notes[0]["test_inputs_in_train_or_val"]


def test_bad_rows_are_named_by_their_number_in_the_file(prepared: Prepare) -> None:
    table = frame().astype({"ash": object, "year": object})
    table.loc[700, "year"] = "oops"
    table.loc[900, "ash"] = float("inf")
    table.loc[20, "ash"] = "oops"  # now the infinite number is a text, too
    table.loc[20, "year"] = "oops"
    with pytest.raises(UserError, match="4 rows cannot be used, the first: row 21 has 'oops' in ash"):
        prepared(table, "bad.csv", large=True)
    notes = read_manifest(prepared(table, "bad.csv", large=True, skip_bad=True)).notes
    assert notes["skipped"]["count"] == 4
    assert notes["skipped"]["first"][3] == "row 901 is infinite in ash"


def test_rows_with_too_many_fields_do_not_move_the_others(prepared: Prepare, tmp_path: Path) -> None:
    whole = prepared(frame().drop(index=[3, 800]), "good.csv", large=False, id="key")
    path = tmp_path / "long.csv"
    frame().to_csv(path, index=False)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[4], lines[801] = "1,2,3", lines[801] + ",4"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"targets": TARGETS, "id": "key"}
    with pytest.raises(UserError, match="2 rows cannot be used, the first: row 4 has 3 fields, not 13"):
        prepare("table", options, path, tmp_path / "home", engine="local")

    parts = prepare("table", options, path, tmp_path / "home", engine="local", skip_bad=True)
    assert_same(whole, parts)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["a,b,a", "1,2,3"], "two columns named 'a'"),
    ],
)
def test_the_first_line_is_checked(tmp_path: Path, lines: list[str], problem: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=problem):
        parts_of(path)


def test_two_encodings_in_two_parts_are_refused(prepared: Prepare, tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    prepared(frame(), "mixed.csv", large=True)  # which writes it
    lines = path.read_bytes().split(b"\n")
    lines[2], lines[1000] = lines[2] + "é".encode(), lines[1000] + "é".encode("latin-1")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match="two encodings: line 3 is UTF-8, line 1001 is not"):
        prepare("table", {"targets": TARGETS}, path, tmp_path / "home", engine="local")


def test_a_large_file_is_inspected_by_some_of_its_parts(prepared: Prepare, tmp_path: Path) -> None:
    prepared(frame(), "wine.csv", large=True)
    report = inspect_table(tmp_path / "wine.csv", ["grower,alcohol"], {})
    kinds = {column.name: (column.role, column.kind) for column in report.columns}
    assert kinds["grower"] == ("target", "class")
    assert kinds["late"] == ("input", "number")
    assert kinds["key"][0] == "left out"
    assert 0 < report.rows < ROWS
    assert report.warnings[0].startswith(f"the file is large: {report.rows} rows, from 4 of its ")


def test_types_of_parts_agree_as_those_of_the_whole_file() -> None:
    assert common_type([pa.null(), pa.int64(), pa.float64()]) == pa.float64()
    assert common_type([pa.date32(), pa.timestamp("s")]) == pa.timestamp("s")
    assert common_type([pa.int64(), pa.date32()]) == pa.string()
    assert common_type([pa.null()]) == pa.null()


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_a_missing_cell_is_found_in_a_text_that_has_no_other(word: str) -> None:
    raw = f"{word},1\nb,2\n,3\n".encode()
    words = words_in(raw, ["text", "number"], ",", read_csv(raw, ["text", "number"], ","))
    assert (words["text"].plain, words["text"].empty, words["text"].values) == ({word: 1}, 1, {"b"})


def test_blank_cells_are_none_of_a_column_of_numbers() -> None:
    found = summary_of(pa.chunked_array([["1,5", " ", None, "2,25"], ["x", "", "3,5"]]), TableFormat(decimal=","))
    assert (found.count, found.not_numbers, found.sample) == (4, ((4, "x"),), ("1,5", "2,25", "x", "3,5"))


def test_sums_of_parts_add_up() -> None:
    values = np.random.default_rng(0).normal(3, 2, 1000)
    column = pa.chunked_array([pa.array(np.where(values > 5, np.nan, values), from_pandas=True)])
    whole, total = sums_of(column, np.arange(1000), "number", 9), None
    for start in range(0, 1000, 130):
        rows = np.arange(len(column[start : start + 130]))
        part = sums_of(column[start : start + 130], rows, "number", 9)
        total = part if total is None else total.merged(part)
    assert isinstance(total, ColumnSums)
    assert np.allclose([*total.mean, *total.squares], [*whole.mean, *whole.squares], rtol=1e-12)
    assert (total.present, total.least, total.most) == (whole.present, whole.least, whole.most)


def test_many_categories_are_estimated() -> None:
    names = pa.chunked_array([[f"name {number % 30_000}" for number in range(40_000)]])
    total = sums_of(names[:20_000], np.arange(9), "category", 5).merged(
        sums_of(names[20_000:], np.arange(9), "category", 5)
    )
    assert total.distinct == pytest.approx(30_000, rel=0.1)


@pytest.mark.ray
@pytest.mark.slow
def test_ray_data_writes_the_same_bytes(prepared: Prepare) -> None:
    with session():
        here, there = (prepared(frame(), "wine.csv", large=True, engine=engine) for engine in ("local", "ray"))
    assert read_manifest(here).fingerprint == read_manifest(there).fingerprint
