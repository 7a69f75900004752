import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_sets import DATA_SETS, HAND, HEAD, annotation
from image_sets import (
    assert_statistics_of_train,
    by_id,
    save,
)
from PIL import Image
from scipy.io import loadmat, savemat

from mtlscale.config import UserError
from mtlscale.data.readers.prepared import PreparedData, load_prepared, read_manifest
from mtlscale.execution.preparing.prepare import prepare

SIZE = {"size": [20, 30], "validation": 0.3}
HEIGHT, WIDTH = 40, 60
TRAIN = [f"2008_{number:06d}" for number in range(2, 20)]
VAL = [f"2010_{number:06d}" for number in range(1, 5)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return DATA_SETS["pascal_context"].write(tmp_path / "pascal_context")


def targets(data: PreparedData, id: str) -> dict[str, np.ndarray]:
    split, row = by_id(data.folder)[id]
    return {name: target[row].numpy() for name, target in data.splits[split]["all"].targets.items()}


def picked(array: np.ndarray) -> np.ndarray:
    return array[1::2, 1::2]


def test_five_tasks(source: Path, tmp_path: Path) -> None:
    data = load_prepared(prepare("pascal_context", SIZE, source, tmp_path))
    tasks = {task.name: task for task in data.suite.tasks}
    assert {name: task.outputs for name, task in tasks.items()} == {
        "segmentation": 21,
        "parts": 7,
        "saliency": 2,
        "normals": 3,
        "edges": 1,
    }
    assert tasks["saliency"].metrics == ("miou", "max_f")
    where = by_id(data.folder)
    assert set(where) == {*TRAIN, *VAL}
    assert all((split == "test") == (id in VAL) for id, (split, _) in where.items())
    for id in (*TRAIN, *VAL):
        got, number = targets(data, id), int(id[-6:])
        folder = "VOC12" if number % 2 else "pascal-context"
        stored = picked(np.asarray(Image.open(source / "semseg" / folder / f"{id}.png"))).astype(int)
        assert np.array_equal(got["segmentation"], np.where(stored == 255, -1, stored))
        parts = HEAD * 1 + HAND * 4 if number % 3 else np.full((HEIGHT, WIDTH), -1)
        assert np.array_equal(got["parts"], picked(parts))
        saliency = picked(np.asarray(Image.open(source / "sal_distill" / f"{id}.png")))
        assert np.array_equal(got["saliency"], saliency / 255 > 0.5)
        normal = picked(np.asarray(Image.open(source / "normals_distill" / f"{id}.png")))
        unit = np.where((normal == 127).all(2)[..., None], np.nan, np.sign(normal / 127.5 - 1) * (normal != 127))
        np.testing.assert_allclose(got["normals"].transpose(1, 2, 0), unit, atol=0.01)
    assert data.manifest.counts["parts"]["train"] < data.manifest.counts["segmentation"]["train"]
    assert data.manifest.notes == {"normals_on": "all pixels"}
    assert_statistics_of_train(data)


def test_edges_lie_where_the_label_changes(source: Path, tmp_path: Path) -> None:
    options = {"size": [HEIGHT, WIDTH], "validation": 0.3, "tasks": ["edges"]}
    data = load_prepared(prepare("pascal_context", options, source, tmp_path))
    id = TRAIN[3]
    labels = loadmat(source / "pascal-context" / "trainval" / f"{id}.mat")["LabelMap"].astype(int)
    expected = np.zeros((HEIGHT, WIDTH))
    for row in range(HEIGHT):
        for column in range(WIDTH):
            right, below = labels[row, column + 1 : column + 2], labels[row + 1 : row + 2, column]
            expected[row, column] = any(value != labels[row, column] for value in (*right, *below))
    assert 0 < expected.mean() < 0.3
    assert np.array_equal(targets(data, id)["edges"][0], expected)


def test_normals_count_on_shared_classes_where_these_are_listed(source: Path, tmp_path: Path) -> None:
    (source / "json").mkdir()
    (source / "json" / "nyu_classes.json").write_text(json.dumps(["wall", "floor", "unknown"]))
    (source / "json" / "context_classes.json").write_text(json.dumps({"wall": 360, "unknown": 7, "tvmonitor": 8}))
    id = TRAIN[5]
    labels = np.kron([[360, 7], [8, 9]], np.ones((HEIGHT // 2, WIDTH // 2), int)).astype(np.uint16)
    savemat(source / "pascal-context" / "trainval" / f"{id}.mat", {"LabelMap": labels})
    save(source / "normals_distill" / f"{id}.png", np.full((HEIGHT, WIDTH, 3), (127, 255, 127), np.uint8))
    folder = prepare("pascal_context", {**SIZE, "tasks": ["segmentation", "normals"]}, source, tmp_path)
    assert read_manifest(folder).notes == {"normals_on": "shared classes"}
    valid = np.isfinite(targets(load_prepared(folder), id)["normals"]).all(0)
    assert np.array_equal(valid, picked(np.isin(labels, [360, 8])))


def cut_mat(root: Path) -> None:
    path = root / "human_parts" / f"{TRAIN[1]}.mat"
    path.write_bytes(path.read_bytes()[:250])


def odd_mat(root: Path) -> None:
    savemat(root / "human_parts" / f"{TRAIN[1]}.mat", {"else": 1})


def odd_part(root: Path) -> None:
    savemat(root / "human_parts" / f"{TRAIN[1]}.mat", annotation((15, {"wing": HEAD})))


def no_label_map(root: Path) -> None:
    savemat(root / "pascal-context" / "trainval" / f"{TRAIN[1]}.mat", {"LabelMap": np.ones((3, 4))})


def odd_label(root: Path) -> None:
    save(root / "semseg" / "VOC12" / f"{TRAIN[1]}.png", np.full((HEIGHT, WIDTH), 21, np.uint8))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (cut_mat, r"human_parts/2008_000003\.mat is corrupt or no \.mat file"),
        (odd_mat, r"human_parts/2008_000003\.mat is no annotation of PASCAL-Part"),
        (odd_part, r"human_parts/2008_000003\.mat has the part wing"),
        (no_label_map, r"trainval/2008_000003\.mat is 3x4 pixels, its image 40x60"),
        (odd_label, r"semseg/VOC12/2008_000003\.png has the label 21, outside the 21 classes"),
    ],
)
def test_an_image_that_cannot_be_used_is_named_and_skipped(
    change: Callable[[Path], None], problem: str, source: Path, tmp_path: Path
) -> None:
    change(source)
    with pytest.raises(UserError, match=rf"^(image|.*, the first:) .*{problem}.*--skip-bad"):
        prepare("pascal_context", SIZE, source, tmp_path)
    folder = prepare("pascal_context", SIZE, source, tmp_path, skip_bad=True)
    assert set(by_id(folder)) == {*TRAIN, *VAL} - {TRAIN[1]}


def test_lists_that_disagree_are_named(source: Path, tmp_path: Path) -> None:
    lists = source / "ImageSets" / "Context"
    with pytest.raises(UserError, match="tasks has 'depth', which is none of segmentation, parts"):
        prepare("pascal_context", {"tasks": ["depth"]}, source, tmp_path)
    (lists / "val.txt").write_text("\n".join([*VAL, TRAIN[0]]))
    with pytest.raises(UserError, match=rf"{TRAIN[0]} is in both lists"):
        prepare("pascal_context", SIZE, source, tmp_path)
    (lists / "val.txt").write_text("\n".join([*VAL, "2011_000001"]))
    with pytest.raises(UserError, match=r"2011_000001 has no JPEGImages and no semseg .* beside it"):
        prepare("pascal_context", SIZE, source, tmp_path)
    (lists / "val.txt").unlink()
    with pytest.raises(UserError, match=r"ImageSets/Context/val\.txt is missing"):
        prepare("pascal_context", SIZE, source, tmp_path)
