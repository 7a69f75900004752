"""The common parts of the dense sets: their tasks, the parts of a sample, and the usual `.npy` layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import carve_validation
from pipelines._formats.hub import HubFolder
from pipelines._images.indexed_images import DecodedColumn, Files, ImagePipeline
from pipelines._images.pixels import (
    BYTES,
    BadImage,
    Size,
    array,
    classes,
    depth,
    is_array,
    nearest,
    open_image,
    same_size,
    unit_normals,
    values,
)
from pipelines._sources.file_store import Store

NORMAL_METRICS = ("angle_mean", "angle_median", "within_11.25", "within_22.5", "within_30")
# Metrics that enter Δ and η in the tables of the thesis' chapter 5.
SEGMENTATION_AND_DEPTH = ("miou", "pixel_accuracy", "abs_err", "rel_err")


def segmentation_task(classes: Sequence[str], name: str = "segmentation") -> Task:
    """Return a task of one class per pixel, trained by cross-entropy."""
    return Task(
        name=name,
        loss="cross_entropy",
        outputs=len(classes),
        metrics=("miou", "pixel_accuracy"),
        classes=tuple(classes),
    )


def depth_task() -> Task:
    """Return the task of depth in metres, trained by L1."""
    return Task(name="depth", loss="l1", outputs=1, metrics=("abs_err", "rel_err", "rmse"))


def normals_task(name: str = "normals", more: tuple[str, ...] = ()) -> Task:
    """Return a task of surface normals, trained by the cosine; `more` adds metrics."""
    return Task(name=name, loss="cosine", outputs=3, metrics=(*NORMAL_METRICS, *more))


def map_task(name: str) -> Task:
    """Return a task that regresses a map of numbers, such as keypoints or edges."""
    return Task(name=name, loss="l1", outputs=1, metrics=("mae",))


def image_suite(name: str, tasks: Iterable[Task], size: Size) -> TaskSuite:
    """Return a suite of tasks that share colour images of this height and width."""
    return TaskSuite(
        name=name, tasks=tuple(tasks), inputs="shared", input_kind="image", input_shape=(3, size[0], size[1])
    )


def columns_of(suite: TaskSuite) -> dict[str, DecodedColumn]:
    """Return the decoded columns of a dense suite: class maps have no channel, other maps have theirs."""
    _, height, width = suite.input_shape
    columns = {"input": DecodedColumn("uint8", suite.input_shape)}
    for task in suite.tasks:
        if task.loss == "cross_entropy":
            columns[f"target.{task.name}"] = DecodedColumn("int8" if task.outputs <= 127 else "int16", (height, width))
        else:
            columns[f"target.{task.name}"] = DecodedColumn("float32", (task.outputs, height, width))
    return columns


class DensePipeline(ImagePipeline):
    """Pipeline of images with maps as targets, whose official validation part serves as test."""

    size: tuple[int, ...] = knob((0, 0), help="height and width in pixels")
    validation: float = knob(
        0.1, low=0.0, high=0.9, open_low=True, help="share of train held out for validation, by hash"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.size) != 2 or not all(isinstance(n, int) and 8 <= n <= 4096 for n in self.size):
            raise UserError(f"{self.name}: size = {list(self.size)} should be height and width, 8 to 4096 pixels each")

    @property
    def height_width(self) -> Size:
        """The height and the width in pixels."""
        return self.size[0], self.size[1]

    def split_of(self, part: str, id: str) -> str:
        """Return the split of a sample: the part `train` gives train and val, all others test."""
        return carve_validation(id, self.validation, self.name) if part == "train" else "test"

    def rows(
        self, store: Store, samples: Mapping[tuple[str, str], Mapping[str, str]], parts: Sequence[str]
    ) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """Return the rows of the index, and a problem for each sample that lacks a modality.

        Args:
            store: The files of the source.
            samples: (part of the source, id) -> modality -> file name.
        """
        rows, problems = [], []
        for source_part in sorted({part for part, _ in samples}):
            for id in self.limited(sorted(id for part, id in samples if part == source_part)):
                files = samples[source_part, id]
                missing = [part for part in parts if part not in files]
                if missing:
                    shown_name = next(iter(files.values()), id)
                    problems.append((shown_name, f"has no {' and no '.join(missing)} beside it"))
                    continue

                locations = {part: store.location(files[part]) for part in parts}
                rows.append({"id": id, "split": self.split_of(source_part, id), **locations})
        return rows, problems

    def hub_rows(self, hub: HubFolder, columns: Mapping[str, str], test: str) -> list[dict[str, Any]]:
        """Return the rows of the index for a set of the `datasets` library.

        Args:
            columns: modality -> column.
            test: The split, val or test, that becomes our test; if the set lacks it, the other one does.
        """
        parts, rows = hub.split_names, []
        fallback = {"val": "test", "test": "val"}[test]
        test_split = parts.get(test) or parts.get(fallback)
        if test_split is None:
            raise UserError(f"{self.name}: {hub.root} has neither val nor test beside {parts['train']}")

        for part, split in (("train", parts["train"]), ("val", test_split)):
            cells = {modality: hub.cells(split, column) for modality, column in columns.items()}
            for row in range(self.limit or len(cells["image"]))[: len(cells["image"])]:
                id = f"{part}/{row:06d}"
                rows.append(
                    {
                        "id": id,
                        "split": self.split_of(part, id),
                        **{modality: cells[modality][row] for modality in columns},
                    }
                )
        return rows


# -- the .npy layout: {train,val}/{image,label,depth,normal}/<n>.npy, as MTAN and LibMTL have it -----------------------


def npy_labels(files: Files, classes: int, before: Size, size: Size) -> np.ndarray:
    """Return the class map [*size] of an array [H, W] of numbers, -1 for void."""
    labels = array(files("label"), (2, 3))
    labels = labels[..., 0] if labels.ndim == 3 and labels.shape[2] == 1 else labels
    same_size(labels.shape, before)
    rounded = np.rint(labels)
    if not np.array_equal(rounded, labels) or rounded.min() < -1 or rounded.max() >= classes:
        bad_label = labels[(rounded != labels) | (rounded < -1) | (rounded >= classes)].flat[0]
        raise BadImage(f"has the label {bad_label:g}, outside -1..{classes - 1}")
    return nearest(rounded.astype(np.int16), size)


def npy_depth(files: Files, before: Size) -> np.ndarray:
    """Return the checked depth in float32 [H, W] at its own size, NaN where unknown.

    The file has [H, W] or [H, W, 1], 0 where unknown.
    """
    values = array(files("depth"), (2, 3))
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    same_size(values.shape, before)
    return depth(values, np.isfinite(values) & (values > 0))


def npy_normals(files: Files, before: Size, size: Size) -> np.ndarray:
    """Return normals in float32 [3, *size] from [H, W, 3], zeros where unknown."""
    vectors = array(files("normal"), (3,))
    same_size(vectors.shape[:2], before)
    if vectors.shape[2] != 3:
        raise BadImage(f"has shape {list(vectors.shape)}, expected height x width x 3")
    unit = unit_normals(vectors, np.linalg.norm(vectors, axis=-1) > 1e-3)
    return nearest(unit, size).transpose(2, 0, 1)


# -- cells and files that may be arrays or pictures --------------------------------------------------------------------


def any_labels(files: Files, table: np.ndarray, count: int, before: Size, size: Size) -> np.ndarray:
    """Return the class map of a label file of any supported kind.

    Args:
        table: Stored label -> class, for pictures; arrays hold classes (-1: void).
        before: Height and width of the sample's image.
        size: Height and width of the result.
    """
    raw = files("label")
    if is_array(raw):
        return npy_labels(files, count, before, size)

    stored = values(raw, BYTES, "8 bits")
    same_size(stored.shape, before)
    return nearest(classes(stored.astype(np.int64), table, f"the {count} classes"), size)


def any_depth(files: Files, before: Size) -> np.ndarray:
    """Return depth in metres [H, W] at its own size, NaN where unknown.

    Arrays and pictures of floats hold metres, pictures of 16 bits millimetres; 8 bits v mean (v + 0.5) / 25.5 m.
    """
    raw = files("depth")
    if is_array(raw):
        return npy_depth(files, before)

    image = open_image(raw)
    stored = np.asarray(image)
    if image.mode == "F":
        metres = stored
    elif image.mode in BYTES:
        metres = np.where(stored > 0, (stored + 0.5) / 25.5, 0)
    elif image.mode.startswith("I"):
        metres = stored / 1000
    else:
        raise BadImage(f"has pixels of kind {image.mode}, expected one number each")

    same_size(metres.shape, before)
    return depth(metres, np.isfinite(metres) & (metres > 0))


def any_normals(files: Files, before: Size, size: Size) -> np.ndarray:
    """Return normals in float32 [3, *size] from an array, or from a picture as v / 127.5 - 1."""
    raw = files("normal")
    if is_array(raw):
        return npy_normals(files, before, size)
    vectors = values(raw, ("RGB",), "three times 8 bits") / 127.5 - 1
    same_size(vectors.shape[:2], before)
    unit = unit_normals(vectors, np.linalg.norm(vectors, axis=-1) > 0.5)
    return nearest(unit, size).transpose(2, 0, 1)
