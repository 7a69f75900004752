from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

SMALL = {"positives": 10, "negatives": 2, "components": 4}
WriteIdx = Callable[..., Path]


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


@pytest.fixture
def write(tmp_path: Path) -> WriteIdx:
    """A folder in MNIST's layout with thirty random 4 x 4 images of every digit."""

    def make(packed: bool = True, below: str = "") -> Path:
        rng = np.random.default_rng(0)
        labels = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), 30))
        images = (rng.integers(0, 100, (300, 4, 4)) + 10 * labels[:, None, None]).astype(np.uint8)
        folder = tmp_path / "source" / below
        folder.mkdir(parents=True)
        for name, values in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values)))
            else:
                (folder / name).write_bytes(idx(values))
        return tmp_path / "source"

    return make


def test_every_task_is_balanced_and_no_image_is_in_two(write: WriteIdx, tmp_path: Path) -> None:
    folder = prepare("mnist_mtl", SMALL, write(), tmp_path)
    manifest = read_manifest(folder)
    ids: list[str] = []
    for digit in range(10):
        counts = manifest.class_counts[f"digit{digit}"]
        assert sum(counts[split][str(digit)] for split in SPLITS) == 10
        assert sum(counts[split]["rest"] for split in SPLITS) == 18
        ids += [id for split in SPLITS for id in read_ids(folder, split, f"digit{digit}")]
    assert len(set(ids)) == len(ids) == 280
    train = torch.cat([s.inputs for s in load_prepared(folder).splits["train"].values()])
    assert train.shape[1:] == (4,)
    torch.testing.assert_close(train.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    covariance = torch.cov(train.T)
    torch.testing.assert_close(covariance, covariance.diagonal().diag(), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("packed", "below"), [(False, ""), (True, "MNIST/raw"), (False, "raw")])
def test_plain_files_and_torchvisions_folders_give_the_same(
    packed: bool, below: str, write: WriteIdx, tmp_path: Path
) -> None:
    folder = prepare("mnist_mtl", SMALL, write(packed, below), tmp_path)
    assert read_manifest(folder).counts["digit0"] == {"train": 18, "val": 4, "test": 6}


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: [path.unlink() for path in f.iterdir()], "has neither train-images-idx3-ubyte.gz nor"),
        (lambda f: _cut(f / "train-images-idx3-ubyte.gz"), "train-images-idx3-ubyte.gz is damaged"),
        (lambda f: _repack(f / "train-labels-idx1-ubyte.gz", lambda b: b[:-5]), "is no idx file of 1-dimensional"),
        (lambda f: _repack(f / "train-images-idx3-ubyte.gz", lambda b: b"\x89PNG" + b[4:]), "is no idx file of 3-dim"),
    ],
)
def test_a_bad_source_is_one_line(
    damage: Callable[[Path], object], expected: str, write: WriteIdx, tmp_path: Path
) -> None:
    source = write()
    damage(source)
    with pytest.raises(UserError, match=f"^mnist_mtl: .*{expected}") as caught:
        prepare("mnist_mtl", SMALL, source, tmp_path)
    assert "\n" not in str(caught.value)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _repack(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


def test_more_images_than_there_are_cannot_be_asked_for(write: WriteIdx, tmp_path: Path) -> None:
    source = write()
    with pytest.raises(UserError, match="there are 30 samples of digit0, its own task and the others need 118"):
        prepare("mnist_mtl", {**SMALL, "positives": 100}, source, tmp_path)
    with pytest.raises(UserError, match="17 components are more than 16"):
        prepare("mnist_mtl", {**SMALL, "components": 17}, source, tmp_path)


def test_mnist_itself(shared_data: Path, tmp_path: Path) -> None:
    folder = prepare("mnist_mtl", {}, shared_data / "mnist", tmp_path)
    manifest = read_manifest(folder)
    assert manifest.counts == {f"digit{d}": {"train": 1152, "val": 288, "test": 360} for d in range(10)}
    data = load_prepared(folder)
    ids = [id for split in SPLITS for task in data.suite.streams for id in read_ids(folder, split, task)]
    assert len(set(ids)) == len(ids) == 18_000
    # A nearest-centroid rule on the components tells a digit from the rest far better than chance.
    train, test = data.splits["train"]["digit0"], data.splits["test"]["digit0"]
    labels = train.targets["digit0"]
    centres = torch.stack([train.inputs[labels == label].mean(0) for label in (0, 1)])
    guesses = torch.cdist(test.inputs, centres).argmin(1)
    assert float((guesses == test.targets["digit0"]).float().mean()) > 0.85
