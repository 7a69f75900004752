"""NYU Depth V2, the 1449 labelled frames: segmentation, depth, surface normals."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from mtlscale.config import TaskSuite, UserError, knob
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images import nyu_mat as mat
from pipelines._images.dense_images import (
    NORMAL_METRICS,
    SEGMENTATION_AND_DEPTH,
    DensePipeline,
    any_depth,
    any_labels,
    any_normals,
    columns_of,
    depth_task,
    image_suite,
    normals_task,
    segmentation_task,
)
from pipelines._images.indexed_images import Decode, Files, Row, index_table, prepared_images
from pipelines._images.normals import Camera, estimate_normals
from pipelines._images.nyu_classes import CLASSES_13, CLASSES_40
from pipelines._images.pixels import (
    Size,
    classes,
    depth,
    nearest,
    picture,
    table_of,
)
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared

# Intrinsics of the colour camera, from the official toolbox (fx 518.86, fy 519.47, cx 325.58, cy 253.74 at 640 x 480).
CAMERA: Camera = (518.857901 / 640, 519.469611 / 480, 325.582449 / 640, 253.736166 / 480)
_PICTURES = re.compile(r"(?:^|/)(train|val)/(image|depth|label13|label40|normal)/(\d+)\.(jpg|png)$")
_ARRAYS = re.compile(r"(?:^|/)(train|val)/(image|depth|label|normal)/(\d+)\.npy$")
LABELS = {
    13: table_of({number: number - 1 for number in range(1, 14)}, void=(0,)),
    40: table_of({number: number for number in range(40)}, void=(255,)),
}


class Nyuv2(DensePipeline):
    """NYUv2: 13 (or 40) classes, depth in metres, and surface normals, given or estimated from depth.

    The source has one of four layouts, told apart by their files. Pictures, as a folder or a zip:
    `{train,val}/{image,depth,label13,label40,normal}/NNNN.{jpg,png}`, with normals v / 127.5 - 1 and depth of 8 bits v,
    (v + 0.5) / 25.5 m, or of 16, millimetres. Arrays, as MTAN and LibMTL use them:
    `{train,val}/{image,label,depth,normal}/N.npy`, labels from -1. A set of the `datasets` library with the
    columns image, segmentation, depth and, optionally, normal. The official `nyu_depth_v2_labeled.mat` beside
    `splits.mat` and `classMapping40.mat` (needs h5py).

    The official test frames are the test split; validation is carved out of train by frame, so frames of one room may
    be in both. When scaled, colour is filtered, while labels, depth and normals keep their nearest pixel. Normals that
    are not measured are the task `normals_estimated` (axes: x right, y up, z towards the viewer); given ones keep the
    axes of their files.
    """

    name: ClassVar[str] = "nyuv2"
    source: ClassVar[str] = "Silberman, Hoiem, Kohli & Fergus, ECCV 2012"
    folder: ClassVar[str] = "nyuv2"
    delta: ClassVar[tuple[str, ...]] = (*SEGMENTATION_AND_DEPTH, *NORMAL_METRICS)
    archives: ClassVar[tuple[str, ...]] = ("nyuv2_288x384.zip",)
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    hub: ClassVar[bool] = True

    size: tuple[int, ...] = knob((288, 384), help="height and width in pixels")
    classes: int = knob(13, choices=(13, 40), help="of the segmentation")
    normals: str = knob(
        "auto", choices=("auto", "given", "estimated", "none"), help="auto: the given ones, else estimated from depth"
    )

    def selects(self, name: str) -> bool:
        return bool(_PICTURES.search(name) or _ARRAYS.search(name)) or name.rpartition("/")[2] in mat.FILES

    def locate(self, source: Path) -> Path:
        located = super().locate(source)
        return located.parent if located.suffix == ".mat" else located

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        if is_hub_folder(source):
            return self._prepare_hub(HubFolder(self.name, source), context)

        store = self.store(source)
        layout = _layout(store)
        samples = _samples(store, layout)
        normals = self._normals(source, any("normal" in files for files in samples.values()))

        if layout == "mat":
            rows, decode = self._mat_rows(store, normals)
            return self._prepared(layout, str(store.root), rows, ["mat", "frame"], decode, normals, [], context)

        for files in samples.values():
            if f"label{self.classes}" in files:
                files["label"] = files[f"label{self.classes}"]

        parts = ["image", "label", "depth", *(["normal"] if normals == "given" else [])]
        rows, problems = self.rows(store, samples, parts)
        decode = self._decode(normals)
        return self._prepared(layout, str(store.root), rows, parts, decode, normals, problems, context)

    def _prepare_hub(self, hub: HubFolder, context: PrepareContext) -> Prepared:
        count = self.classes
        names = {
            "image": ("image", "rgb"),
            "label": (
                f"segmentation_{count}",
                f"label{count}",
                f"label_{count}",
                "segmentation",
                "semantic_segmentation",
                "label",
            ),
            "depth": ("depth", "depth_map"),
            "normal": ("normal", "normals", "surface_normals"),
        }

        columns = hub.columns(names, optional=("normal",))
        normals = self._normals(hub.root, "normal" in columns)
        if normals != "given":
            columns.pop("normal", None)

        decode = self._decode(normals)
        rows = self.hub_rows(hub, columns, test="test")
        return self._prepared("hub", str(hub.root), rows, list(columns), decode, normals, [], context)

    def _decode(self, normals: str) -> Decode:
        count = self.classes
        return partial(decode_frame, size=self.height_width, count=count, normals=normals, table=LABELS[count])

    def _normals(self, source: Path, given_normals: bool) -> str:
        """Return the kind of normals to prepare: given, estimated or none."""
        if self.normals == "given" and not given_normals:
            raise UserError(f"nyuv2: {source} has no normals; choose `normals: estimated` or `none`")
        if self.normals == "auto":
            return "given" if given_normals else "estimated"
        return self.normals

    def _prepared(
        self,
        layout: str,
        root: str,
        rows: list[dict[str, Any]],
        parts: list[str],
        decode: Decode,
        normals: str,
        problems: list[tuple[str, str]],
        context: PrepareContext,
    ) -> Prepared:

        suite, index = self._suite(normals), index_table(rows, parts)
        return prepared_images(
            suite, index, decode, columns_of(suite), root, problems, context, self.encoded_modality, {"layout": layout}
        )

    def _suite(self, normals: str) -> TaskSuite:
        tasks = [segmentation_task(CLASSES_13 if self.classes == 13 else CLASSES_40), depth_task()]
        if normals != "none":
            tasks.append(normals_task("normals" if normals == "given" else "normals_estimated"))
        return image_suite(self.name, tasks, self.height_width)

    def _mat_rows(self, store: Store, normals: str) -> tuple[list[dict[str, Any]], Decode]:
        frames, table = mat.open_source(store, self.classes)
        rows: list[dict[str, Any]] = []
        for part in ("train", "val"):
            for number in [frame for frame in frames if frames[frame] == part][: self.limit or None]:
                id = f"{part}/{number:04d}"
                location = {
                    "mat": store.location(next(name for name in store.names if name.rpartition("/")[2] == mat.LABELED)),
                    "frame": f"{mat.LABELED}, frame {number}",
                }
                rows.append({"id": id, "split": self.split_of(part, id), **location})
        return rows, partial(decode_mat, size=self.height_width, table=table, normals=normals)


def decode_frame(
    row: Row, files: Files, size: Size, count: int, normals: str, table: np.ndarray
) -> dict[str, np.ndarray]:
    """Decode a row of pictures or arrays, told apart by their bytes."""
    image, original_size = picture(files("image"), size)
    segmentation = any_labels(files, table, count, original_size, size)
    metres = any_depth(files, original_size)
    result = {"input": image, "target.segmentation": segmentation, "target.depth": nearest(metres, size)}
    if normals == "given":
        result["target.normals"] = any_normals(files, original_size, size)
    return result | _estimated(metres, size, normals)


def decode_mat(row: Row, files: Files, size: Size, table: np.ndarray, normals: str) -> dict[str, np.ndarray]:
    """Decode a frame of the official MATLAB file; its normals are estimated or left out."""
    image, labels, metres = mat.read_frame(files.path("mat"), int(row["id"].rpartition("/")[2]))
    files.current = "frame"
    segmentation = nearest(classes(labels, table, f"the {len(table) - 1} labels of {mat.MAPPING}"), size)
    metres = depth(metres, np.isfinite(metres) & (metres > 0))
    result = {"input": mat.resized(image, size), "target.segmentation": segmentation}
    return result | {"target.depth": nearest(metres, size)} | _estimated(metres, size, normals)


def _estimated(metres: np.ndarray, size: Size, normals: str) -> dict[str, np.ndarray]:
    """Return the normals fitted to a depth map at its full size, if they are to be estimated."""
    if normals != "estimated":
        return {}
    vectors = estimate_normals(metres, CAMERA)
    return {"target.normals_estimated": nearest(vectors.transpose(1, 2, 0), size).transpose(2, 0, 1)}


def _samples(store: Store, layout: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return (part, id) -> {modality: file name} for the layouts whose folders name the parts."""
    pattern = {"pictures": _PICTURES, "arrays": _ARRAYS}.get(layout)
    samples: dict[tuple[str, str], dict[str, str]] = {}
    for name in store.names if pattern else ():
        if match := pattern.search(name) if pattern else None:
            samples.setdefault((match[1], f"{match[1]}/{int(match[3]):04d}"), {})[match[2]] = name
    return samples


def _layout(store: Store) -> str:
    if any(_ARRAYS.search(name) for name in store.names):
        return "arrays"
    if any(_PICTURES.search(name) for name in store.names):
        return "pictures"
    if any(name.rpartition("/")[2] == mat.LABELED for name in store.names):
        return "mat"
    raise UserError(
        f"nyuv2: {store.source} has neither train/image/*.jpg or *.npy, nor {mat.LABELED}; pass the folder or zip, or "
        "convert another layout as docs/datasets_images.md says"
    )
