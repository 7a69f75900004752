"""A table with several targets in each row: inputs, labels, splits, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data import PreparedData
from mtlscale.data.quality_warnings import remarks
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

Change = Callable[[pd.DataFrame], pd.DataFrame]
TARGETS = {"grower": "class", "alcohol": "regression", "tags": "multilabel", "good": "class"}
ROWS = 240


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ash = rng.normal(5, 2, ROWS)
    return pd.DataFrame(
        {
            "ash": ash,
            "year": rng.integers(1990, 2010, ROWS),
            "organic": rng.random(ROWS) > 0.5,
            "bottled": pd.date_range("2020-01-01", periods=ROWS, freq="3D").strftime("%Y-%m-%d"),
            "soil": rng.choice(["clay", "sand", "lime"], ROWS),
            "grower": rng.choice(["anna", "ben", "cleo"], ROWS),
            "alcohol": 100 + 10 * rng.normal(0, 1, ROWS),
            "tags": [";".join(t for t in ("dry", "red", "old") if rng.random() > 0.5) for _ in range(ROWS)],
            "good": np.where(ash + rng.normal(0, 1, ROWS) > 5, "yes", "no"),
        }
    )


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., PreparedData]:
    """The table, changed, as a file of this name, prepared with these options."""

    def make(change: Change = lambda f: f, name: str = "wine.csv", *, skip_bad: bool = False, **options: Any) -> Any:
        path, changed = tmp_path / name, change(frame())
        if path.suffix == ".parquet":
            changed.assign(bottled=pd.to_datetime(changed["bottled"])).to_parquet(path, index=False)
        else:
            changed.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
        options = {"targets": TARGETS, **options}
        return load_prepared(prepare("table", options, path, tmp_path / "home", skip_bad=skip_bad))

    return make


def rows_of(data: PreparedData, split: str) -> list[int]:
    return [int(id) for id in read_ids(data.folder, split, "all")]


def test_every_target_is_a_task_on_the_same_row(ready: Callable[..., PreparedData]) -> None:
    data, original = ready(), frame()
    tasks = {task.name: task for task in data.suite.tasks}
    assert list(tasks) == ["grower", "alcohol", "tags_dry", "tags_old", "tags_red", "good"]
    assert tasks["grower"].classes == ("anna", "ben", "cleo") and tasks["grower"].loss == "cross_entropy"
    assert tasks["good"].classes == ("no", "yes") and tasks["good"].metrics[0] == "auroc"
    assert data.suite.inputs == "shared" and data.manifest.counts["grower"] == {"train": 154, "val": 38, "test": 48}
    mean, deviation = data.suite.extras["target_scaling"]["alcohol"]
    for split in SPLITS:
        samples, rows = data.splits[split]["all"], rows_of(data, split)
        growers = [tasks["grower"].classes[code] for code in samples.targets["grower"]]
        assert growers == original["grower"][rows].tolist()
        assert samples.targets["tags_red"].tolist() == ["red" in tags for tags in original["tags"][rows]]
        alcohol = samples.targets["alcohol"].double() * deviation + mean
        torch.testing.assert_close(alcohol, torch.tensor(original["alcohol"][rows].to_numpy()), atol=1e-4, rtol=0)
    scaled = data.splits["train"]["all"].targets["alcohol"]
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-5) and float(scaled.std(correction=0)) == pytest.approx(1)


def test_numbers_dates_and_categories_become_columns_scaled_on_train_alone(ready: Callable[..., PreparedData]) -> None:
    data = ready()
    assert data.manifest.notes["features"] == ["ash", "year", "organic", "bottled", "soil"]
    assert data.suite.input_shape == (9,) and data.suite.categories == (0,) * 8 + (4,)  # a date has five columns
    train = data.splits["train"]["all"].inputs
    torch.testing.assert_close(train[:, :8].mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(train[:, :8].std(0, correction=0), torch.ones(8), atol=1e-5, rtol=0)
    rows = rows_of(data, "train")
    assert train[:, 8].tolist() == [1 + ["clay", "lime", "sand"].index(soil) for soil in frame()["soil"][rows]]
    assert torch.corrcoef(torch.stack([train[:, 3], torch.tensor(rows)]))[0, 1] == pytest.approx(1)  # days


@pytest.mark.parametrize("name", ["wine.parquet", "wine.tsv", "wine.csv.gz", "wine.tsv.gz"])
def test_other_formats_give_the_same_samples(name: str, ready: Callable[..., PreparedData]) -> None:
    assert ready(name=name).manifest.fingerprint == ready().manifest.fingerprint


def test_empty_cells_of_inputs_are_filled_and_marked_those_of_labels_left_out(
    ready: Callable[..., PreparedData],
) -> None:
    def holes(f: pd.DataFrame) -> pd.DataFrame:
        f.loc[::7, "ash"] = np.nan
        f.loc[::5, "soil"] = None
        f.loc[::4, "grower"] = None
        f.loc[::3, "alcohol"] = np.nan
        return f

    data, original = ready(holes), holes(frame())
    counts = data.manifest.counts
    assert sum(counts["grower"].values()) == original["grower"].notna().sum() < sum(counts["good"].values()) == ROWS
    columns = {column["name"]: column for column in data.manifest.notes["columns"]}
    train = original.loc[rows_of(data, "train")]
    assert columns["ash"]["indicator"] and columns["ash"]["fill"] == [pytest.approx(train["ash"].mean())]
    assert columns["soil"]["categories"] == ["", "clay", "lime", "sand"]
    for split in SPLITS:
        samples, part = data.splits[split]["all"], original.loc[rows_of(data, split)]
        empty = torch.tensor(part["ash"].isna().to_numpy())
        assert torch.equal(samples.inputs[:, 1] > 0, empty) and samples.inputs[empty, 0].abs().max() < 1e-5
        assert ((samples.targets["grower"] == -1).numpy() == part["grower"].isna().to_numpy()).all()
        assert (samples.targets["alcohol"].isnan().numpy() == part["alcohol"].isna().to_numpy()).all()


def test_a_row_without_any_label_is_left_out_and_counted(ready: Callable[..., PreparedData]) -> None:
    def holes(f: pd.DataFrame) -> pd.DataFrame:
        f.loc[[3, 9], ["grower", "alcohol"]] = None
        return f

    data = ready(holes, targets={"grower": "class", "alcohol": "regression"}, features=["ash"])
    assert data.manifest.notes["rows_without_label"] == 2
    assert not {3, 9} & {row for split in SPLITS for row in rows_of(data, split)}


def test_many_categories_are_hashed_and_said(ready: Callable[..., PreparedData]) -> None:
    many = lambda f: f.assign(seller=[f"s{row % 110}" for row in range(ROWS)])  # noqa: E731
    data = ready(many, features=["ash", "seller"], most_categories=50, buckets=16)
    assert data.suite.categories == (0, 17)
    codes = torch.cat([data.splits[split]["all"].inputs[:, 1] for split in SPLITS])
    assert codes.min() >= 1 and codes.max() <= 16 and len(codes.unique()) > 10
    assert data.manifest.notes["hashed_categories"] == {"seller": 110}
    assert any("seller 110" in line for line in remarks("wine", data.manifest))


def test_values_that_training_lacks_are_unknown_and_counted(ready: Callable[..., PreparedData]) -> None:
    late = lambda f: f.assign(soil=np.where(f.index > 230, "peat", f["soil"]))  # noqa: E731
    data = ready(late, time="bottled", features=["ash", "soil"])
    assert data.manifest.notes["unknown_categories"] == {"soil": 9}
    assert (data.splits["test"]["all"].inputs[:, 1] == 0).sum() == 9


def test_splits_by_group_time_and_column(ready: Callable[..., PreparedData]) -> None:
    data = ready(lambda f: f.assign(farm=[f"f{row % 24}" for row in range(ROWS)]), group="farm")
    farms = [{row % 24 for row in rows_of(data, split)} for split in SPLITS]
    assert sum(map(len, farms)) == 24 == len(set().union(*farms)) and "farm" not in data.manifest.notes["features"]
    data = ready(time="bottled")
    assert [max(rows_of(data, split)) for split in SPLITS] == [153, 191, ROWS - 1]
    parts = lambda f: f.assign(part=np.where(f.index < 200, "training", "test"))  # noqa: E731
    data = ready(parts, split_column="part")
    assert sorted(rows_of(data, "test")) == list(range(200, ROWS)) and data.manifest.counts["good"]["val"] == 40


def test_a_random_split_keeps_a_row_of_every_class_in_training(ready: Callable[..., PreparedData]) -> None:
    rare = lambda f: f.assign(taste=["odd" if row % 80 == 5 else "x" * (1 + row % 3) for row in range(ROWS)])  # noqa: E731
    for split in range(4):
        data = ready(rare, targets={"grower": "class", "taste": "class"}, features=["ash"], split=split)
        classes = next(task.classes for task in data.suite.tasks if task.name == "taste")
        assert classes.index("odd") in data.splits["train"]["all"].targets["taste"]


def test_weights_go_with_the_training_losses(ready: Callable[..., PreparedData]) -> None:
    data = ready(lambda f: f.assign(w=np.arange(ROWS) / 10), weight="w")
    assert data.suite.weighted and "w" not in data.manifest.notes["features"]
    weights = data.splits["train"]["all"].weights
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor(rows_of(data, "train")) / 10, check_dtype=False)


def test_arff_with_text_dates_sparse_rows_and_unknown_cells(tmp_path: Path) -> None:
    header = "% wines\n@relation w\n@attribute 'old vines' {no, yes}\n@attribute ash numeric\n@attribute day date\n"
    header += "@attribute grower {'Anna B', \"Ben, jr\"}\n@attribute good {0,1}\n@data\n"
    growers = ["'Anna B'", '"Ben, jr"']
    lines = [f"{['no', 'yes'][row % 2]},{row * 0.7},2024-01-{1 + row % 28:02},{growers[row % 3 == 0]},{row % 2}"
             for row in range(60)]  # fmt: skip
    lines[7] = "?,?,2024-01-08,'Anna B',1"
    lines[8] = '{1 5.5, 2 2024-01-09, 3 "Ben, jr"}'
    (tmp_path / "w.arff").write_text(header + "\n".join(lines))
    (tmp_path / "w.arff.gz").write_bytes(gzip.compress((header + "\n".join(lines)).encode()))
    options = {"targets": {"grower": "class", "good": "auto"}}
    data = load_prepared(prepare("table", options, tmp_path / "w.arff", tmp_path))
    assert data.suite.tasks[0].classes == ("Anna B", "Ben, jr")
    assert data.manifest.notes["features"] == ["old vines", "ash", "day"]
    by_row = {row: (split, at) for split in SPLITS for at, row in enumerate(rows_of(data, split))}
    split, at = by_row[8]
    assert [int(data.splits[split]["all"].targets[task][at]) for task in ("grower", "good")] == [1, 0]
    packed = prepare("table", options, tmp_path / "w.arff.gz", tmp_path)
    assert read_manifest(packed).fingerprint == data.manifest.fingerprint
    (tmp_path / "bad.arff").write_text((header + "\n".join(lines)).replace("no,1.4,", "no,much,"))
    with pytest.raises(UserError, match=r"^table: bad.arff line 11 has 'much' in ash, no number; mend it$"):
        prepare("table", options, tmp_path / "bad.arff", tmp_path)


def test_a_set_of_the_datasets_library_keeps_its_splits_and_class_names(tmp_path: Path) -> None:
    growers = datasets.ClassLabel(names=["anna", "ben"])
    features = datasets.Features({"ash": datasets.Value("float32"), "grower": growers, "good": datasets.Value("bool")})
    parts = {}
    for part, count in (("train", 60), ("test", 20)):
        rows = range(count)
        columns = {"ash": [row / 3 for row in rows], "grower": [row % 2 for row in rows]}
        columns["good"] = [row % 3 == 0 for row in rows]
        parts[part] = datasets.Dataset.from_dict(columns, features)
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    options = {"targets": {"grower": "class", "good": "class"}, "split_column": "split"}
    data = load_prepared(prepare("table", options, f"hf:{tmp_path / 'saved'}", tmp_path / "home"))
    assert data.manifest.counts["good"] == {"train": 48, "val": 12, "test": 20}
    assert data.suite.tasks[0].classes == ("anna", "ben")


def test_lists_of_tags_in_parquet_and_a_missing_one(tmp_path: Path) -> None:
    tags = [["a"] * (row % 2) + ["b"] * (row % 3 == 0) for row in range(90)]
    table = pa.table({"x": np.arange(90.0), "tags": [None, *tags[1:]], "y": np.arange(90) % 2})
    pq.write_table(table, tmp_path / "t.parquet")
    options = {"targets": {"tags": "auto", "y": "class"}}
    data = load_prepared(prepare("table", options, tmp_path / "t.parquet", tmp_path))
    assert [task.name for task in data.suite.tasks] == ["tags_a", "tags_b", "y"]
    assert sum(data.manifest.counts["tags_a"].values()) == 89


ZOE = lambda f: f.assign(grower=[*f["grower"][:-1], "zoe"])  # noqa: E731
MIXED = lambda f: f.assign(year=[*f["year"][:-1].astype(str), "unknown"])  # noqa: E731


@pytest.mark.parametrize(
    ("options", "change", "expected"),
    [
        ({"targets": {"growr": "class"}}, None, r"there is no column 'growr'; did you mean grower\?; c"),
        ({"targets": {"grower": "klass"}}, None, "target 'grower' is of kind 'klass'; choose auto, class, regression"),
        ({"features": ["ash", "good"]}, None, "column 'good' is a target and an input; drop one role"),
        ({"group": "good"}, None, "column 'good' is a target and `group`; drop one role"),
        ({"features": ["ash", "yaer"]}, None, r"there is no column 'yaer'; did you mean year\?; correct `features`"),
        ({"task": "soil"}, None, "`task` does not go with `targets`, which name every task; drop one"),
        ({"classes": "own"}, None, "`classes` does not go with `targets`"),
        ({"targets": {}, "group": "soil"}, None, "`group` goes with `targets`; name the target columns there"),
        ({"targets": {}, "buckets": 7}, None, "`buckets` goes with `targets`"),
        ({"group": "soil", "time": "year"}, None, "group and time both say how rows are split; keep one"),
        ({"targets": {"grower": "regression"}}, None, "240 rows .* row 1 has '.*' in grower, which is no number"),
        ({"targets": {"alcohol": "class"}}, None, "target 'alcohol' has the number .* in row 1; .* kind to regression"),
        ({}, MIXED, "1 row .* row 240 has 'unknown' in year, whose other cells are numbers; name"),
        ({"time": "bottled"}, ZOE, "1 row .* row 240 has the class zoe of grower, which training does not have"),
        ({"id": "key"}, lambda f: f.assign(key=f.index + 0.5), "column .* and 0.5 in row 1 has a fraction"),
        ({"group": "key"}, lambda f: f.assign(key=2.0**60 + np.arange(ROWS)), "column .* 1152921504606846976 in row 1"),
        ({"id": "soil"}, None, "(clay|sand|lime) occurs in row . and row . of the id column 'soil'; it"),
        ({"features": ["ash", "same"]}, lambda f: f.assign(same=1), "column 'same' is constant over"),
        ({"weight": "w"}, lambda f: f.assign(w=-1.0), "240 rows cannot be used, the first: row 1 has the weight -1"),
        ({"time": "soil"}, None, "column 'soil' of `time` holds string; use dates such as 2024-01-31, or numbers"),
        ({"split_column": "soil"}, None, "column 'soil' has '(clay|sand|lime)', which is no split"),
        ({"targets": {"good": "class"}}, lambda f: f.assign(good="yes"), "target 'good' is always yes in"),
        ({"targets": {"ash": "regression"}}, lambda f: f.assign(ash=np.nan), "target 'ash' has no value"),
        ({"targets": {"a b": "auto", "a/b": "auto"}}, None, "two targets are both called a_b"),
        ({"test": 0.99}, lambda f: f[:6], "there are 6 rows, too few for 99% test"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_line(
    options: dict[str, Any], change: Change | None, expected: str, ready: Callable[..., PreparedData]
) -> None:
    with pytest.raises(UserError, match=f"^table: {expected}|^{expected}") as caught:
        ready(change or (lambda f: f), **options)
    assert "\n" not in str(caught.value)


def test_rows_with_bad_cells_may_be_skipped(ready: Callable[..., PreparedData]) -> None:
    data = ready(MIXED, skip_bad=True)
    assert data.manifest.notes["skipped"]["count"] == 1 and sum(data.manifest.counts["good"].values()) == ROWS - 1
    data = ready(lambda f: f.assign(grower=[*f["grower"][:-1], "zoe"]), time="bottled", skip_bad=True)
    assert data.manifest.counts["grower"]["test"] == 47
    assert sum(ready(MIXED, missing=["unknown"]).manifest.counts["good"].values()) == ROWS
    assert ready(MIXED, categorical=["year"]).suite.categories[1] > 15


def test_a_line_with_too_many_fields_is_named_by_its_row(ready: Callable[..., PreparedData], tmp_path: Path) -> None:
    ready()
    path = tmp_path / "wine.csv"
    lines = path.read_text().splitlines()
    lines[4] += ",more"
    path.write_text("\n".join(lines))
    options = {"targets": TARGETS}
    with pytest.raises(UserError, match="1 row cannot be used, the first: row 4 has 10 fields, not 9; mend or pass"):
        prepare("table", options, path, tmp_path / "home")
    data = load_prepared(prepare("table", options, path, tmp_path / "home", skip_bad=True))
    rows = {row for split in SPLITS for row in rows_of(data, split)}
    assert rows == set(range(ROWS)) - {3}
    samples, test = data.splits["test"]["all"], rows_of(data, "test")
    assert samples.targets["tags_red"].tolist() == ["red" in tags for tags in frame()["tags"][test]]


def test_mixed_encodings_are_refused_with_both_lines(ready: Callable[..., PreparedData], tmp_path: Path) -> None:
    ready(lambda f: f.assign(grower=f["grower"].replace("anna", "änna")))
    path = tmp_path / "wine.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    first, last = (
        next(n for n, line in order if "änna" in line) for order in (enumerate(lines), reversed([*enumerate(lines)]))
    )
    raw = [line.encode("latin-1" if number == last else "utf-8") for number, line in enumerate(lines)]
    path.write_bytes(b"\n".join(raw))
    expected = (
        f"^table: wine.csv has two encodings: line {first + 1} is UTF-8, line {last + 1} is not; save it as UTF-8$"
    )
    with pytest.raises(UserError, match=expected):
        prepare("table", {"targets": TARGETS}, path, tmp_path / "home")


@pytest.mark.parametrize(
    ("column", "target"),
    [
        (lambda f: f["grower"].str.upper(), "grower"),
        (lambda f: f["alcohol"] * 3 + 1, "alcohol"),
        (lambda f: np.where(f["good"] == "yes", 10.0, -10.0) + f["ash"] / 100, "good"),
    ],
)
def test_a_column_that_gives_a_label_away_is_warned_of(
    column: Callable[[pd.DataFrame], Any], target: str, ready: Callable[..., PreparedData]
) -> None:
    data = ready(lambda f: f.assign(leak=column(f)))
    assert data.manifest.notes["perfect_predictors"] == {"leak": target}
    assert f"wine: column 'leak' gives target '{target}' away without an error; leave it out of `features`" in list(
        remarks("wine", data.manifest)
    )
    assert "perfect_predictors" not in ready().manifest.notes


def test_repeated_inputs_are_counted(ready: Callable[..., PreparedData]) -> None:
    data = ready(lambda f: pd.concat([f[: ROWS // 2]] * 2))
    count = data.manifest.notes["test_inputs_in_train_or_val"]["all"]
    assert 10 < count < 49
    assert f"wine: {count} of 48 test inputs stand in training or validation, too" in list(
        remarks("wine", data.manifest)
    )
