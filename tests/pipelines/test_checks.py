"""Rows that cannot be used: told as soon as they are met; numbers that are none, and tables without rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_sets import picture, save
from in_process import prepare
from scipy.io import savemat

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, build
from mtlscale.data.readers.prepared import SourceInfo, read_manifest
from pipelines import PrepareContext, Prepared, write_prepared
from pipelines._engine import map_jobs
from pipelines._steps.checks import check_tables
from pipelines._writing import write_pieces as _write_pieces
from pipelines.image.celeba import NINE

COUNT = 240
SIZE = 64


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    rng, root = np.random.default_rng(0), tmp_path / "celeba"
    images = [f"{number:06d}.jpg" for number in range(1, COUNT + 1)]
    for image in images:
        save(root / "img_align_celeba" / image, picture(rng, SIZE, SIZE))
    rows = [f"{image} {' '.join(str(value) for value in rng.choice([-1, 1], len(NINE)))}" for image in images]
    (root / "list_attr_celeba.txt").write_text("\n".join([str(COUNT), " ".join(NINE), *rows]) + "\n")
    parts = [f"{image} {max(0, number - COUNT + 30) // 10}" for number, image in enumerate(images)]
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


def decoded(faces: Path, out: Path, engine: str, skip_bad: bool) -> list[int]:
    """How far decoding came, in rows."""
    done = [0]

    def tell(stage: str, rows: int, total: int, written: int = 0) -> None:
        done.append(rows if stage == "decode" else 0)

    work = PrepareContext(engine=engine, skip_bad=skip_bad, progress=tell)  # type: ignore[arg-type]
    pipeline, info = build("datasets", "celeba", {"size": SIZE}), SourceInfo(description="", fingerprint="")
    out.mkdir()
    try:
        write_prepared(out, pipeline, info, pipeline.prepare(faces, work), work)
    except UserError as error:
        assert "image img_align_celeba/000009.jpg is corrupt" in str(error)
        assert not skip_bad
    return done


@pytest.fixture
def in_eights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of eight images."""
    monkeypatch.setattr(_write_pieces, "FEW", 30)
    monkeypatch.setattr(_write_pieces, "LEAST", 1)


@pytest.mark.usefixtures("in_eights")
def test_the_first_corrupt_image_stops_the_preparation_at_once(
    faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_jobs, "cores", lambda: 1)
    for image in ("000009.jpg", "000200.jpg"):
        (faces / "img_align_celeba" / image).write_bytes(b"\xff\xd8\xff\xe0 cut")
    assert max(decoded(faces, tmp_path / "a", "local", skip_bad=False)) <= 24  # it is the second shard's
    assert max(decoded(faces, tmp_path / "b", "local", skip_bad=True)) == COUNT
    with pytest.raises(UserError, match=r"^image img_align_celeba/000009\.jpg is corrupt .*; mend it, or pass --skip-"):
        prepare("celeba", {"size": SIZE}, faces, tmp_path / "home")
    assert not (tmp_path / "home").exists()
    folder = prepare("celeba", {"size": SIZE}, faces, tmp_path / "home", skip_bad=True)
    assert read_manifest(folder).notes["skipped"]["count"] == 2


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray", "in_eights")
def test_through_ray_it_stops_early_too(faces: Path, tmp_path: Path) -> None:
    assert max(decoded(faces, tmp_path / "warm", "ray", skip_bad=False)) == COUNT  # all workers have started
    (faces / "img_align_celeba" / "000009.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    # How many are on their way when the driver hears of it depends on what else the machine does.
    assert max(decoded(faces, tmp_path / "a", "ray", skip_bad=False)) < COUNT


# -- numbers that are none ---------------------------------------------------------------------------------------------

TASKS = (Task(name="a", loss="mse", outputs=1, metrics=("mse",)),)
SUITE = TaskSuite(name="mine", tasks=TASKS, inputs="per_task", input_kind="vector", input_shape=(2,))


def rows(inputs: list[list[float]], targets: list[float]) -> pa.Table:
    flat = pa.array(np.array(inputs, np.float32).reshape(-1))
    ids = [f"x{row}" for row in range(len(targets))]
    return pa.table(
        {"id": pa.array(ids, pa.string()), "input": pa.FixedSizeListArray.from_arrays(flat, 2),
         "target.a": pa.array(targets, pa.float32())}
    )  # fmt: skip


GOOD = rows([[1, 2], [3, 4]], [1, float("nan")])  # a label may be missing


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            rows([[1, 2], [float("nan"), 4]], [1, 2]),
            "mine: val of a has nan in number 1 of input of sample x1; mend",
        ),
        (rows([[1, float("inf")], [3, 4]], [1, 2]), "mine: val of a has inf in number 2 of input of sample x0"),
        (rows([[1, 2], [3, 4]], [1, float("-inf")]), r"mine: val of a has -inf in target\.a of sample x1"),
        (rows([], []), "mine: task a has no sample in val: a has no row there"),
    ],
)
def test_tables_of_any_pipeline_are_looked_through(table: pa.Table, message: str) -> None:
    check_tables(SUITE, {"train": {"a": GOOD}, "val": {"a": GOOD}, "test": {"a": GOOD}})
    with pytest.raises(UserError, match=f"^{message}"):
        check_tables(SUITE, {"train": {"a": GOOD}, "val": {"a": table}, "test": {"a": GOOD}})


def frame(**changes: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    content = {"task": ["a", "b"] * 40, "size": rng.normal(size=80), "target": rng.normal(size=80)}
    return pd.DataFrame({**content, **changes})


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("size", np.nan, "1 row cannot be used, the first: row 8 has no value in size"),
        ("size", np.inf, "1 row cannot be used, the first: row 8 is infinite in size"),
        ("target", -np.inf, "1 row cannot be used, the first: row 8 is infinite in target"),
        ("target", 1e300, r"of b has inf in target\.b of sample 000000007; mend or drop that row"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_with_a_number_that_is_none(
    tmp_path: Path, column: str, value: float, message: str, suffix: str
) -> None:
    changed = frame()
    changed.loc[7, column] = value
    path = tmp_path / f"x.{suffix}"
    changed.to_csv(path, index=False) if suffix == "csv" else changed.to_parquet(path)
    with pytest.raises(UserError, match=message):
        prepare("table", {}, path, tmp_path)


def test_a_column_with_nan_in_place_of_null_has_no_value_there(tmp_path: Path) -> None:
    sizes = np.arange(80, dtype=float)
    sizes[[3, 11]] = np.nan
    table = pa.table({"task": ["a", "b"] * 40, "size": pa.array(sizes), "target": np.arange(80) / 7})
    assert table["size"].null_count == 0
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(UserError, match="2 rows cannot be used, the first: row 4 has no value in size"):
        prepare("table", {}, tmp_path / "x.parquet", tmp_path)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    frame().head(0).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet has no row"):
        prepare("table", {}, tmp_path / "x.parquet", tmp_path)


def test_a_school_with_a_number_that_is_none(tmp_path: Path) -> None:
    rng, x, y = np.random.default_rng(0), np.empty((1, 2), object), np.empty((1, 2), object)
    for school in range(2):
        x[0, school] = rng.integers(0, 2, (30, 28)).astype(float)
        y[0, school] = rng.integers(1, 71, (30, 1)).astype(float)
    x[0, 1][4, 3] = np.nan
    savemat(tmp_path / "school.mat", {"X": x, "Y": y})
    with pytest.raises(UserError, match="pupil 5 of school 2 has no finite number in column 4 of X"):
        prepare("school", {}, tmp_path / "school.mat", tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": ("acuracy",)}, "task a: unknown metric 'acuracy': did you mean accuracy"),
        ({"metrics": ()}, "task a: metrics is empty; name at least one"),
        ({"loss": "cross_entropi"}, "task a: unknown loss 'cross_entropi': did you mean cross_entropy"),
        ({"loss": "mse"}, "task a: metric 'accuracy' is not defined for loss 'mse'"),
    ],
)
def test_a_task_nobody_could_train_or_measure_is_told_when_it_is_prepared(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    task = Task(**{"name": "a", "loss": "cross_entropy", "outputs": 2, "metrics": ("accuracy",), **changes})
    table = pa.table(
        {"id": ["1"], "input": pa.FixedSizeListArray.from_arrays(np.ones(2, np.float32), 2), "target.a": [1]}
    )
    suite = TaskSuite(name="own", tasks=(task,), inputs="per_task", input_kind="vector", input_shape=(2,))
    prepared = Prepared(suite, {split: {"a": table} for split in SPLITS})
    with pytest.raises(UserError, match=said):
        write_prepared(tmp_path, build("datasets", "digits"), SourceInfo(description="", fingerprint=""), prepared)
    assert not list(tmp_path.iterdir())
