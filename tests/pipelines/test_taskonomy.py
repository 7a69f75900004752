from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_sets import (
    IN_PROCESS,
    WITH_RAY,
    assert_same_bytes,
    assert_statistics_of_train,
    by_id,
    ids_by_split,
    picture,
    save,
)
from PIL import Image

from mtlscale.data.prepared import load_prepared, read_manifest
from mtlscale.execution.prepare import prepare
from mtlscale.spec import SPLITS, UserError
from pipelines.taskonomy import BUILDINGS, DOMAINS

SIDE = 64  # the real ones have 512
SIZE = {"size": [32, 32], "validation": 0.3}
VIEWS = [(point, view) for point in range(6) for view in range(2)]


def views_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    labels = np.kron(rng.integers(0, 18, (8, 8)), np.ones((8, 8), int)).astype(np.uint8)
    depth = rng.integers(300, 5000, (SIDE, SIDE)).astype(np.uint16)
    depth[:4], depth[4:6] = 65535, 0
    normal = rng.choice(np.array([[255, 127, 127], [127, 0, 127], [127, 127, 255]], np.uint8), (SIDE, SIDE))
    normal[-4:] = 127
    keypoints, edges = (rng.integers(0, 65536, (SIDE, SIDE)).astype(np.uint16) for _ in range(2))
    return {
        "rgb": picture(rng, SIDE, SIDE),
        "segment_semantic": labels,
        "depth_zbuffer": depth,
        "keypoints2d": keypoints,
        "edge_texture": edges,
        "normal": normal,
    }


def path_of(root: Path, building: str, domain: str, point: int, view: int) -> Path:
    return root / building / domain / f"point_{point}_view_{view}_domain_{domain}.png"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The five buildings, and a domain and a building nobody asked for."""
    root, rng = tmp_path / "taskonomy", np.random.default_rng(0)
    for building in (*BUILDINGS, "wiconisco"):
        for point, view in VIEWS:
            for domain, pixels in views_of(rng).items():
                save(path_of(root, building, domain, point, view), pixels)
        save(path_of(root, building, "edge_occlusion", 0, 0), np.zeros((SIDE, SIDE), np.uint16))
    return root


def all_ids(*left_out: str) -> set[str]:
    ids = {f"{building}/point_{point}_view_{view}" for building in BUILDINGS for point, view in VIEWS}
    return ids - set(left_out)


def picked(array: np.ndarray) -> np.ndarray:
    return array[1::2, 1::2]


def test_five_tasks_in_their_units(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("taskonomy", SIZE, source, tmp_path))
    tasks = {task.name: task for task in data.suite.tasks}
    assert list(tasks) == ["segmentation", "depth", "keypoints", "edges", "normals"]
    assert tasks["segmentation"].outputs == len(tasks["segmentation"].classes) == 17
    assert tasks["keypoints"].loss == "l1" and tasks["keypoints"].metrics[0] == "mae"
    assert data.manifest.target_shapes["keypoints"] == (1, 32, 32)
    where = by_id(data.folder)
    assert set(where) == all_ids()
    for id in sorted(where)[::7]:
        split, row = where[id]
        building, stem = id.split("/")
        point, view = (int(part) for part in stem.split("_")[1::2])
        stored = {d: np.asarray(Image.open(path_of(source, building, d, point, view))) for d in DOMAINS}
        targets = {name: target[row].numpy() for name, target in data.splits[split]["all"].targets.items()}
        assert np.array_equal(targets["segmentation"], picked(stored["segment_semantic"]).astype(int) - 1)
        zbuffer = picked(stored["depth_zbuffer"]).astype(float)
        absent = (zbuffer == 0) | (zbuffer == 65535)
        np.testing.assert_array_equal(targets["depth"][0], np.where(absent, np.nan, zbuffer / 512))
        normal = picked(stored["normal"])
        gone = absent | (normal == 127).all(2)
        unit = np.where(gone[..., None], np.nan, np.sign(normal / 127.5 - 1) * (normal != 127))
        np.testing.assert_allclose(targets["normals"].transpose(1, 2, 0), unit, atol=0.01)
        for domain, task in (("keypoints2d", "keypoints"), ("edge_texture", "edges")):
            part = Image.fromarray((stored[domain] / 65535).astype(np.float32))
            expected = np.asarray(part.resize((32, 32), Image.Resampling.BILINEAR))
            np.testing.assert_allclose(targets[task][0], expected, atol=1e-6)
            assert 0 <= targets[task].min() <= targets[task].max() <= 1
        assert absent.any() and gone.any()
    assert_statistics_of_train(data)


def test_the_unscaled_maps_are_the_stored_ones(source: Path, tmp_path: Path) -> None:
    options = {"size": [SIDE, SIDE], "validation": 0.3}
    data = load_prepared(prepare("taskonomy", options, source, tmp_path))
    split, row = by_id(data.folder)["onaga/point_2_view_1"]
    stored = np.asarray(Image.open(path_of(source, "onaga", "keypoints2d", 2, 1)))
    np.testing.assert_allclose(
        data.splits[split]["all"].targets["keypoints"][row, 0].numpy(), stored / 65535, atol=1e-7
    )


def test_no_point_is_in_two_splits(source: Path, tmp_path: Path) -> None:
    ids = ids_by_split(prepare("taskonomy", SIZE, source, tmp_path))
    points = [{id.rpartition("_view_")[0] for id in ids[split]} for split in SPLITS]
    assert all(points)
    assert not points[0] & points[1] | points[0] & points[2] | points[1] & points[2]


def test_whole_buildings_for_test(source: Path, tmp_path: Path) -> None:
    ids = ids_by_split(prepare("taskonomy", {**SIZE, "test_buildings": ["onaga", "noxapater"]}, source, tmp_path))
    assert {id.split("/")[0] for id in ids["test"]} == {"onaga", "noxapater"}
    assert {id.split("/")[0] for id in ids["train"] | ids["val"]} == set(BUILDINGS) - {"onaga", "noxapater"}
    with pytest.raises(UserError, match="test_buildings has 'wiconisco', which is none of buildings"):
        prepare("taskonomy", {"test_buildings": ["wiconisco"]}, source, tmp_path)


def test_domain_before_building_is_the_same_set(source: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned"
    for path in source.rglob("*.png"):
        building, domain, name = path.relative_to(source).parts
        target = turned / domain / building / name.replace("segment_semantic", "segmentsemantic")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(path)
    one, other = (read_manifest(prepare("taskonomy", SIZE, path, tmp_path)) for path in (source, turned))
    assert one.fingerprint == other.fingerprint


def test_twice_and_in_blocks_of_any_size_the_same_bytes(source: Path, tmp_path: Path) -> None:
    assert_same_bytes("taskonomy", SIZE, source, tmp_path / "out", IN_PROCESS)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ray_gives_the_bytes_of_this_process(source: Path, tmp_path: Path) -> None:
    assert_same_bytes("taskonomy", SIZE, source, tmp_path / "out", WITH_RAY)


@pytest.mark.parametrize("domain", ["", "normal"])
def test_an_empty_building_is_named(source: Path, tmp_path: Path, domain: str) -> None:
    for path in (source / "noxapater" / domain).rglob("*.png"):
        path.unlink()
    with pytest.raises(UserError, match=rf"building noxapater has no {domain or 'rgb'} image in .*`buildings`$"):
        prepare("taskonomy", SIZE, source, tmp_path)
    kept = [building for building in BUILDINGS if building != "noxapater"]
    folder = prepare("taskonomy", {**SIZE, "buildings": kept}, source, tmp_path)
    assert {id.split("/")[0] for id in by_id(folder)} == set(kept)


def spoil(domain: str, pixels: np.ndarray | None) -> Callable[[Path], None]:
    def do(root: Path) -> None:
        path = path_of(root, "onaga", domain, 3, 1)
        if pixels is None:
            path.unlink()
        else:
            save(path, pixels)

    return do


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (spoil("depth_zbuffer", np.full((SIDE, SIDE), 65535, np.uint16)), r"depth_zbuffer\.png has no valid depth"),
        (spoil("depth_zbuffer", np.zeros((SIDE, SIDE), np.uint16)), r"depth_zbuffer\.png has no valid depth"),
        (spoil("segment_semantic", np.full((SIDE, SIDE), 18, np.uint8)), r"has the label 18, outside the 17 classes"),
        (spoil("normal", np.full((SIDE, SIDE, 3), 127, np.uint8)), r"normal\.png has no valid normal"),
        (spoil("normal", np.zeros((SIDE, SIDE), np.uint8)), r"has pixels of kind L, expected three times 8 bits"),
        (spoil("edge_texture", np.zeros((8, 8), np.uint16)), r"edge_texture\.png is 8x8 pixels, its image 64x64"),
        (spoil("keypoints2d", None), r"point_3_view_1.* has no keypoints2d beside it"),
    ],
)
def test_a_view_that_cannot_be_used_is_named_and_skipped(
    change: Callable[[Path], None], problem: str, source: Path, tmp_path: Path
) -> None:
    change(source)
    with pytest.raises(UserError, match=rf"^1 images cannot be used.*onaga.*{problem}.*--skip-bad$"):
        prepare("taskonomy", SIZE, source, tmp_path)
    folder = prepare("taskonomy", SIZE, source, tmp_path, skip_bad=True)
    assert set(by_id(folder)) == all_ids("onaga/point_3_view_1")
