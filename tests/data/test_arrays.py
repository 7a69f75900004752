"""Columns of prepared files as arrays on disk, however the files store them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtlscale.data.format import arrays
from mtlscale.data.format.arrays import columns_of, write_arrays
from mtlscale.data.format.columns import ENCODED, as_bytes, kind_of, numbers

WIDTH = 5
TYPES = {"input": ENCODED, "target.map": "float32", "target.kind": "int8"}


def table(first: int, rows: int) -> pa.Table:
    maps = np.arange(first * WIDTH, (first + rows) * WIDTH, dtype=np.float32)
    return pa.table(
        {
            "id": [f"{row:04d}" for row in range(first, first + rows)],
            "input": pa.array([bytes([row]) * (row % 4) for row in range(first, first + rows)], pa.large_binary()),
            "target.map": as_bytes(pa.FixedSizeListArray.from_arrays(maps, WIDTH)),
            "target.kind": np.arange(first, first + rows, dtype=np.int8),
        }
    )


@pytest.mark.parametrize("piece", [1, 10_000_000])
def test_files_become_one_array_per_column(tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE", piece)
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, part in zip(paths, (table(0, 70), table(70, 13)), strict=True):
        pq.write_table(part, path, row_group_size=30)
    out = tmp_path / "out"
    out.mkdir()
    write_arrays(iter(paths), columns_of(paths[0], TYPES), out)
    found = {path.name: np.load(path, mmap_mode="r") for path in out.iterdir()}
    assert set(found) == {"input.bytes.npy", "input.offsets.npy", "target.map.npy", "target.kind.npy"}
    assert all(array.offset == 128 for array in found.values())
    assert np.array_equal(found["target.map.npy"], np.arange(83 * WIDTH, dtype=np.float32).reshape(83, WIDTH))
    assert np.array_equal(found["target.kind.npy"], np.arange(83, dtype=np.int8))
    offsets, content = found["input.offsets.npy"], found["input.bytes.npy"]
    assert offsets.dtype == np.int64 and len(offsets) == 84 and offsets[-1] == len(content)
    assert [content[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == [
        bytes([row]) * (row % 4) for row in range(83)
    ]


def test_lists_and_bytes_are_the_same_numbers() -> None:
    lists = pa.FixedSizeListArray.from_arrays(np.arange(40, dtype=np.int16), 4)
    for array in (lists, lists.slice(3, 5)):
        packed = as_bytes(array)
        field = pa.field("target.x", packed.type)
        assert kind_of(field, {"target.x": "int16"}) == (np.dtype("int16"), 4)
        assert kind_of(pa.field("target.x", array.type), {}) == (np.dtype("int16"), 4)
        assert np.array_equal(numbers(packed, np.dtype("int16")), numbers(array, np.dtype("int16")))
        assert np.array_equal(
            numbers(packed.slice(1, 2), np.dtype("int16")), numbers(array.slice(1, 2), np.dtype("int16"))
        )
