"""Sets in shards that many tasks write: the same bytes whoever writes them, a row group at a time."""

import errno
import hashlib
import os
import shutil
import signal
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtlscale.config import SPLITS, Task, TaskSuite, UserError
from mtlscale.data.format.columns import numbers
from pipelines import ComputedRows, PrepareContext, Prepared, check_prepared
from pipelines._engine import map_jobs
from pipelines._writing import shards as _shards
from pipelines._writing import write_pieces as writing
from pipelines._writing.write_pieces import write_pieces

SIDE = 8
SUITE = TaskSuite(
    name="pieces",
    tasks=(
        Task(name="map", loss="cross_entropy", outputs=3, metrics=("miou",)),
        Task(name="flag", loss="bce", outputs=1, metrics=("error",)),
    ),
    inputs="shared",
    input_kind="image",
    input_shape=(3, SIDE, SIDE),
)


def rows(split: str, start: int, stop: int) -> pa.Table:
    rng = [np.random.default_rng((SPLITS.index(split), number)) for number in range(start, stop)]
    images = np.stack([r.integers(0, 256, 3 * SIDE * SIDE, dtype=np.uint8) for r in rng])
    maps = np.stack([r.integers(-1, 3, SIDE * SIDE).astype(np.int8) for r in rng])
    maps[[n for n, number in enumerate(range(start, stop)) if number % 5 == 0]] = -1
    return pa.table(
        {
            "id": [f"{split}{number:04d}" for number in range(start, stop)],
            "input": pa.FixedSizeListArray.from_arrays(images.ravel(), images.shape[1]),
            "target.map": pa.FixedSizeListArray.from_arrays(maps.ravel(), maps.shape[1]),
            "target.flag": np.arange(start, stop, dtype=np.int8) % 2,
        }
    )


@dataclass
class Cut:
    """100 training rows and 10 of the others; computed from their numbers."""

    counts: dict[str, int] = field(default_factory=lambda: {"train": 100, "val": 10, "test": 10})
    bad: tuple[str, ...] = ()
    what: str = "image"
    row_bytes: int = 4 * SIDE * SIDE

    @property
    def index(self) -> dict[str, pa.Table]:
        return {
            split: pa.table({"id": [f"{split}{number:04d}" for number in reversed(range(count))]})
            for split, count in self.counts.items()
        }

    @property
    def compute(self) -> partial[ComputedRows]:
        return partial(compute, bad=self.bad)

    def finish(self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]) -> tuple[dict, dict]:
        return {"rows": sum(rows for split, rows in told if split == "train")}, {"left out": problems}


def compute(index: pa.Table, bad: tuple[str, ...]) -> ComputedRows:
    ids = index["id"].to_pylist()
    tables = [rows(id[:-4], int(id[-4:]), int(id[-4:]) + 1) for id in ids if id not in bad]
    empty = rows("train", 0, 1).slice(0, 0)
    return ComputedRows(pa.concat_tables([empty, *tables]), [(id, "is bad") for id in ids if id in bad], len(tables))


def read(folder: Path, split: str) -> pa.Table:
    """The rows of all shards of a split, arrays as lists of numbers again."""
    tables = [pq.read_table(path) for path in sorted((folder / split / "all").glob("*.parquet"))]
    table = pa.concat_tables(tables).combine_chunks()
    for name, width, dtype in (("input", 3 * SIDE * SIDE, np.uint8), ("target.map", SIDE * SIDE, np.int8)):
        place = table.column_names.index(name)
        flat = numbers(table[name].combine_chunks(), np.dtype(dtype))
        table = table.set_column(place, name, pa.FixedSizeListArray.from_arrays(pa.array(flat), width))
    return table


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 8 rows, shards of 20."""
    monkeypatch.setattr(writing, "GROUP_ROWS", 8)
    monkeypatch.setattr(writing, "FEW", 6)
    monkeypatch.setattr(writing, "LEAST", 1)


def written(out: Path, work: PrepareContext | None = None, **options: Any) -> writing.Result:
    return write_pieces(out, "pieces", SUITE, Cut(**options), work or PrepareContext())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_shards_of_rows_in_the_order_of_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    result = written(tmp_path)
    assert [(file.path, file.rows) for file in result.files] == [
        *((f"train/all/{number:05d}.parquet", 20) for number in range(5)),
        ("val/all/00000.parquet", 10),
        ("test/all/00000.parquet", 10),
    ]
    for file in result.files:
        content = (tmp_path / file.path).read_bytes()
        assert (file.bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    groups = pq.ParquetFile(tmp_path / "train/all/00003.parquet").metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [8, 8, 4]
    for split, count in (("train", 100), ("val", 10), ("test", 10)):
        assert read(tmp_path, split).equals(rows(split, 0, count))
    assert result.types == {"input": "uint8", "target.map": "int8", "target.flag": "int8"}
    assert result.counts == {
        "map": {"train": 80, "val": 8, "test": 8},
        "flag": {"train": 100, "val": 10, "test": 10},
    }
    assert result.class_counts == {
        "flag": {"train": {"0": 50, "1": 50}, **{s: {"0": 5, "1": 5} for s in ("val", "test")}}
    }
    assert (result.extras, result.notes) == ({"rows": 100}, {"left out": []})


def test_the_same_bytes_however_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    for threads in (1, 3):
        monkeypatch.setattr(map_jobs, "cores", lambda threads=threads: threads)
        written(tmp_path / str(threads))
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


def test_rows_that_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    bad = (*(f"train{number:04d}" for number in range(20, 40)), "train0041", "test0003")
    with pytest.raises(UserError, match=r"^image train0020 is bad; mend it, or pass --skip-bad to leave such images"):
        written(tmp_path / "strict", bad=bad)
    assert [path for path in contents(tmp_path / "strict") if "/." in path] == []
    result = written(tmp_path / "skip", PrepareContext(skip_bad=True), bad=bad)
    assert result.notes == {"left out": [(id, "is bad") for id in bad]}
    assert "train/all/00001.parquet" not in {file.path for file in result.files}  # none of its rows is left
    assert result.files[1].rows == 19 and result.counts["flag"] == {"train": 79, "val": 10, "test": 9}
    kept = [n for n in range(100) if f"train{n:04d}" not in bad]
    assert read(tmp_path / "skip", "train")["id"].to_pylist() == [f"train{n:04d}" for n in kept]
    with pytest.raises(UserError, match="no usable image is left in test"):
        written(tmp_path / "none", PrepareContext(skip_bad=True), bad=tuple(f"test{n:04d}" for n in range(10)))


def test_memory_does_not_grow_with_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    monkeypatch.setattr(writing, "FEW", 1)
    monkeypatch.setattr(map_jobs, "cores", lambda: 1)
    before, most = pa.total_allocated_bytes(), []

    def watched(index: pa.Table, bad: tuple[str, ...]) -> ComputedRows:
        most.append(pa.total_allocated_bytes())
        return real(index, bad)

    real = compute
    monkeypatch.setitem(globals(), "compute", watched)
    written(tmp_path)
    assert len(most) == 17  # row groups
    assert max(most) - before < 100 * 4 * SIDE * SIDE  # some groups and the encoder's buffers, never all rows


def test_ids_are_looked_at_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_index(**ids: list[str]) -> None:
        tables = {split: pa.table({"id": ids.get(split, [f"{split}0000"])}) for split in SPLITS}
        monkeypatch.setattr(Cut, "index", property(lambda self: tables))
        written(tmp_path)

    with pytest.raises(UserError, match="two samples named train0004; remove one"):
        with_index(train=["train0004", "train0003", "train0004"])
    with pytest.raises(UserError, match="sample train0004 is in train and in val"):
        with_index(train=["train0004"], val=["train0004"])
    assert not list(tmp_path.iterdir())


def test_rows_of_several_streams_say_whose_they_are() -> None:
    prepared = Prepared(replace(SUITE, unlabelled=("more",)), {}, pieces=Cut())
    with pytest.raises(UserError, match="names the stream of every row in a column `stream`"):
        check_prepared("pieces", prepared)


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(_shards, "_open", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        written(tmp_path)
    assert error.value.errno == errno.ENOSPC and not contents(tmp_path)


def test_what_a_killed_worker_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "train" / "all").mkdir(parents=True)
    (tmp_path / "train" / "all" / ".00000.parquet.0123").write_bytes(b"half")
    result = written(tmp_path)
    assert set(contents(tmp_path)) == {file.path for file in result.files}


def test_shards_may_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    there, here = tmp_path / "there", tmp_path / "here"

    def deliver(file: Path, name: str) -> None:
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, there / name)

    result = written(here, PrepareContext(deliver=deliver))
    written(tmp_path / "plain")
    assert not contents(here) and contents(there) == contents(tmp_path / "plain")
    assert {file.path for file in result.files} == set(contents(there))


@pytest.mark.ray
def test_a_worker_is_killed_and_nobody_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    """In the middle of a shard, after its first row group."""
    mark = tmp_path / "mark"

    def dying(index: pa.Table) -> ComputedRows:
        if index["id"][0].as_py() == "train0028" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(index, ())

    small(monkeypatch)
    written(tmp_path / "calm")
    monkeypatch.setattr(Cut, "compute", property(lambda self: dying))
    written(tmp_path / "killed", PrepareContext(engine="ray"))
    assert mark.exists()
    assert contents(tmp_path / "killed") == contents(tmp_path / "calm")
