"""NYU Depth V2, the 1449 labelled frames: segmentation, depth, surface normals."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mtlscale.spec import TaskSuite, UserError, knob
from pipelines import _nyu_mat as mat
from pipelines._base import Prepared, Work
from pipelines._dense import (
    DensePipeline,
    columns_of,
    depth_task,
    image_suite,
    normals_task,
    npy_depth,
    npy_image,
    npy_labels,
    npy_normals,
    segmentation_task,
)
from pipelines._image_set import Decode, Files, Row, index_table, prepared_images
from pipelines._normals import Camera, estimate_normals
from pipelines._nyu_classes import CLASSES_13, CLASSES_40
from pipelines._pixels import BYTES, Size, classes, colour, depth, nearest, same_size, table_of, unit_normals, values
from pipelines._store import Store

# Of the colour camera, from the official toolbox (fx 518.86, fy 519.47, cx 325.58, cy 253.74 at 640 x 480).
CAMERA: Camera = (518.857901 / 640, 519.469611 / 480, 325.582449 / 640, 253.736166 / 480)
_PICTURES = re.compile(r"(?:^|/)(train|val)/(image|depth|label13|label40|normal)/(\d+)\.(jpg|png)$")
_ARRAYS = re.compile(r"(?:^|/)(train|val)/(image|depth|label|normal)/(\d+)\.npy$")
LABELS = {
    13: table_of({number: number - 1 for number in range(1, 14)}, void=(0,)),
    40: table_of({number: number for number in range(40)}, void=(255,)),
}


class Nyuv2(DensePipeline):
    """NYUv2: 13 (or 40) classes, depth in metres, and surface normals, given or estimated from depth.

    Three layouts, told apart by their files: pictures (`{train,val}/{image,depth,label13,label40,
    normal}/NNNN.{jpg,png}`, 8-bit depth v of (v + 0.5) / 25.5 m, normals v / 127.5 - 1), as folder or zip; arrays
    (`{train,val}/{image,label,depth,normal}/N.npy`, labels from -1) as MTAN and LibMTL use them; and the official
    `nyu_depth_v2_labeled.mat` beside `splits.mat` and `classMapping40.mat` (needs h5py). The official test frames are
    the test split, validation is carved out of train by frame, so that frames of one room may be in both. Colour is
    filtered when scaled, labels, depth and normals keep their nearest pixel. Normals that are not measured are the
    task `normals_estimated` (axes: x right, y up, z towards the viewer); given ones keep the axes of their files.
    """

    name: ClassVar[str] = "nyuv2"
    source: ClassVar[str] = "Silberman, Hoiem, Kohli & Fergus, ECCV 2012"
    folder: ClassVar[str] = "nyuv2"
    archives: ClassVar[tuple[str, ...]] = ("nyuv2_288x384.zip",)
    ray_from_bytes: ClassVar[float] = 64e6

    size: tuple[int, ...] = knob((288, 384), help="height and width in pixels")
    classes: int = knob(13, choices=(13, 40), help="of the segmentation")
    normals: str = knob(
        "auto", choices=("auto", "given", "estimated", "none"), help="auto: the given ones, else estimated from depth"
    )

    def wanted(self, name: str) -> bool:
        return bool(_PICTURES.search(name) or _ARRAYS.search(name)) or name.rpartition("/")[2] in mat.FILES

    def locate(self, source: Path) -> Path:
        found = super().locate(source)
        return found.parent if found.suffix == ".mat" else found

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        store = Store(source, self.wanted)
        samples: dict[tuple[str, str], dict[str, str]] = {}
        layout = _layout(store)
        for name in store.names:
            if match := {"pictures": _PICTURES, "arrays": _ARRAYS}[layout].search(name) if layout != "mat" else None:
                samples.setdefault((match[1], f"{match[1]}/{int(match[3]):04d}"), {})[match[2]] = name
        label = {"pictures": f"label{self.classes}", "arrays": "label"}.get(layout, "")
        given = any("normal" in files for files in samples.values())
        if self.normals == "given" and not given:
            raise UserError(f"nyuv2: {source} has no normals; choose `normals: estimated` or `none`")
        which = "given" if given and self.normals == "auto" else "estimated" if self.normals == "auto" else self.normals
        suite = self._suite(which)
        if layout == "mat":
            rows, decode = self._mat_rows(store, which)
            problems: list[tuple[str, str]] = []
            parts = ["mat", "frame"]
        else:
            parts = ["image", label, "depth", *(["normal"] if which == "given" else [])]
            rows, problems = self.rows(store, samples, parts)
            decode = partial(
                {"pictures": decode_pictures, "arrays": decode_arrays}[layout],
                size=self.height_width,
                count=self.classes,
                normals=which,
            )
        notes = {"layout": layout}
        index = index_table(rows, parts)
        return prepared_images(suite, index, decode, columns_of(suite), str(store.root), problems, work, notes)

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
                place = {"mat": store.location(_mat(store)), "frame": f"{mat.LABELED}, frame {number}"}
                rows.append({"id": id, "split": self.split_of(part, id), **place})
        return rows, partial(decode_mat, size=self.height_width, table=table, normals=normals)


def decode_pictures(row: Row, files: Files, size: Size, count: int, normals: str) -> dict[str, np.ndarray]:
    image, before = colour(files("image"), size)
    labels = values(files(f"label{count}"), BYTES, "8 bits")
    same_size(labels.shape, before)
    segmentation = nearest(classes(labels, LABELS[count], f"the {count} classes"), size)
    stored = values(files("depth"), BYTES, "8 bits")
    same_size(stored.shape, before)
    metres = depth((stored + 0.5) / 25.5, stored > 0)
    result = {"input": image, "target.segmentation": segmentation, "target.depth": nearest(metres, size)}
    if normals == "given":
        vectors = values(files("normal"), ("RGB",), "three times 8 bits") / 127.5 - 1
        same_size(vectors.shape[:2], before)
        unit = unit_normals(vectors, np.linalg.norm(vectors, axis=-1) > 0.5)
        result["target.normals"] = nearest(unit, size).transpose(2, 0, 1)
    return result | _estimated(metres, size, normals)


def decode_arrays(row: Row, files: Files, size: Size, count: int, normals: str) -> dict[str, np.ndarray]:
    image, before = npy_image(files, size)
    segmentation = npy_labels(files, count, before, size)
    metres = npy_depth(files, before)
    result = {"input": image, "target.segmentation": segmentation, "target.depth": nearest(metres, size)}
    if normals == "given":
        result["target.normals"] = npy_normals(files, before, size)
    return result | _estimated(metres, size, normals)


def decode_mat(row: Row, files: Files, size: Size, table: np.ndarray, normals: str) -> dict[str, np.ndarray]:
    image, labels, metres = mat.read_frame(files.path("mat"), int(row["id"].rpartition("/")[2]))
    files.current = "frame"
    segmentation = nearest(classes(labels, table, f"the {len(table) - 1} labels of {mat.MAPPING}"), size)
    metres = depth(metres, np.isfinite(metres) & (metres > 0))
    result = {"input": mat.resized(image, size), "target.segmentation": segmentation}
    return result | {"target.depth": nearest(metres, size)} | _estimated(metres, size, normals)


def _estimated(metres: np.ndarray, size: Size, normals: str) -> dict[str, np.ndarray]:
    """Fitted where depth has all its pixels."""
    if normals != "estimated":
        return {}
    vectors = estimate_normals(metres, CAMERA)
    return {"target.normals_estimated": nearest(vectors.transpose(1, 2, 0), size).transpose(2, 0, 1)}


def _mat(store: Store) -> str:
    return next(name for name in store.names if name.rpartition("/")[2] == mat.LABELED)


def _layout(store: Store) -> str:
    if any(_ARRAYS.search(name) for name in store.names):
        return "arrays"
    if any(_PICTURES.search(name) for name in store.names):
        return "pictures"
    if any(name.rpartition("/")[2] == mat.LABELED for name in store.names):
        return "mat"
    raise UserError(
        f"nyuv2: {store.source} has neither train/image/*.jpg or *.npy, nor {mat.LABELED}; pass the folder or zip"
    )
