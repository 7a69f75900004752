"""What the dense sets share: their tasks, the parts of a sample, and the `.npy` layout in common use."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mtlscale.data.splits import carve_validation
from mtlscale.spec import Task, TaskSuite, UserError, knob
from pipelines._hub import HubFolder
from pipelines._image_set import Column, Files, ImagePipeline
from pipelines._pixels import (
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
from pipelines._store import Store

NORMAL_METRICS = ("angle_mean", "angle_median", "within_11.25", "within_22.5", "within_30")
# What enters Δ and η in the tables of the thesis' chapter 5.
SEGMENTATION_AND_DEPTH = ("miou", "pixel_accuracy", "abs_err", "rel_err")


def segmentation_task(classes: Sequence[str], name: str = "segmentation") -> Task:
    return Task(
        name=name,
        loss="cross_entropy",
        outputs=len(classes),
        metrics=("miou", "pixel_accuracy"),
        classes=tuple(classes),
    )


def depth_task() -> Task:
    return Task(name="depth", loss="l1", outputs=1, metrics=("abs_err", "rel_err", "rmse"))


def normals_task(name: str = "normals", more: tuple[str, ...] = ()) -> Task:
    return Task(name=name, loss="cosine", outputs=3, metrics=(*NORMAL_METRICS, *more))


def map_task(name: str) -> Task:
    """A map of numbers to regress: keypoints, edges."""
    return Task(name=name, loss="l1", outputs=1, metrics=("mae",))


def image_suite(name: str, tasks: Iterable[Task], size: Size) -> TaskSuite:
    return TaskSuite(
        name=name, tasks=tuple(tasks), inputs="shared", input_kind="image", input_shape=(3, size[0], size[1])
    )


def columns_of(suite: TaskSuite) -> dict[str, Column]:
    """The decoded columns of a dense suite: class maps without a channel, everything else with its channels."""
    _, height, width = suite.input_shape
    columns = {"input": Column("uint8", suite.input_shape)}
    for task in suite.tasks:
        if task.loss == "cross_entropy":
            columns[f"target.{task.name}"] = Column("int8" if task.outputs <= 127 else "int16", (height, width))
        else:
            columns[f"target.{task.name}"] = Column("float32", (task.outputs, height, width))
    return columns


class DensePipeline(ImagePipeline):
    """A pipeline of images with maps as targets, whose official validation part serves as test."""

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
        return self.size[0], self.size[1]

    def split_of(self, part: str, id: str) -> str:
        """train and val come from the part `train`; everything else is test."""
        return carve_validation(id, self.validation, self.name) if part == "train" else "test"

    def rows(
        self, store: Store, samples: Mapping[tuple[str, str], Mapping[str, str]], parts: Sequence[str]
    ) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """Rows of the index for (part of the source, id) -> {modality: file name}, and what misses a modality."""
        rows, problems = [], []
        for source_part in sorted({part for part, _ in samples}):
            for id in self.limited(sorted(id for part, id in samples if part == source_part)):
                files = samples[source_part, id]
                missing = [part for part in parts if part not in files]
                if missing:
                    there = next(iter(files.values()), id)
                    problems.append((there, f"has no {' and no '.join(missing)} beside it"))
                    continue
                locations = {part: store.location(files[part]) for part in parts}
                rows.append({"id": id, "split": self.split_of(source_part, id), **locations})
        return rows, problems

    def hub_rows(self, hub: HubFolder, columns: Mapping[str, str], test: str) -> list[dict[str, Any]]:
        """The same for a set of the `datasets` library; modality -> column. Its split `test` is our test."""
        parts, rows = hub.parts, []
        other = {"val": "test", "test": "val"}[test]
        held = parts.get(test) or parts.get(other)
        if held is None:
            raise UserError(f"{self.name}: {hub.root} has neither val nor test beside {parts['train']}")
        for part, split in (("train", parts["train"]), ("val", held)):
            cells = {what: hub.cells(split, column) for what, column in columns.items()}
            for row in range(self.limit or len(cells["image"]))[: len(cells["image"])]:
                id = f"{part}/{row:06d}"
                rows.append(
                    {"id": id, "split": self.split_of(part, id), **{what: cells[what][row] for what in columns}}
                )
        return rows


# -- the .npy layout: {train,val}/{image,label,depth,normal}/<n>.npy, as MTAN and LibMTL have it -----------------------


def npy_labels(files: Files, classes: int, before: Size, size: Size) -> np.ndarray:
    """[H, W] numbers, -1 for void -> class map [*size]."""
    labels = array(files("label"), (2, 3))
    labels = labels[..., 0] if labels.ndim == 3 and labels.shape[2] == 1 else labels
    same_size(labels.shape, before)
    whole = np.rint(labels)
    if not np.array_equal(whole, labels) or whole.min() < -1 or whole.max() >= classes:
        odd = labels[(whole != labels) | (whole < -1) | (whole >= classes)].flat[0]
        raise BadImage(f"has the label {odd:g}, outside -1..{classes - 1}")
    return nearest(whole.astype(np.int16), size)


def npy_depth(files: Files, before: Size) -> np.ndarray:
    """[H, W] or [H, W, 1], 0 where unknown -> float32 [H, W] of its own size, NaN where unknown, checked."""
    values = array(files("depth"), (2, 3))
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    same_size(values.shape, before)
    return depth(values, np.isfinite(values) & (values > 0))


def npy_normals(files: Files, before: Size, size: Size) -> np.ndarray:
    """[H, W, 3], zeros where unknown -> float32 [3, *size]."""
    vectors = array(files("normal"), (3,))
    same_size(vectors.shape[:2], before)
    if vectors.shape[2] != 3:
        raise BadImage(f"has shape {list(vectors.shape)}, expected height x width x 3")
    unit = unit_normals(vectors, np.linalg.norm(vectors, axis=-1) > 1e-3)
    return nearest(unit, size).transpose(2, 0, 1)


# -- cells and files that may be arrays, MATLAB matrices or pictures ---------------------------------------------------

_MATLAB = b"MATLAB"


def any_labels(files: Files, table: np.ndarray, count: int, before: Size, size: Size) -> np.ndarray:
    """Class map of an array (-1: void), or by the table of a picture or a MATLAB matrix."""
    raw = files("label")
    if is_array(raw):
        return npy_labels(files, count, before, size)
    stored = _matlab(raw, "segmentation") if raw.startswith(_MATLAB) else values(raw, BYTES, "8 bits")
    same_size(stored.shape, before)
    return nearest(classes(stored.astype(np.int64), table, f"the {count} classes"), size)


def any_depth(files: Files, before: Size) -> np.ndarray:
    """Metres [H, W] of its own size, NaN where unknown: arrays and pictures of floats hold metres, 16 bits millimetres,
    8 bits v of (v + 0.5) / 25.5 m."""
    raw = files("depth")
    if is_array(raw):
        return npy_depth(files, before)
    if raw.startswith(_MATLAB):
        metres = _matlab(raw, "depth")
    else:
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
    """float32 [3, *size] of an array, or of a picture v / 127.5 - 1."""
    raw = files("normal")
    if is_array(raw):
        return npy_normals(files, before, size)
    vectors = values(raw, ("RGB",), "three times 8 bits") / 127.5 - 1
    same_size(vectors.shape[:2], before)
    unit = unit_normals(vectors, np.linalg.norm(vectors, axis=-1) > 0.5)
    return nearest(unit, size).transpose(2, 0, 1)


def _matlab(raw: bytes, key: str) -> np.ndarray:
    from scipy.io import loadmat

    try:
        return np.asarray(loadmat(io.BytesIO(raw))[key])  # type: ignore[arg-type]
    except Exception as error:  # scipy has many of its own for a damaged file
        raise BadImage(f"is no MATLAB file with {key} ({error})") from None
