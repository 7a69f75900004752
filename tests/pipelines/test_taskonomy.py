import gzip
import shutil
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from data_sets import DATA_SETS
from fake_sets import FakeSet, each
from image_sets import (
    IN_PROCESS,
    assert_same_bytes,
    assert_statistics_of_train,
    by_id,
    ids_by_split,
    save,
)
from in_process import prepare
from PIL import Image

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from pipelines.image.taskonomy import BUILDINGS, DOMAINS, Taskonomy

SIZE = {"size": [32, 32], "validation": 0.3}
SIDE = 64
VIEWS = [(point, view) for point in range(6) for view in range(2)]


def path_of(root: Path, building: str, domain: str, point: int, view: int) -> Path:
    return root / building / domain / f"point_{point}_view_{view}_domain_{domain}.png"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return DATA_SETS["taskonomy"].write(tmp_path_factory.mktemp("drawn") / "taskonomy")


@pytest.fixture
def source(drawn: Path, tmp_path: Path) -> Path:
    """A copy, for tests that change it."""
    return shutil.copytree(drawn, tmp_path / drawn.name)


def tarred(source: Path, root: Path, name: str = "{building}_{domain}.tar", inside: str = "{domain}") -> Path:
    """The same files as they are offered: a tar for every building and domain."""
    root.mkdir()
    for building in source.iterdir():
        for domain in building.iterdir():
            names = {"building": building.name, "domain": domain.name}
            with tarfile.open(root / name.format(**names), "w") as tar:
                for path in sorted(domain.iterdir()):
                    tar.add(path, f"{inside.format(**names)}/{path.name}".lstrip("/"))
    return root


def write_list(root: Path, name: str, parts: dict[str, tuple[str, ...]]) -> None:
    """An official list, one building of which is in no part."""
    rows = ["id,train,val,test", "nowhere,0,0,0"]
    rows += [
        f"{building},{','.join(str(int(part == p)) for p in SPLITS)}" for part in parts for building in parts[part]
    ]
    (root / f"train_val_test_{name}.csv").write_text("\r\n".join(rows) + "\r\n")


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


def test_default_options_leave_something_for_every_split(tmp_path: Path) -> None:
    """Validation was once drawn inside the interval of test, and so was empty."""
    files = DATA_SETS["taskonomy"].files
    assert files is not None
    root = FakeSet(each(building=BUILDINGS, point=range(24), view=[0]), files.files).write(tmp_path / "taskonomy")
    ids = ids_by_split(prepare("taskonomy", {"size": [8, 8]}, root, tmp_path))
    assert sum(map(len, ids.values())) == 120
    assert len(ids["test"]) == pytest.approx(120 * 3794 / 17080, abs=12)
    assert len(ids["val"]) == pytest.approx((120 - len(ids["test"])) * 0.1, abs=7)


def test_the_share_of_validation_is_one_of_what_test_leaves() -> None:
    pipeline = Taskonomy(validation=0.25)
    splits = Counter(pipeline.split_of("", f"onaga/point_{point}_view_0") for point in range(20_000))
    assert splits["test"] / 20_000 == pytest.approx(3794 / 17080, abs=0.01)
    assert splits["val"] / (20_000 - splits["test"]) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        pytest.param("{building}_{domain}.tar", "{domain}", marks=pytest.mark.slow),
        ("{building}_{domain}.tar", ""),
        pytest.param("{domain}__taskonomy__{building}.tar", "", marks=pytest.mark.slow),
        ("{domain}__taskonomy__{building}.tar", "{domain}/taskonomy/{building}"),
    ],
)
def test_the_official_tars_are_read_where_they_lie(source: Path, tmp_path: Path, name: str, inside: str) -> None:
    tars = tarred(source, tmp_path / "tars", name, inside)
    # What no option asks for is not even opened.
    for path in (*tars.glob("*wiconisco*"), *tars.glob("*edge_occlusion*")):
        path.write_bytes(b"no tar")
    one, other = (read_manifest(prepare("taskonomy", SIZE, path, tmp_path)) for path in (source, tars))
    assert one.fingerprint == other.fingerprint


def test_tars_give_the_same_bytes_in_blocks_of_any_size(source: Path, tmp_path: Path) -> None:
    assert_same_bytes("taskonomy", SIZE, tarred(source, tmp_path / "tars"), tmp_path / "out", IN_PROCESS)


def cut(tar: Path) -> None:
    tar.write_bytes(tar.read_bytes()[: tar.stat().st_size // 2])


def compress(tar: Path) -> None:
    tar.write_bytes(gzip.compress(tar.read_bytes()))


@pytest.mark.parametrize("damage", [cut, compress])
def test_a_damaged_tar_is_named(source: Path, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    tars = tarred(source, tmp_path / "tars")
    damage(tars / "onaga_rgb.tar")
    with pytest.raises(UserError, match=r"onaga_rgb\.tar is (truncated or is no tar or zip archive|a compressed tar)"):
        prepare("taskonomy", SIZE, tars, tmp_path)


def test_an_unsafe_tar_is_refused(source: Path, tmp_path: Path) -> None:
    tars = tarred(source, tmp_path / "tars")
    with tarfile.open(tars / "onaga_rgb.tar", "a") as tar:
        tar.addfile(tarfile.TarInfo("../point_9_view_9_domain_rgb.png"), BytesIO())
    with pytest.raises(UserError, match=r"unsafe member '\.\./point_9"):
        prepare("taskonomy", SIZE, tars, tmp_path)


TINY = {"train": ("onaga", "noxapater", "wiconisco"), "val": ("mifflinburg",), "test": ("allensville",)}


@pytest.mark.parametrize("pack", [False, True])
def test_an_official_list_says_what_a_building_is_for(source: Path, tmp_path: Path, pack: bool) -> None:
    root = tarred(source, tmp_path / "tars") if pack else source
    write_list(root, "tiny", TINY)
    write_list(root, "medium", {"train": ("onaga",)})
    ids = ids_by_split(prepare("taskonomy", {"size": [32, 32], "split": "tiny"}, root, tmp_path))
    assert {part: {id.split("/")[0] for id in ids[part]} for part in SPLITS} == {p: set(b) for p, b in TINY.items()}
    assert all(len(ids[part]) == len(TINY[part]) * len(VIEWS) for part in SPLITS)
    buildings = ["onaga", "mifflinburg", "allensville"]
    some = {"size": [32, 32], "split": "tiny", "buildings": buildings}
    assert {id.split("/")[0] for id in by_id(prepare("taskonomy", some, root, tmp_path))} == set(buildings)


def test_the_lists_may_lie_in_their_zip(source: Path, tmp_path: Path) -> None:
    write_list(source, "tiny", TINY)
    with zipfile.ZipFile(source / "splits_taskonomy.zip", "w") as archive:
        archive.write(source / "train_val_test_tiny.csv", "train_val_test_tiny.csv")
    (source / "train_val_test_tiny.csv").unlink()
    ids = ids_by_split(prepare("taskonomy", {"size": [32, 32], "split": "tiny"}, source, tmp_path))
    assert {id.split("/")[0] for id in ids["val"]} == {"mifflinburg"}


@pytest.mark.parametrize(
    ("options", "lines", "message"),
    [
        ({"split": "medium"}, "", r"train_val_test_medium\.csv is missing in .*splits_taskonomy\.zip"),
        ({"split": "tiny"}, "building,split\nonaga,train\n", r"tiny\.csv should begin with id,train,val,test"),
        ({"split": "tiny"}, "id,train,val,test\nonaga,1,1,0\n", r"line 2 of .*tiny\.csv has onaga in train and val"),
        ({"split": "tiny"}, "id,train,val,test\nbeechwood,1,0,0\n", "building beechwood has no rgb image"),
        ({"split": "tiny", "buildings": ["onaga"]}, "id,train,val,test\nx,1,0,0\n", "csv does not list 'onaga'"),
        ({"split": "tiny", "val_buildings": ["onaga"]}, "", "says what each building is for; drop val_buildings"),
        ({"val_buildings": ["wiconisco"]}, "", "val_buildings has 'wiconisco', which is none of buildings"),
        ({"val_buildings": ["onaga"], "test_buildings": ["onaga"]}, "", "'onaga' is in test_buildings and in val_b"),
    ],
)
def test_a_list_that_does_not_fit_is_named(
    source: Path, tmp_path: Path, options: dict[str, object], lines: str, message: str
) -> None:
    if lines:
        (source / "train_val_test_tiny.csv").write_text(lines)
    with pytest.raises(UserError, match=rf"^taskonomy: .*{message}"):
        prepare("taskonomy", options, source, tmp_path)


def test_whole_buildings_for_validation(source: Path, tmp_path: Path) -> None:
    options = {"size": [32, 32], "val_buildings": ["onaga"]}
    ids = ids_by_split(prepare("taskonomy", {**options, "test_buildings": ["noxapater"]}, source, tmp_path))
    assert {id.split("/")[0] for id in ids["val"]} == {"onaga"}
    assert {id.split("/")[0] for id in ids["test"]} == {"noxapater"}
    assert len(ids["train"]) == 3 * len(VIEWS)
    by_hash = ids_by_split(prepare("taskonomy", options, source, tmp_path))
    assert {id.split("/")[0] for id in by_hash["val"]} == {"onaga"}
    assert "onaga" not in {id.split("/")[0] for id in by_hash["test"] | by_hash["train"]}


def test_an_edited_list_is_a_new_source(source: Path) -> None:
    pipeline = Taskonomy(split="tiny")
    write_list(source, "tiny", TINY)
    before = pipeline.source_fingerprint(source)
    write_list(source, "tiny", {**TINY, "val": TINY["test"], "test": TINY["val"]})
    assert pipeline.source_fingerprint(source) != before


def test_domain_before_building_is_the_same_set(source: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned"
    for path in source.rglob("*.png"):
        building, domain, name = path.relative_to(source).parts
        target = turned / domain / building / name.replace("segment_semantic", "segmentsemantic")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(path)
    one, other = (read_manifest(prepare("taskonomy", SIZE, path, tmp_path)) for path in (source, turned))
    assert one.fingerprint == other.fingerprint


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
    with pytest.raises(UserError, match=rf"^(image|.*, the first:) .*onaga.*{problem}.*--skip-bad"):
        prepare("taskonomy", SIZE, source, tmp_path)
    folder = prepare("taskonomy", SIZE, source, tmp_path, skip_bad=True)
    assert set(by_id(folder)) == all_ids("onaga/point_3_view_1")
