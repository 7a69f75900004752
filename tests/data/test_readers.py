"""Readers give the same samples wherever they lie; the cache they map is whole, bounded, and shared."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mtlscale.config import MISSING_CLASS, SPLITS, Task, TaskSuite, UserError
from mtlscale.data import Samples
from mtlscale.data.format import arrays
from mtlscale.data.readers import cache
from mtlscale.data.readers.cache import FOLDER, LIMIT, CachedSet, verify
from mtlscale.data.readers.prepared import (
    MANIFEST,
    FileEntry,
    PreparedData,
    SourceInfo,
    load_prepared,
    read_ids,
    read_manifest,
)
from mtlscale.data.readers.random_access import HostReader, MappedSamples, Reader, open_reader, placed
from mtlscale.data.readers.reader_selection import Free, Need, OnDisk, bound, check_room, choose, fitting, needed
from pipelines import Pipeline, Prepared, write_prepared

KINDS = ("device", "memory", "mapped")
CPU = torch.device("cpu")
ROWS = {"train": 23, "val": 9, "test": 5}
SIDE = 48  # a row of the images is wider than a page


class Toy(Pipeline):
    """A data set of this test."""

    name = "toy"


def fixed(values: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(values.ravel(), values[0].size)


def write(folder: Path, seed: int = 0, kind: str = "image", rows: dict[str, int] = ROWS) -> Path:
    """Images with classes in one byte, numbers and maps, some missing, and weights; or vectors per task and a stream
    without labels."""
    rng = np.random.default_rng(seed)
    if kind == "image":
        names, shape, dtype = ("kind", "size", "mask"), (3, SIDE, SIDE), np.uint8
    else:
        names, shape, dtype = ("size", "other"), (5,), np.float32
    known = {
        "kind": Task(name="kind", loss="cross_entropy", outputs=3, metrics=("accuracy",)),
        "size": Task(name="size", loss="mse", outputs=1, metrics=("mse",)),
        "other": Task(name="other", loss="mse", outputs=1, metrics=("mse",)),
        "mask": Task(name="mask", loss="cross_entropy", outputs=2, metrics=("accuracy",)),
    }
    shared = kind == "image"
    suite = TaskSuite(
        name="toy",
        tasks=tuple(known[name] for name in names),
        inputs="shared" if shared else "per_task",
        input_kind="image" if shared else "vector",
        input_shape=shape,
        weighted=shared,
        unlabelled=() if shared else ("extra",),
    )
    tables: dict[str, dict[str, pa.Table]] = {}
    for split in SPLITS:
        tables[split] = {}
        for stream, tasks in suite.streams.items():
            count = rows[split]
            places = np.arange(count)
            targets = {
                "kind": np.where(places == 1, MISSING_CLASS, places % 3).astype(np.int8),
                "size": np.where(places == 2, np.nan, rng.normal(size=count)).astype(np.float32),
                "other": rng.normal(size=count).astype(np.float32),
                "mask": fixed(rng.integers(-1, 2, (count, SIDE * SIDE)).astype(np.int8)),
            }
            tables[split][stream] = pa.table(
                {
                    "id": [f"{split}/{stream}/{row:04d}" for row in places],
                    "input": fixed((rng.random((count, *shape)) * 200).astype(dtype)),
                    **{f"target.{task}": targets[task] for task in tasks},
                    **({"weight": rng.random(count).astype(np.float32)} if shared else {}),
                }
            )
    folder.mkdir(parents=True)
    prepared = Prepared(suite, tables, target_shapes={"mask": (SIDE, SIDE)} if shared else {})
    write_prepared(folder, Toy(), SourceInfo(description="rows of this test", fingerprint="0"), prepared)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def toy(home: Path) -> Path:
    return write(home / "data" / "toy" / "a")


def reader(folder: Path, kind: str, dtype: torch.dtype = torch.float32) -> Reader:
    return open_reader(load_prepared(folder), kind, device=CPU, dtype=dtype)[0]


def same(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and left.shape == right.shape and left.numpy().tobytes() == right.numpy().tobytes()


def in_shards(folder: Path, rows: int) -> None:
    """The same set, its streams cut into files of so many rows."""
    manifest = read_manifest(folder)
    files = []
    for entry in manifest.files:
        table = pq.read_table(folder / entry.path)
        (folder / entry.path).unlink()
        for number, start in enumerate(range(0, len(table), rows)):
            path = f"{entry.path.removesuffix('.parquet')}/{number:05d}.parquet"
            (folder / path).parent.mkdir(exist_ok=True)
            pq.write_table(table.slice(start, rows), folder / path)
            content = (folder / path).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            count = min(rows, len(table) - start)
            files.append(FileEntry(path=path, bytes=len(content), rows=count, sha256=digest))
    manifest = manifest.model_copy(update={"files": files, "fingerprint": "in shards".ljust(64)})
    (folder / MANIFEST).write_text(manifest.model_dump_json())


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_in_shards_is_read_as_one(home: Path, kind: str) -> None:
    whole, cut = (write(home / "data" / "toy" / name) for name in "ab")
    in_shards(cut, 4)
    assert len(read_manifest(cut).shards("train", "all")) == 6
    for split in SPLITS:
        index = torch.arange(ROWS[split]).flip(0)
        left, right = (reader(folder, kind).take(split, "all", index) for folder in (whole, cut))
        assert same(left.inputs, right.inputs)
        assert same(left.weights, right.weights)
        assert all(same(target, right.targets[task]) for task, target in left.targets.items())
    assert read_ids(cut, "train", "all") == read_ids(whole, "train", "all")
    assert needed(cut, read_manifest(cut), "float32") == needed(whole, read_manifest(whole), "float32")


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_of_an_earlier_version_is_read_as_it_was(home: Path, kind: str) -> None:
    """Whose manifest says nothing of types."""
    new, old = (write(home / "data" / "toy" / name) for name in "ab")
    manifest = read_manifest(old)
    assert manifest.types["input"] == "uint8" and manifest.types["target.size"] == "float32"
    told = {key: value for key, value in manifest.model_dump(mode="json").items() if key != "types"}
    (old / MANIFEST).write_text(json.dumps(told | {"fingerprint": "earlier".ljust(64)}))
    index = torch.arange(ROWS["train"])
    assert_same(*(reader(folder, kind).take("train", "all", index) for folder in (new, old)))
    assert needed(old, read_manifest(old), "float32") == needed(new, read_manifest(new), "float32")


def assert_same(left: Samples, right: Samples) -> None:
    assert same(left.inputs, right.inputs) and same(left.weights, right.weights)
    assert left.targets.keys() == right.targets.keys()
    assert all(same(left.targets[name], right.targets[name]) for name in left.targets)


@pytest.mark.parametrize("kind", ["image", "vector"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_readers_give_the_same_samples_to_the_last_bit(kind: str, dtype: torch.dtype, home: Path) -> None:
    folder = write(home / "data" / "toy" / "a", kind=kind)
    readers = [reader(folder, name, dtype) for name in KINDS]
    assert [one.name for one in readers] == list(KINDS)
    for split in SPLITS:
        assert readers[0].sizes(split) == readers[1].sizes(split) == readers[2].sizes(split)
        for stream, size in readers[0].sizes(split).items():
            index = torch.tensor([size - 1, 0, 2, 2, 1])
            found = [placed(one.take(split, stream, index), CPU, dtype) for one in readers]
            assert_same(found[0], found[1])
            assert_same(found[0], found[2])
            assert_same(found[0], placed(load_prepared(folder).splits[split][stream].take(index), CPU, dtype))
    for name, target in readers[0].targets("train", "it").items():
        assert same(target, readers[1].targets("train", "it")[name])
    for stream, samples in readers[0].whole("train", "it").items():
        assert_same(samples, readers[1].whole("train", "it")[stream])


def test_what_a_host_reader_takes_is_as_small_as_it_is_stored_and_a_copy(toy: Path) -> None:
    for kind in ("memory", "mapped"):
        one = reader(toy, kind)
        samples = one.take("train", "all", torch.arange(3))
        assert samples.inputs.dtype == torch.uint8 and samples.targets["kind"].dtype == torch.int8
        samples.inputs.zero_()
        assert one.take("train", "all", torch.arange(3)).inputs.any()


def test_opening_reads_no_split(toy: Path) -> None:
    data = load_prepared(toy)
    one, _ = open_reader(data, "mapped", device=CPU, dtype=torch.float32)
    one.take("train", "all", torch.tensor([4]))
    assert data.splits._read == {}  # type: ignore[attr-defined]
    (found,) = (toy.parents[2] / "cache").glob("[!.]*/")
    assert [place.name for place in found.iterdir()] == ["train"]  # the others when they are asked for


def test_data_without_files_are_read_from_memory_and_cannot_be_mapped(toy: Path) -> None:
    splits = dict(load_prepared(toy).splits)
    data = PreparedData(Path(), None, load_prepared(toy).suite, splits)  # type: ignore[arg-type]
    assert open_reader(data, "auto", device=CPU, dtype=torch.float32)[0].name == "device"
    taken = open_reader(data, "memory", device=CPU, dtype=torch.float32)[0].take("val", "all", torch.tensor([3]))
    assert_same(taken, splits["val"]["all"].take(torch.tensor([3])))
    with pytest.raises(UserError, match=r"toy has none; set training\.reader"):
        open_reader(data, "mapped", device=CPU, dtype=torch.float32)


def test_a_mapped_reader_says_what_it_does_not_hold(toy: Path, home: Path) -> None:
    with pytest.raises(UserError, match=r"svd_reweighting needs the whole training set at once, .* mapped"):
        reader(toy, "mapped").whole("train", "svd_reweighting")
    with pytest.raises(UserError, match="constant needs all training labels at once"):
        reader(toy, "mapped").targets("train", "constant")
    vectors = reader(write(home / "data" / "toy" / "b", kind="vector"), "mapped")
    assert vectors.targets("train", "constant")["size"].shape == (23,)  # one number each can be held


def test_wide_rows_are_asked_for_in_the_order_of_the_file_before_they_are_touched(toy: Path) -> None:
    one = reader(toy, "mapped")
    assert isinstance(one, HostReader)
    samples = one._splits["train"]["all"]
    assert isinstance(samples, MappedSamples)
    asked: list[tuple[int, int, int]] = []

    class Pages:
        def madvise(self, *what: int) -> None:
            asked.append(what)  # type: ignore[arg-type]

    width = 3 * SIDE * SIDE
    assert [(first, row) for _, first, row in samples.files] == [(128, width)]  # maps are 2304 bytes, labels 1
    samples.files = ((Pages(), 128, width),)  # type: ignore[assignment]
    samples.expect(torch.tensor([5, 0, 3]))
    for row, (_, start, length) in zip((0, 3, 5), asked, strict=True):
        assert start % 4096 == 0 and start <= 128 + row * width
        assert start + length == 128 + (row + 1) * width


# -- the files of the cache ----------------------------------------------------------------------------------------


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.npy")}


def cached(folder: Path, *splits: str) -> CachedSet:
    found = CachedSet(folder, read_manifest(folder))
    for split in splits:
        found.columns(split, "all")
    return found


def test_a_row_group_at_a_time_gives_the_same_files(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(toy, "train")
    root = toy.parents[2] / "cache"
    whole = {name: (root / name).read_bytes() for name in files(root)}
    monkeypatch.setattr(arrays, "PIECE", 30000)  # three rows
    other = root.with_name("other") / "disk"  # whose parent is not there, either
    monkeypatch.setenv(FOLDER, str(other))
    cached(toy, "train")
    assert {name: (other / name).read_bytes() for name in files(root)} == whole and len(whole) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_named_before_training(kind: str, toy: Path) -> None:
    path = toy / "train" / "all.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"train/all.parquet is damaged: its bytes .* prepare again") as found:
        reader(toy, kind).sizes("train")
    assert "\n" not in str(found.value)
    assert not files(toy.parents[2])


def test_files_are_looked_at_once_per_node_and_again_when_they_change(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    real = cache.hashlib.file_digest

    def digest(file: object, name: str) -> object:
        looked.append(str(file.name))  # type: ignore[attr-defined]
        return real(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(cache.hashlib, "file_digest", digest)
    manifest = read_manifest(toy)
    for _ in range(3):
        verify(toy, manifest, "train")
    assert len(looked) == 1
    os.utime(toy / "train" / "all.parquet", ns=(1, 1))
    verify(toy, manifest, "train")
    assert len(looked) == 2


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Writing beyond so many bytes of a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_is_one_line_and_leaves_nothing_half_written(toy: Path) -> None:
    one = cached(toy, "val")
    before = files(one.root)
    with (
        file_limit(100_000),
        pytest.raises(UserError, match=r"no space left below .* for train/all of toy") as f,
    ):
        one.columns("train", "all")
    assert "\n" not in str(f.value) and FOLDER in str(f.value)
    assert files(one.root) == before and not list(one.root.glob(".writing-*"))
    assert one.columns("train", "all")["input"].shape == (23, 3 * SIDE * SIDE)  # and it goes on where there is room


def test_what_a_process_left_half_written_goes(toy: Path) -> None:
    one = cached(toy)
    (one.root / ".writing-abc").mkdir()
    one.columns("val", "all")
    assert not list(one.root.glob(".writing-*"))


def test_a_cache_too_small_for_one_file_is_refused(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "0.0001")  # 105 kB; the training images take 159
    with pytest.raises(UserError, match=rf"limited to 104.9 KiB \({LIMIT}\), too small for train/all of toy"):
        cached(toy, "train")
    for wrong in ("none", "0", "-1", "nan"):
        monkeypatch.setenv(LIMIT, wrong)
        with pytest.raises(UserError, match=f"{LIMIT}={wrong} is no number of GiB"):
            cached(toy)


def test_the_set_used_longest_ago_goes_unless_somebody_has_it_open(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set's training split takes 215 kB, the cache 540 kB."""
    folders = [write(home / "data" / "toy" / str(seed), seed) for seed in range(4)]
    monkeypatch.setenv(LIMIT, str(540_000 / 2**30))
    keys = [read_manifest(folder).fingerprint[:32] for folder in folders]
    root = home / "cache"

    def there() -> list[bool]:
        return [(root / key / "train").exists() for key in keys]

    first = cached(folders[0], "train")
    second = cached(folders[1], "train")
    for key, when in ((keys[0], 100), (keys[1], 200)):
        os.utime(root / f"{key}.lock", (when, when))
    del second
    third = cached(folders[2], "train")  # the first is older, but open
    assert there() == [True, False, True, False]
    with pytest.raises(UserError, match=r"no room in the cache .* the sets there are in use\) for train/all of toy"):
        cached(folders[3], "train")
    del first, third
    cached(folders[3], "train")
    assert there() == [False, False, True, True]


def test_a_full_disk_is_made_room_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (write(home / "data" / "toy" / str(seed), seed) for seed in range(2))
    cached(old, "train")
    key = read_manifest(old).fingerprint[:32]
    monkeypatch.setattr(CachedSet, "_free", lambda self: 0 if (self.root / key).exists() else 1 << 30)
    cached(new, "train")
    assert not (home / "cache" / key).exists()
    monkeypatch.setattr(CachedSet, "_free", lambda self: 0)
    with pytest.raises(UserError, match=r"0\.0 KiB free, the sets there are in use"):
        cached(old, "train")


OTHER = """
import sys
from pathlib import Path
from mtlscale.data.readers import cache
from mtlscale.data.readers.prepared import read_manifest
written = []
real = cache.write_arrays
cache.write_arrays = lambda *a: (written.append(1), real(*a))
found = cache.CachedSet(Path(sys.argv[1]), read_manifest(Path(sys.argv[1])))
for split in ("train", "val", "test"):
    found.columns(split, "all")
print(len(written))
"""


def test_two_processes_share_one_copy(toy: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", OTHER, str(toy)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    written = [int(process.communicate(timeout=60)[0]) for process in both]
    assert sum(written) == 3 and len(list((toy.parents[2] / "cache").glob("[!.]*/"))) == 1


def test_a_process_that_dies_gives_its_lock_back(toy: Path) -> None:
    text = OTHER.replace("print(len(written))", "print('open', flush=True); import time; time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", text, str(toy)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    root = toy.parents[2] / "cache"
    (place,) = root.glob("[!.]*/")
    assert not cache._remove_unused(place, root / f"{place.name}.lock")
    process.kill()
    process.communicate()
    assert cache._remove_unused(place, root / f"{place.name}.lock") and not place.exists()


def test_a_place_that_cannot_be_written_is_one_line(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(toy / "manifest.json" / "cache"))
    with pytest.raises(UserError, match=f"cannot be written .* name another place by {FOLDER}"):
        cached(toy)


def test_threads_that_ask_at_once_get_the_same(toy: Path) -> None:
    one, found = reader(toy, "mapped"), []
    threads = [
        threading.Thread(target=lambda: found.append(one.take("train", "all", torch.tensor([1, 7])))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in found[1:]:
        assert_same(found[0], other)


# -- which reader --------------------------------------------------------------------------------------------------

GIB = 1 << 30
Fit = Callable[..., str]


@pytest.mark.parametrize(
    ("stored", "placed", "processes", "host", "gpu", "expected"),
    [
        (1, 1, 1, 10, None, "device"),
        (1, 4, 1, 10, None, "device"),
        (4, 4, 1, 10, None, "memory"),  # while it is read it is there twice
        (1, 1, 4, 10, None, "memory"),  # four copies
        (7, 7, 1, 10, None, "memory"),  # exactly what data may take of the memory
        (8, 8, 1, 10, None, "mapped"),
        (2, 2, 1, 10, 5, "device"),
        (2, 3, 1, 10, 5, "memory"),  # does not fit the GPU
        (8, 2, 1, 10, 5, "mapped"),
        (2, 2, 4, 10, 50, "memory"),  # the GPU could hold them, the host not four times
    ],
)
def test_the_first_that_fits_is_taken_and_says_why(
    stored: float, placed: float, processes: int, host: float, gpu: float | None, expected: str
) -> None:
    free = Free(int(host * GIB), None if gpu is None else int(gpu * GIB))
    choice = fitting(Need(int(stored * GIB), int(placed * GIB)), processes, free, gpu=gpu is not None)
    assert choice.reader == expected
    assert "GiB" in choice.why and str(choice).startswith(f"reader {expected} (")


def test_what_data_take_is_counted_from_the_manifest(toy: Path) -> None:
    manifest, rows = read_manifest(toy), sum(ROWS.values())
    pixels = 3 * SIDE * SIDE
    found = needed(toy, manifest, "float64")
    assert found.stored == rows * (pixels + 1 + 4 + SIDE * SIDE + 4)
    assert found.placed == rows * (pixels + 8 + 8 + 8 * SIDE * SIDE + 8)
    data = load_prepared(toy)
    whole = open_reader(data, "device", device=CPU, dtype=torch.float64)[0]
    tensors = [
        tensor
        for split in SPLITS
        for samples in whole.whole(split, "it").values()
        for tensor in (samples.inputs, *samples.targets.values(), samples.weights)
        if tensor is not None
    ]
    assert found.placed == sum(tensor.nbytes for tensor in tensors)
    assert bound(manifest).placed >= found.placed


def test_a_reader_that_can_never_be_had_is_refused_before_it_reads(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = Free(500, most=1000, limit="the limit of its control group")
    monkeypatch.setattr(Free, "of_this_node", classmethod(lambda cls, gpu: limited))
    for reader in ("device", "memory"):
        with pytest.raises(UserError, match=f"reader {reader} would hold .* of the limit of its control group; set"):
            open_reader(load_prepared(toy), reader, device=CPU, dtype=torch.float32)

    data = OnDisk(toy, read_manifest(toy))
    need = needed(toy, data.manifest, "float32")
    for reader, least in (("memory", need.stored), ("device", need.stored + need.placed)):
        check_room(data, reader, "float32", free=Free(500, most=least))
        with pytest.raises(UserError, match="of the node; set"):
            check_room(data, reader, "float32", free=Free(500, most=least - 1))

    opened, choice = open_reader(load_prepared(toy), "auto", device=CPU, dtype=torch.float32)
    assert opened.name == "mapped" and "the limit of its control group: 1.0 KiB" in choice.why


def test_a_setting_is_taken_as_it_is_and_auto_looks(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = OnDisk(toy, read_manifest(toy))
    assert choose(data, "mapped", "float32").reader == "mapped"
    assert choose(data, "auto", "float32").reader == "device"
    assert choose(data, "auto", "float32", free=Free(1000)).reader == "mapped"
    monkeypatch.setattr(Free, "of_this_node", classmethod(lambda cls, gpu: Free(900_000)))
    assert open_reader(load_prepared(toy), "auto", device=CPU, dtype=torch.float32)[0].name == "memory"


def test_full_disks_are_told_by_their_numbers() -> None:
    assert {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} == set(cache.FULL)
