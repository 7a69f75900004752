"""Rows of prepared files by their places, a row group at a time; what the reader `stream` takes of a split in order."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sharded import sharded

from mtlscale.config import SPLITS, UserError, load_plugin
from mtlscale.data import load_prepared, read_manifest
from mtlscale.data.readers import shards
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.data.readers.random_access import open_reader, placed
from mtlscale.data.readers.reader_selection import Free, OnDisk, choose
from mtlscale.data.readers.shards import Shards
from mtlscale.data.readers.stream import StreamReader
from mtlscale.execution.preparing.prepare import prepare

CPU = torch.device("cpu")
PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streams in files of 17 rows, in row groups of 4."""
    load_plugin(PLUGIN)
    home = tmp_path_factory.mktemp("home")
    return sharded(prepare("uneven", {}, None, home), home / "data" / "uneven" / "cut", 17, 4)


@pytest.mark.parametrize("url", [False, True])
def test_rows_are_those_asked_for_in_their_order(cut: Path, tmp_path: Path, url: bool) -> None:
    place = f"file://{cut}" if url else None
    one = Shards.of(tmp_path if url else cut, read_manifest(cut), "train", "a", place)
    assert len(one) == 61 and one.first[:6].tolist() == [0, 4, 8, 12, 16, 17]
    samples = load_prepared(cut).splits["train"]["a"]
    rows = np.random.default_rng(0).integers(0, 61, 50)  # some of them twice
    found = one.read(rows)
    assert found["input"].dtype == np.float32 and found.keys() == {"input", "target.a"}
    assert np.array_equal(found["input"], samples.inputs.numpy()[rows])
    assert np.array_equal(found["target.a"], samples.targets["a"].numpy()[rows])
    assert one.read(rows[:0])["input"].shape == (0, 6)


def test_only_the_row_groups_of_the_rows_are_read(cut: Path) -> None:
    one, read = Shards.of(cut, read_manifest(cut), "train", "a"), []

    def group(place: int) -> shards.Columns:
        read.append(place)
        return one.group(place)

    one.read(np.array([60, 4, 5, 60]), group)
    assert read == [1, len(one.number) - 1]


def test_blocks_are_row_groups_or_parts_of_large_ones(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Shards.of(cut, read_manifest(cut), "train", "c")
    assert one.starts.tolist() == [0, 4, 8, 12, 16, 17, 21, 23]
    monkeypatch.setattr(shards, "BLOCK", 3)
    assert one.starts.tolist() == [0, 3, 4, 7, 8, 11, 12, 15, 16, 17, 20, 21, 23]


def test_splits_in_order_are_those_of_other_readers(cut: Path) -> None:
    one, _ = open_reader(load_prepared(cut), "stream", device=CPU, dtype=torch.float64)
    other, _ = open_reader(load_prepared(cut), "device", device=CPU, dtype=torch.float64)
    for split in SPLITS:
        assert one.sizes(split) == other.sizes(split)
        for stream, size in one.sizes(split).items():
            for index in torch.arange(size).split(5):
                left, right = (
                    placed(one.take(split, stream, index), CPU, torch.float64),
                    other.take(split, stream, index),
                )
                assert torch.equal(left.inputs, right.inputs)
                for task, target in left.targets.items():
                    torch.testing.assert_close(target, right.targets[task], rtol=0, atol=0, equal_nan=True)
    for task, target in one.targets("train", "it").items():
        torch.testing.assert_close(target, other.targets("train", "it")[task], rtol=0, atol=0, equal_nan=True)


def test_a_row_group_is_read_once_for_all_batches_in_it(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = Shards.group

    def group(self: Shards, place: int) -> shards.Columns:
        read.append(place)
        return real(self, place)

    monkeypatch.setattr(Shards, "group", group)
    one, _ = open_reader(load_prepared(cut), "stream", device=CPU, dtype=torch.float32)
    for index in torch.arange(61).split(2):
        one.take("val", "a", index)
    assert read == list(range(len(read))) and len(read) == 18


def test_nothing_is_cached_and_a_flipped_byte_is_named_before_training(cut: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "uneven" / "a"
    shutil.copytree(cut, folder)
    path = folder / "train" / "b" / "00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    one, _ = open_reader(load_prepared(folder), "stream", device=CPU, dtype=torch.float32)
    with pytest.raises(UserError, match=r"train/b/00001.parquet is damaged: its bytes .* prepare again"):
        one.sizes("train")
    one.take("val", "a", torch.arange(5))
    assert not list(tmp_path.rglob("*.npy"))


def test_data_without_files_are_refused(cut: Path) -> None:
    data = PreparedData(Path(), None, load_prepared(cut).suite, dict(load_prepared(cut).splits))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"reader stream reads files, and uneven has none; set training\.reader"):
        open_reader(data, "stream", device=CPU, dtype=torch.float32)


def test_tasks_that_read_need_no_torch(cut: Path) -> None:
    text = (
        "import sys; from pathlib import Path; from mtlscale.data.format.manifest import read_manifest;"
        "from mtlscale.data.readers.shards import Shards; p = Path(sys.argv[1]);"
        "s = Shards.of(p, read_manifest(p), 'train', 'a'); s.read(s.first[:3]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text, str(cut)], check=False).returncode == 0


def test_auto_says_where_only_stream_has_room_and_does_not_take_it(cut: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = OnDisk(cut, read_manifest(cut))
    monkeypatch.setenv("MTLSCALE_CACHE_GB", "1e-6")
    found = choose(data, "auto", "float32", free=Free(1000))
    assert found.reader == "mapped" and "training.reader: stream" in found.why
    monkeypatch.delenv("MTLSCALE_CACHE_GB")
    assert "stream" not in choose(data, "auto", "float32", free=Free(1000)).why


def test_the_reader_is_handed_who_reads(cut: Path) -> None:
    asked: list[int] = []

    def pieces(of: object, plan: object, rank: int) -> None:
        asked.append(rank)

    one, _ = open_reader(load_prepared(cut), "stream", device=CPU, dtype=torch.float32, pieces=pieces)  # type: ignore[arg-type]
    assert isinstance(one, StreamReader)
    one.feed(None, 3)  # type: ignore[arg-type]
    assert asked == [3]
