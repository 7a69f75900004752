import re
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from image_sets import (
    IN_PROCESS,
    WITH_RAY,
    assert_same_bytes,
    assert_statistics_of_train,
    by_id,
    encoded,
    ids_by_split,
    picture,
    save,
)
from in_process import prepare
from PIL import Image
from scipy.io import savemat

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from pipelines._images.normals import estimate_normals
from pipelines._images.nyu_classes import CLASSES_13, CLASSES_40, TO_13
from pipelines.image.nyuv2 import CAMERA

HEIGHT, WIDTH = 48, 64
SIZE = {"size": [24, 32]}
TRAIN, TEST = 24, 6


def stored_maps(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One frame's labels (blocks of 40 classes and void), depth byte and normals as the pictures have them."""
    label40 = np.kron(rng.choice([*range(40), 255], (6, 8)), np.ones((8, 8), int)).astype(np.uint8)
    to_13 = np.array([*(c + 1 for c in TO_13), *[0] * 216], np.uint8)
    depth = np.kron(rng.integers(18, 255, (3, 4)), np.ones((16, 16), int)).astype(np.uint8)
    depth[:2] = 0
    normal = np.full((HEIGHT, WIDTH, 3), 127, np.uint8)
    normal[4:] = rng.choice([[255, 127, 127], [127, 255, 127], [127, 0, 127]], (HEIGHT - 4, WIDTH))
    return {"depth": depth, "label13": to_13[label40], "label40": label40, "normal": normal}


def frames() -> list[tuple[str, int]]:
    return [("train", n) for n in range(1, TRAIN + 1)] + [("val", TRAIN + n) for n in range(1, TEST + 1)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The layout of pictures, without normals."""
    root, rng = tmp_path / "pictures" / "nyuv2", np.random.default_rng(0)
    for part, number in frames():
        save(root / part / "image" / f"{number:04d}.jpg", picture(rng, HEIGHT, WIDTH))
        for name, pixels in stored_maps(rng).items():
            if name != "normal":
                save(root / part / name / f"{number:04d}.png", pixels)
    return root.parent


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """The `.npy` layout, types as MTAN's files have them."""
    root, rng = tmp_path / "arrays", np.random.default_rng(1)
    for part, number in frames():
        maps = stored_maps(rng)
        vectors = np.where((maps["normal"] == 127).all(2, keepdims=True), 0, maps["normal"] / 127.5 - 1)
        content = {
            "image": picture(rng, HEIGHT, WIDTH).astype(np.float32) / 255,
            "label": maps["label13"].astype(np.float32) - 1,
            "depth": (maps["depth"].astype(np.float32) / 25.5)[..., None],
            "normal": vectors.astype(np.float32),
        }
        for name, array in content.items():
            save(root / part / name / f"{number - 1 - TRAIN * (part == 'val')}.npy", array)
    return root


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """The official `.mat`, the split and the class map, with eight raw labels."""
    root, rng = tmp_path / "official", np.random.default_rng(2)
    root.mkdir()
    count = TRAIN + TEST
    with h5py.File(root / "nyu_depth_v2_labeled.mat", "w") as file:
        file["images"] = np.stack([picture(rng, HEIGHT, WIDTH).transpose(2, 1, 0) for _ in range(count)])
        slopes = np.linspace(1, 1.5, WIDTH)[:, None] + np.linspace(0, 0.3, HEIGHT)
        file["depths"] = (rng.uniform(1, 5, (count, 1, 1)) * slopes).astype(np.float32)
        file["labels"] = rng.integers(0, 9, (count, WIDTH, HEIGHT)).astype(np.uint16)
    train, test = (np.array([[n] for part, n in frames() if part == p]) for p in ("train", "val"))
    savemat(root / "splits.mat", {"trainNdxs": train, "testNdxs": test})
    savemat(root / "classMapping40.mat", {"mapClass": np.array([[1, 2, 3, 4, 5, 40, 40, 39]])})
    return root


def picked(array: np.ndarray) -> np.ndarray:
    """The pixels that halving keeps: of each two the one under the new pixel's centre."""
    return array[1::2, 1::2]


def test_pictures_become_classes_metres_and_estimated_normals(pictures: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("nyuv2", SIZE, pictures, tmp_path))
    segmentation, depth, normals = data.suite.tasks
    assert segmentation.metrics == ("miou", "pixel_accuracy")
    assert (segmentation.loss, segmentation.outputs, segmentation.classes) == ("cross_entropy", 13, CLASSES_13)
    assert (depth.name, depth.loss, depth.metrics) == ("depth", "l1", ("abs_err", "rel_err", "rmse"))
    assert (normals.name, normals.loss, normals.outputs) == ("normals_estimated", "cosine", 3)
    assert data.manifest.target_shapes == {
        "segmentation": (24, 32),
        "depth": (1, 24, 32),
        "normals_estimated": (3, 24, 32),
    }
    for id, (split, row) in by_id(data.folder).items():
        part, number = id.split("/")
        assert (split == "test") == (part == "val")
        stored = {
            name: np.asarray(Image.open(pictures / "nyuv2" / part / name / f"{number}.png"))
            for name in ("label13", "depth")
        }
        samples = data.splits[split]["all"]
        expected = picked(stored["label13"]).astype(int) - 1
        assert np.array_equal(samples.targets["segmentation"][row].numpy(), expected)
        metres = picked(np.where(stored["depth"] == 0, np.nan, (stored["depth"] + 0.5) / 25.5))
        np.testing.assert_allclose(samples.targets["depth"][row, 0].numpy(), metres, rtol=1e-6)
        image = Image.open(pictures / "nyuv2" / part / "image" / f"{number}.jpg").resize(
            (32, 24), Image.Resampling.BILINEAR
        )
        assert np.array_equal(samples.inputs[row].numpy(), np.asarray(image).transpose(2, 0, 1))
        lengths = np.linalg.norm(samples.targets["normals_estimated"][row].numpy(), axis=0)
        np.testing.assert_allclose(lengths[np.isfinite(lengths)], 1, rtol=1e-6)
    assert_statistics_of_train(data)


def test_forty_classes_have_another_void(pictures: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("nyuv2", {**SIZE, "classes": 40, "normals": "none"}, pictures, tmp_path))
    assert [task.name for task in data.suite.tasks] == ["segmentation", "depth"]
    assert data.suite.tasks[0].classes == CLASSES_40
    split, row = by_id(data.folder)["val/0025"]
    stored = picked(np.asarray(Image.open(pictures / "nyuv2" / "val" / "label40" / "0025.png"))).astype(int)
    got = data.splits[split]["all"].targets["segmentation"][row].numpy()
    assert np.array_equal(got, np.where(stored == 255, -1, stored))


def test_pictures_of_normals_are_read_where_they_exist(pictures: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    truth = {}
    for part, number in frames():
        truth[f"{part}/{number:04d}"] = stored_maps(rng)["normal"]
        save(pictures / "nyuv2" / part / "normal" / f"{number:04d}.png", truth[f"{part}/{number:04d}"])
    data = load_prepared(prepare("nyuv2", SIZE, pictures, tmp_path))
    assert data.suite.tasks[2].name == "normals"
    split, row = by_id(data.folder)["train/0003"]
    stored = picked(truth["train/0003"])
    unit = np.where((stored == 127).all(2, keepdims=True), np.nan, np.sign(stored / 127.5 - 1) * (stored != 127))
    got = data.splits[split]["all"].targets["normals"][row].numpy().transpose(1, 2, 0)
    np.testing.assert_allclose(got, unit, atol=0.01)


def test_the_npy_layout(arrays: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("nyuv2", SIZE, arrays, tmp_path))
    assert [task.name for task in data.suite.tasks] == ["segmentation", "depth", "normals"]
    assert sum(len(data.splits[split]["all"]) for split in SPLITS) == TRAIN + TEST
    for id, (split, row) in by_id(data.folder).items():
        part, number = id.split("/")
        stored = {
            name: np.load(arrays / part / name / f"{int(number)}.npy") for name in ("image", "label", "depth", "normal")
        }
        samples = data.splits[split]["all"]
        assert np.array_equal(samples.targets["segmentation"][row].numpy(), picked(stored["label"]))
        depth = picked(stored["depth"][..., 0])
        np.testing.assert_array_equal(samples.targets["depth"][row, 0].numpy(), np.where(depth == 0, np.nan, depth))
        normal = picked(stored["normal"])
        absent = (normal == 0).all(2, keepdims=True)
        expected = np.where(absent, np.nan, normal / np.where(absent, 1, np.linalg.norm(normal, axis=2, keepdims=True)))
        got = samples.targets["normals"][row].numpy().transpose(1, 2, 0)
        np.testing.assert_allclose(got, expected, atol=1e-6)
    full = load_prepared(prepare("nyuv2", {"size": [HEIGHT, WIDTH]}, arrays, tmp_path))
    split, row = by_id(full.folder)["train/0000"]
    expected = np.load(arrays / "train" / "image" / "0.npy").transpose(2, 0, 1) * 255
    np.testing.assert_allclose(full.splits[split]["all"].inputs[row].numpy(), expected, atol=1e-3)


def test_the_official_mat(official: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("nyuv2", {"size": [HEIGHT, WIDTH]}, official, tmp_path))
    where = by_id(data.folder)
    assert set(where) == {f"{part}/{number:04d}" for part, number in frames()}
    table = np.array([-1, *(TO_13[c - 1] for c in (1, 2, 3, 4, 5, 40, 40, 39))])
    with h5py.File(official / "nyu_depth_v2_labeled.mat") as file:
        for id, (split, row) in where.items():
            part, number = id.split("/")
            assert (split == "test") == (part == "val")
            samples = data.splits[split]["all"]
            frame = int(number) - 1
            assert np.array_equal(samples.inputs[row].numpy(), file["images"][frame].transpose(0, 2, 1))
            assert np.array_equal(samples.targets["depth"][row, 0].numpy(), file["depths"][frame].T)
            assert np.array_equal(samples.targets["segmentation"][row].numpy(), table[file["labels"][frame].T])
    forty = load_prepared(prepare("nyuv2", {"size": [HEIGHT, WIDTH], "classes": 40}, official, tmp_path))
    table = np.array([-1, 0, 1, 2, 3, 4, 39, 39, 38])  # counted from 0
    with h5py.File(official / "nyu_depth_v2_labeled.mat") as file:
        split, row = by_id(forty.folder)[id]
        stored = forty.splits[split]["all"].targets["segmentation"][row].numpy()
        assert np.array_equal(stored, table[file["labels"][frame].T])
    (official / "splits.mat").unlink()
    with pytest.raises(UserError, match=r"splits\.mat is missing beside nyu_depth_v2_labeled\.mat"):
        prepare("nyuv2", {}, official / "nyu_depth_v2_labeled.mat", tmp_path)


def test_a_frame_of_the_mat_that_cannot_be_used_is_named(official: Path, tmp_path: Path) -> None:
    with h5py.File(official / "nyu_depth_v2_labeled.mat", "a") as file:
        file["depths"][3] = 0
        file["labels"][7, 0, 0] = 9
    with pytest.raises(UserError, match=r"^image nyu_depth_v2_labeled\.mat, frame 4 has no valid depth"):
        prepare("nyuv2", SIZE, official, tmp_path)
    skipped = read_manifest(prepare("nyuv2", SIZE, official, tmp_path, skip_bad=True)).notes["skipped"]
    assert skipped["first"][1] == (
        "nyu_depth_v2_labeled.mat, frame 8 has the label 9, outside the 8 labels of classMapping40.mat"
    )
    (official / "nyu_depth_v2_labeled.mat").unlink()
    (official / "nyu_depth_v2_labeled.mat").write_bytes(b"MATLAB 7.3 MAT-file, cut")
    with pytest.raises(UserError, match=r"is truncated or not the official file"):
        prepare("nyuv2", SIZE, official, tmp_path)


def test_the_mat_gives_the_same_bytes_in_blocks_of_any_size(official: Path, tmp_path: Path) -> None:
    assert_same_bytes("nyuv2", SIZE, official, tmp_path / "out", IN_PROCESS)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ray_reads_the_mat_as_this_process_does(official: Path, tmp_path: Path) -> None:
    assert_same_bytes("nyuv2", SIZE, official, tmp_path / "out", WITH_RAY)


def test_the_split_of_a_frame_does_not_depend_on_the_others(pictures: Path, tmp_path: Path) -> None:
    before = ids_by_split(prepare("nyuv2", SIZE, pictures, tmp_path))
    for path in (pictures / "nyuv2" / "train").rglob("0005.*"):
        path.unlink()
    after = ids_by_split(prepare("nyuv2", SIZE, pictures, tmp_path))
    for split in SPLITS:
        assert before[split] - after[split] <= {"train/0005"}
        assert after[split] <= before[split]
    assert before["val"] and len(before["test"]) == TEST


def spoil_depth(path: Path) -> None:
    save(path / "depth" / "0003.png", np.zeros((HEIGHT, WIDTH), np.uint8))


def spoil_label(path: Path) -> None:
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    labels[5, 5] = 14
    save(path / "label13" / "0003.png", labels)


def spoil_size(path: Path) -> None:
    save(path / "label13" / "0003.png", np.ones((HEIGHT, WIDTH + 1), np.uint8))


def spoil_depth_size(path: Path) -> None:
    save(path / "depth" / "0003.png", np.ones((HEIGHT // 2, WIDTH // 2), np.uint8))


def spoil_image(path: Path) -> None:
    (path / "image" / "0003.jpg").write_bytes((path / "image" / "0003.jpg").read_bytes()[:-50])


def spoil_kind(path: Path) -> None:
    save(path / "depth" / "0003.png", np.ones((HEIGHT, WIDTH, 3), np.uint8))


def spoil_modality(path: Path) -> None:
    (path / "depth" / "0003.png").unlink()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoil_depth, "nyuv2/train/depth/0003.png has no valid depth: every pixel is zero or invalid"),
        (spoil_label, "nyuv2/train/label13/0003.png has the label 14, outside the 13 classes"),
        (spoil_size, "nyuv2/train/label13/0003.png is 48x65 pixels, its image 48x64"),
        (spoil_depth_size, "nyuv2/train/depth/0003.png is 24x32 pixels, its image 48x64"),
        (spoil_image, "nyuv2/train/image/0003.jpg is corrupt (image file is truncated"),
        (spoil_kind, "nyuv2/train/depth/0003.png has pixels of kind RGB, expected one number each"),
        (spoil_modality, "nyuv2/train/image/0003.jpg has no depth beside it"),
    ],
)
def test_a_frame_that_cannot_be_used_is_named_and_skipped(
    spoil: Callable[[Path], None], problem: str, pictures: Path, tmp_path: Path
) -> None:
    spoil(pictures / "nyuv2" / "train")
    with pytest.raises(UserError, match=rf"^(image|.*, the first:) {re.escape(problem)}.*--skip-bad"):
        prepare("nyuv2", SIZE, pictures, tmp_path)
    folder = prepare("nyuv2", SIZE, pictures, tmp_path, skip_bad=True)
    skipped = read_manifest(folder).notes["skipped"]
    assert skipped["count"] == 1
    assert skipped["first"][0].startswith(problem)
    assert set(by_id(folder)) == {f"{part}/{number:04d}" for part, number in frames()} - {"train/0003"}


@pytest.mark.parametrize(
    ("part", "content", "problem"),
    [
        ("image", np.full((HEIGHT, WIDTH, 3), 2.0), "has pixels outside 0..1"),
        ("image", np.zeros((3, HEIGHT, WIDTH)), "has shape [3, 48, 64], expected height x width x 3"),
        ("label", np.full((HEIGHT, WIDTH), 13.0), "has the label 13, outside -1..12"),
        ("label", np.full((HEIGHT, WIDTH), 0.5), "has the label 0.5, outside -1..12"),
        ("depth", np.zeros((HEIGHT, WIDTH, 1)), "has no valid depth"),
        ("depth", np.ones((8, 8, 1)), "is 8x8 pixels, its image 48x64"),
        ("normal", np.zeros((HEIGHT, WIDTH, 3)), "has no valid normal"),
        ("depth", np.array([[{"a": 1}]], object), "is no .npy array"),
    ],
)
def test_an_array_that_cannot_be_used_is_named(
    part: str, content: Any, problem: str, arrays: Path, tmp_path: Path
) -> None:
    np.save(arrays / "train" / part / "2.npy", content, allow_pickle=True)
    with pytest.raises(UserError, match=rf"^image train/{part}/2\.npy {re.escape(problem)}"):
        prepare("nyuv2", SIZE, arrays, tmp_path)


def test_mistakes_are_named(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"size = \[24\] should be height and width"):
        prepare("nyuv2", {"size": [24]}, pictures, tmp_path)
    with pytest.raises(UserError, match=r"has no normals; choose `normals: estimated`"):
        prepare("nyuv2", {"normals": "given"}, pictures, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty has neither train/image/\*\.jpg or \*\.npy"):
        prepare("nyuv2", {}, tmp_path / "empty", tmp_path)


# -- normals from depth ------------------------------------------------------------------------------------------------


def test_the_normal_of_a_plane_is_exact() -> None:
    height, width = 96, 128
    x = ((np.arange(width) + 0.5) / width - CAMERA[2]) / CAMERA[0]
    y = ((np.arange(height) + 0.5) / height - CAMERA[3]) / CAMERA[1]
    normal = np.array([0.3, 0.5, 0.8])  # right, up, towards the viewer
    normal /= np.linalg.norm(normal)
    rays = np.stack(np.broadcast_arrays(x, -y[:, None], -1.0))  # up is against y, the view against z
    depth = 2.0 / -np.tensordot(normal, rays, 1)
    assert (depth > 0).all()
    depth[40:50, 40:50] = np.nan
    got = estimate_normals(depth, CAMERA)
    assert np.isnan(got[:, 40:50, 40:50]).all()
    known = np.isfinite(got[0])
    assert known.mean() > 0.9
    np.testing.assert_allclose(got[:, known], np.broadcast_to(normal[:, None], (3, known.sum())), atol=1e-5)


def test_no_normal_across_a_depth_edge() -> None:
    depth = np.full((64, 64), 1.0)
    depth[:, 32:] = 2.0
    got = estimate_normals(depth, CAMERA)
    assert np.isnan(got[:, :, 31:33]).all()
    np.testing.assert_allclose(got[2, :, 4:28], 1, atol=1e-6)
    np.testing.assert_allclose(got[2, :, 36:60], 1, atol=1e-6)


def angles(estimated: np.ndarray, truth: np.ndarray, known: np.ndarray) -> np.ndarray:
    both = known & np.isfinite(estimated[0])
    assert both.sum() > 0.7 * known.sum()
    return np.degrees(np.arccos(np.clip((estimated * truth).sum(0), -1, 1)))[both]


def test_estimated_normals_agree_with_the_measured_frame(shared_data: Path) -> None:
    samples = shared_data / "nyuv2" / "nyuv2_fullres_samples.zip"
    if not samples.is_file():
        pytest.skip("no nyuv2 in the folder of real data")
    with zipfile.ZipFile(samples) as archive:
        depth = np.asarray(Image.open(BytesIO(archive.read("depth/0433.png")))) / 5000
        stored = np.asarray(Image.open(BytesIO(archive.read("normal/0433.png")))) / 127.5 - 1
    # The file has x to the right, y away from the viewer, z up.
    truth = np.stack([stored[..., 0], stored[..., 2], -stored[..., 1]])
    length = np.linalg.norm(truth, axis=0)
    known = length > 0.5
    errors = angles(
        estimate_normals(np.where(depth > 0, depth, np.nan), CAMERA), truth / np.maximum(length, 0.5), known
    )
    assert np.median(errors) < 8
    assert (errors < 30).mean() > 0.95


def test_real_frames(shared_data: Path, tmp_path: Path) -> None:
    if not (shared_data / "nyuv2").is_dir():
        pytest.skip("no nyuv2 in the folder of real data")
    options = {"limit": 12, "size": [72, 96]}
    data = load_prepared(prepare("nyuv2", options, shared_data / "nyuv2", tmp_path))
    assert [task.name for task in data.suite.tasks] == ["segmentation", "depth", "normals_estimated"]
    assert len(data.splits["test"]["all"]) == 12
    assert len(data.splits["train"]["all"]) + len(data.splits["val"]["all"]) == 12
    forty = load_prepared(prepare("nyuv2", {**options, "classes": 40}, shared_data / "nyuv2", tmp_path))
    fine = forty.splits["test"]["all"].targets["segmentation"].numpy()
    coarse = data.splits["test"]["all"].targets["segmentation"].numpy()
    assert np.array_equal(np.where(fine < 0, -1, np.array(TO_13)[fine]), coarse)
    depth = data.splits["test"]["all"].targets["depth"].numpy()
    assert 0.7 < depth.min() < depth.max() < 10
    # Floors point up, ceilings down.
    normals = data.splits["test"]["all"].targets["normals_estimated"].numpy()
    floor = np.nanmedian(normals[:, 1][coarse == CLASSES_13.index("floor")])
    assert floor > 0.8


def test_encoded_pictures_in_other_modes_become_colour(pictures: Path, tmp_path: Path) -> None:
    path = pictures / "nyuv2" / "train" / "image" / "0003.jpg"
    grey = np.asarray(Image.open(path).convert("L"))
    path.write_bytes(encoded(grey, "JPEG"))
    data = load_prepared(prepare("nyuv2", SIZE, pictures, tmp_path))
    split, row = by_id(data.folder)["train/0003"]
    image = data.splits[split]["all"].inputs[row]
    assert (image[0] == image[1]).all()
