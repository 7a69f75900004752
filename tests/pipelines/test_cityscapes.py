import re
from pathlib import Path

import numpy as np
import pytest
from data_sets import DATA_SETS
from image_sets import (
    assert_statistics_of_train,
    by_id,
    ids_by_split,
    picture,
    save,
)
from in_process import prepare
from PIL import Image

from mtlscale.config import UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest

SIZE = {"size": [32, 64], "validation": 0.3}
HEIGHT, WIDTH = 64, 128
FILES = {"leftImg8bit": "leftImg8bit", "gtFine": "gtFine_labelIds", "disparity": "disparity"}
# Of the official label table: id -> training id of the 19 classes, and the categories in their order.
TRAIN_ID = dict(zip((7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33), range(19), strict=True))
CATEGORIES = [(7, 8), (11, 12, 13), (17, 19, 20), (21, 22), (23,), (24, 25), (26, 27, 28, 31, 32, 33)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return DATA_SETS["cityscapes"].write(tmp_path / "cityscapes")


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    root, rng = tmp_path / "arrays", np.random.default_rng(1)
    for part, count in (("train", 15), ("val", 4)):
        for number in range(count):
            save(root / part / "image" / f"{number}.npy", picture(rng, 32, 64).astype(np.float64) / 255)
            for name, classes in (("label", 7), ("label_19", 19)):
                labels = rng.integers(-1, classes, (32, 64)).astype(np.float64)
                save(root / part / name / f"{number}.npy", labels)
            depth = rng.uniform(0, 0.4, (32, 64, 1))
            depth[:3] = 0
            save(root / part / "depth" / f"{number}.npy", depth)
    return root


def path_of(root: Path, folder: str, part: str, stem: str) -> Path:
    return root / folder / part / stem.split("_")[0] / f"{stem}_{FILES[folder]}.png"


def stems(part: str) -> list[str]:
    cities = {"train": ("aachen", "bochum"), "val": ("frankfurt",)}[part]
    return [f"{city}_{sequence:06d}_000019" for city in cities for sequence in range(9)]


def picked(array: np.ndarray) -> np.ndarray:
    return array[1::2, 1::2]


@pytest.mark.parametrize("classes", [7, 19])
def test_the_official_layout(source: Path, tmp_path: Path, classes: int) -> None:
    data = load_prepared(prepare("cityscapes", {**SIZE, "classes": classes}, source, tmp_path))
    assert data.suite.input_shape == (3, 32, 64)
    assert [(task.name, task.outputs) for task in data.suite.tasks] == [("segmentation", classes), ("depth", 1)]
    assert data.manifest.target_shapes == {"segmentation": (32, 64), "depth": (1, 32, 64)}
    where = by_id(data.folder)
    assert set(where) == {f"{part}/{stem}" for part in ("train", "val") for stem in stems(part)}
    table = np.full(256, -1)
    for id, number in TRAIN_ID.items():
        table[id] = number if classes == 19 else next(n for n, ids in enumerate(CATEGORIES) if id in ids)
    for id, (split, row) in where.items():
        part, stem = id.split("/")
        assert (split == "test") == (part == "val")
        samples = data.splits[split]["all"]
        labels = picked(np.asarray(Image.open(path_of(source, "gtFine", part, stem))))
        assert np.array_equal(samples.targets["segmentation"][row].numpy(), table[labels])
        disparity = picked(np.asarray(Image.open(path_of(source, "disparity", part, stem)))).astype(np.float64)
        inverse = np.where(disparity > 1, (disparity - 1) / 256, np.nan)
        np.testing.assert_allclose(samples.targets["depth"][row, 0].numpy(), inverse, rtol=1e-6)
        image = Image.open(path_of(source, "leftImg8bit", part, stem)).resize((64, 32), Image.Resampling.BILINEAR)
        assert np.array_equal(samples.inputs[row].numpy(), np.asarray(image).transpose(2, 0, 1))
    assert_statistics_of_train(data)


def test_the_size_of_the_papers_is_the_default(source: Path, tmp_path: Path) -> None:
    assert read_manifest(prepare("cityscapes", {}, source, tmp_path)).suite.input_shape == (3, 128, 256)


@pytest.mark.parametrize(("classes", "file"), [(7, "label"), (19, "label_19")])
def test_the_npy_layout(arrays: Path, tmp_path: Path, classes: int, file: str) -> None:
    data = load_prepared(prepare("cityscapes", {**SIZE, "classes": classes}, arrays, tmp_path))
    where = by_id(data.folder)
    assert len(where) == 19
    for id, (split, row) in where.items():
        part, number = id.split("/")
        assert (split == "test") == (part == "val")
        samples = data.splits[split]["all"]
        stored = {name: np.load(arrays / part / name / f"{int(number)}.npy") for name in ("image", file, "depth")}
        assert np.array_equal(samples.targets["segmentation"][row].numpy(), stored[file])
        depth = stored["depth"][..., 0].astype(np.float32)
        np.testing.assert_array_equal(samples.targets["depth"][row, 0].numpy(), np.where(depth == 0, np.nan, depth))
        np.testing.assert_allclose(samples.inputs[row].numpy(), stored["image"].transpose(2, 0, 1) * 255, atol=1e-9)


def test_images_that_cannot_be_used_are_named_and_skipped(source: Path, tmp_path: Path) -> None:
    names = stems("train")
    save(path_of(source, "disparity", "train", names[0]), np.zeros((HEIGHT, WIDTH), np.uint16))
    save(path_of(source, "disparity", "train", names[1]), np.full((HEIGHT, WIDTH), 5, np.uint8))
    save(path_of(source, "gtFine", "train", names[2]), np.full((HEIGHT, WIDTH), 34, np.uint8))
    save(path_of(source, "gtFine", "train", names[3]), np.full((HEIGHT // 2, WIDTH // 2), 7, np.uint8))
    path_of(source, "leftImg8bit", "train", names[4]).write_bytes(b"\x89PNG\r\n\x1a\n")
    path_of(source, "disparity", "train", names[5]).unlink()
    with pytest.raises(UserError, match=r"^1 image cannot be used.* has no depth beside it; mend or pass --skip-bad$"):
        prepare("cityscapes", SIZE, source, tmp_path)
    folder = prepare("cityscapes", SIZE, source, tmp_path, skip_bad=True)
    skipped = read_manifest(folder).notes["skipped"]
    assert skipped["count"] == 6
    expected = [
        rf"disparity/.*/{names[0]}_disparity\.png has no valid depth",
        rf"disparity/.*/{names[1]}_disparity\.png has pixels of kind L, expected 16 bits",
        rf"gtFine/.*/{names[2]}_gtFine_labelIds\.png has the label 34, outside the label ids 0\.\.33",
        rf"gtFine/.*/{names[3]}_gtFine_labelIds\.png is 32x64 pixels, its image 64x128",
        rf"leftImg8bit/.*/{names[4]}_leftImg8bit\.png is corrupt",
        rf"/{names[5]}_.* has no depth beside it",
    ]
    for pattern in expected:
        assert sum(bool(re.search(pattern, line)) for line in skipped["first"]) == 1, pattern
    kept = set.union(*ids_by_split(folder).values())
    assert kept == {f"{part}/{stem}" for part in ("train", "val") for stem in stems(part)} - {
        f"train/{name}" for name in names[:6]
    }


def test_a_split_of_which_no_image_can_be_used_is_named(source: Path, tmp_path: Path) -> None:
    for name in stems("val"):
        path_of(source, "leftImg8bit", "val", name).write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(UserError, match="no usable image is left in test"):
        prepare("cityscapes", SIZE, source, tmp_path, skip_bad=True)
