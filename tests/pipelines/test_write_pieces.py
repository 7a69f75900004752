"""Sets that arrive piece by piece: the same bytes however they are cut, in many row groups, without holding them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtlscale.spec import SPLITS, Task, TaskSuite, UserError
from pipelines import _write_pieces
from pipelines._write_pieces import write_pieces

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


class Cut:
    """100 training rows and 10 of the others, in pieces of one size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
        for split, count in (("train", 100), ("val", 10), ("test", 10)):
            for start in range(0, count, self.size):
                yield split, rows(split, start, min(start + self.size, count))

    def finish(self) -> tuple[dict, dict]:
        return {}, {}


def test_the_same_bytes_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_write_pieces, "ROW_GROUP_ROWS", 16)
    written = []
    for size in (1, 7, 16, 33, 100):
        out = tmp_path / str(size)
        written.append(write_pieces(out, "pieces", SUITE, "all", Cut(size)))
        for split in SPLITS:
            file = out / split / "all.parquet"
            assert file.read_bytes() == (tmp_path / "1" / split / "all.parquet").read_bytes()
    groups = pq.ParquetFile(tmp_path / "33" / "train" / "all.parquet").metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [16] * 6 + [4]
    table = pq.read_table(tmp_path / "33" / "train" / "all.parquet")
    assert table.equals(rows("train", 0, 100))
    paths, counts, classes = written[0]
    assert all(result == written[0] for result in written)
    assert paths == {"train/all.parquet": 100, "val/all.parquet": 10, "test/all.parquet": 10}
    assert counts == {"map": {"train": 80, "val": 8, "test": 8}, "flag": {"train": 100, "val": 10, "test": 10}}
    assert classes == {"flag": {"train": {"0": 50, "1": 50}, **{s: {"0": 5, "1": 5} for s in ("val", "test")}}}


def test_memory_does_not_grow_with_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_write_pieces, "ROW_GROUP_ROWS", 16)
    in_use: list[int] = []

    class Watched(Cut):
        def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
            for piece in super().__iter__():
                in_use.append(pa.total_allocated_bytes())
                yield piece

    before = pa.total_allocated_bytes()
    write_pieces(tmp_path, "pieces", SUITE, "all", Watched(4))
    assert len(in_use) == 31
    whole = 100 * (3 + 1) * SIDE * SIDE
    assert max(in_use) - before < whole  # some pieces and the encoder's buffers, never all rows


def test_disorder_and_leaks_are_found(tmp_path: Path) -> None:
    class Twice(Cut):
        def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
            yield "train", rows("train", 3, 5)
            yield "train", rows("train", 4, 5)

    with pytest.raises(UserError, match="two samples named train0004"):
        write_pieces(tmp_path / "twice", "pieces", SUITE, "all", Twice(1))

    class Leak(Cut):
        def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
            yield "train", rows("train", 3, 5)
            yield "val", rows("train", 4, 6)

    with pytest.raises(ValueError, match="sample train0004 is in train and in val"):
        write_pieces(tmp_path / "leak", "pieces", SUITE, "all", Leak(1))

    class NoTest(Cut):
        def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
            yield "train", rows("train", 0, 2)
            yield "val", rows("val", 0, 2)

    with pytest.raises(UserError, match="no usable image is left in test"):
        write_pieces(tmp_path / "none", "pieces", SUITE, "all", NoTest(1))
