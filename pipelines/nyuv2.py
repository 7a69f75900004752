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
    npy_depth,
    npy_labels,
    npy_normals,
    segmentation_task,
)
from pipelines._hub import HubFolder, is_hub_folder
from pipelines._image_set import Decode, Files, Row, index_table, prepared_images
from pipelines._normals import Camera, estimate_normals
from pipelines._nyu_classes import CLASSES_13, CLASSES_40, TO_13
from pipelines._pixels import (
    BYTES,
    Size,
    array_picture,
    classes,
    colour,
    depth,
    nearest,
    picture,
    same_size,
    table_of,
    unit_normals,
    values,
)
from pipelines._store import Store

# Of the colour camera, from the official toolbox (fx 518.86, fy 519.47, cx 325.58, cy 253.74 at 640 x 480).
CAMERA: Camera = (518.857901 / 640, 519.469611 / 480, 325.582449 / 640, 253.736166 / 480)
_PICTURES = re.compile(r"(?:^|/)(train|val)/(image|depth|label13|label40|normal)/(\d+)\.(jpg|png)$")
_ARRAYS = re.compile(r"(?:^|/)(train|val)/(image|depth|label|normal)/(\d+)\.npy$")
_NYUD_MT = re.compile(r"(?:^|/)(images|segmentation|depth|normals)/([^/]+)\.(jpg|png|npy|mat)$")
_LIST = re.compile(r"(?:^|/)gt_sets/(train|val)\.txt$")
_MODALITY = {"images": "image", "segmentation": "label", "depth": "depth", "normals": "normal"}
LABELS = {
    13: table_of({number: number - 1 for number in range(1, 14)}, void=(0,)),
    40: table_of({number: number for number in range(40)}, void=(255,)),
}
NYUD_MT_LABELS = {  # 1..40, 0: void
    13: table_of({number + 1: TO_13[number] for number in range(40)}, void=(0, 255)),
    40: table_of({number + 1: number for number in range(40)}, void=(0, 255)),
}


class Nyuv2(DensePipeline):
    """NYUv2: 13 (or 40) classes, depth in metres, and surface normals, given or estimated from depth.

    Five layouts, told apart by their files: pictures (`{train,val}/{image,depth,label13,label40,
    normal}/NNNN.{jpg,png}`, 8-bit depth v of (v + 0.5) / 25.5 m, normals v / 127.5 - 1), as folder or zip; arrays
    (`{train,val}/{image,label,depth,normal}/N.npy`, labels from -1) as MTAN and LibMTL use them; NYUD_MT's
    (`images`, `segmentation` with labels 1..40, `depth`, `normals` beside `gt_sets/{train,val}.txt`); a set of the
    `datasets` library with the columns image, segmentation, depth and, optionally, normal; and the official
    `nyu_depth_v2_labeled.mat` beside `splits.mat` and `classMapping40.mat` (needs h5py). The official test frames are
    the test split, validation is carved out of train by frame, so that frames of one room may be in both. Colour is
    filtered when scaled, labels, depth and normals keep their nearest pixel. Normals that are not measured are the
    task `normals_estimated` (axes: x right, y up, z towards the viewer); given ones keep the axes of their files.
    """

    name: ClassVar[str] = "nyuv2"
    source: ClassVar[str] = "Silberman, Hoiem, Kohli & Fergus, ECCV 2012"
    folder: ClassVar[str] = "nyuv2"
    delta: ClassVar[tuple[str, ...]] = (*SEGMENTATION_AND_DEPTH, *NORMAL_METRICS)
    archives: ClassVar[tuple[str, ...]] = ("nyuv2_288x384.zip",)
    ray_from_bytes: ClassVar[float] = 64e6
    hub: ClassVar[bool] = True

    size: tuple[int, ...] = knob((288, 384), help="height and width in pixels")
    classes: int = knob(13, choices=(13, 40), help="of the segmentation")
    normals: str = knob(
        "auto", choices=("auto", "given", "estimated", "none"), help="auto: the given ones, else estimated from depth"
    )

    def wanted(self, name: str) -> bool:
        if _PICTURES.search(name) or _ARRAYS.search(name) or _NYUD_MT.search(name) or _LIST.search(name):
            return True
        return name.rpartition("/")[2] in mat.FILES

    def locate(self, source: Path) -> Path:
        found = super().locate(source)
        return found.parent if found.suffix == ".mat" else found

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        if is_hub_folder(source):
            return self._prepare_hub(HubFolder(self.name, source), work)
        store = self.store(source)
        layout = _layout(store)
        samples = _listed(store) if layout == "nyud_mt" else _samples(store, layout)
        label = f"label{self.classes}" if layout == "pictures" else "label"
        which = self._normals(source, any("normal" in files for files in samples.values()))
        if layout == "mat":
            rows, decode = self._mat_rows(store, which)
            return self._prepared(layout, str(store.root), rows, ["mat", "frame"], decode, which, [], work)
        parts = ["image", label, "depth", *(["normal"] if which == "given" else [])]
        rows, problems = self.rows(store, samples, parts)
        decoders: dict[str, Decode] = {
            "pictures": partial(decode_pictures, size=self.height_width, count=self.classes, normals=which),
            "arrays": partial(decode_arrays, size=self.height_width, count=self.classes, normals=which),
            "nyud_mt": self._mixed(NYUD_MT_LABELS, which),
        }
        return self._prepared(layout, str(store.root), rows, parts, decoders[layout], which, problems, work)

    def _prepare_hub(self, hub: HubFolder, work: Work) -> Prepared:
        n = self.classes
        names = {
            "image": ("image", "rgb"),
            "label": (f"segmentation_{n}", f"label{n}", f"label_{n}", "segmentation", "semantic_segmentation", "label"),
            "depth": ("depth", "depth_map"),
            "normal": ("normal", "normals", "surface_normals"),
        }
        columns = hub.columns(names, optional=("normal",))
        which = self._normals(hub.root, "normal" in columns)
        if which != "given":
            columns.pop("normal", None)
        decode = self._mixed(LABELS, which)
        rows = self.hub_rows(hub, columns, test="test")
        return self._prepared("hub", str(hub.root), rows, list(columns), decode, which, [], work)

    def _mixed(self, tables: dict[int, np.ndarray], normals: str) -> Decode:
        n = self.classes
        return partial(decode_mixed, size=self.height_width, count=n, normals=normals, table=tables[n])

    def _normals(self, source: Path, given: bool) -> str:
        """Which normals there will be: given, estimated, none."""
        if self.normals == "given" and not given:
            raise UserError(f"nyuv2: {source} has no normals; choose `normals: estimated` or `none`")
        if self.normals == "auto":
            return "given" if given else "estimated"
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
        work: Work,
    ) -> Prepared:
        suite, index = self._suite(normals), index_table(rows, parts)
        return prepared_images(
            suite, index, decode, columns_of(suite), root, problems, work, self.kept, {"layout": layout}
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
    image, before = array_picture(files("image"), size)
    segmentation = npy_labels(files, count, before, size)
    metres = npy_depth(files, before)
    result = {"input": image, "target.segmentation": segmentation, "target.depth": nearest(metres, size)}
    if normals == "given":
        result["target.normals"] = npy_normals(files, before, size)
    return result | _estimated(metres, size, normals)


def decode_mixed(
    row: Row, files: Files, size: Size, count: int, normals: str, table: np.ndarray
) -> dict[str, np.ndarray]:
    """Arrays, MATLAB matrices or pictures, each as its bytes say."""
    image, before = picture(files("image"), size)
    segmentation = any_labels(files, table, count, before, size)
    metres = any_depth(files, before)
    result = {"input": image, "target.segmentation": segmentation, "target.depth": nearest(metres, size)}
    if normals == "given":
        result["target.normals"] = any_normals(files, before, size)
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


def _samples(store: Store, layout: str) -> dict[tuple[str, str], dict[str, str]]:
    """(part, id) -> {modality: file name}, where folders name the parts."""
    pattern = {"pictures": _PICTURES, "arrays": _ARRAYS}.get(layout)
    samples: dict[tuple[str, str], dict[str, str]] = {}
    for name in store.names if pattern else ():
        if match := pattern.search(name) if pattern else None:
            samples.setdefault((match[1], f"{match[1]}/{int(match[3]):04d}"), {})[match[2]] = name
    return samples


def _listed(store: Store) -> dict[tuple[str, str], dict[str, str]]:
    """The same for NYUD_MT, where lists name the frames of the parts."""
    files: dict[str, dict[str, str]] = {}
    for name in store.names:
        if match := _NYUD_MT.search(name):
            files.setdefault(match[2], {})[_MODALITY[match[1]]] = name
    lists = {match[1]: name for name in store.names if (match := _LIST.search(name))}
    samples: dict[tuple[str, str], dict[str, str]] = {}
    for part in ("train", "val"):
        if part not in lists:
            raise UserError(f"nyuv2: gt_sets/{part}.txt is missing in {store.source}")
        for line in store.read(lists[part]).decode().split():
            samples[part, f"{part}/{line.zfill(4)}"] = files.get(line, {})
    twice = sorted(
        {id.partition("/")[2] for part, id in samples if part == "train"}
        & {id.partition("/")[2] for part, id in samples if part == "val"}
    )
    if twice:
        raise UserError(f"nyuv2: gt_sets has frame {twice[0]} in train.txt and in val.txt; fetch the lists again")
    return samples


def _layout(store: Store) -> str:
    if any(_LIST.search(name) for name in store.names):
        return "nyud_mt"
    if any(_ARRAYS.search(name) for name in store.names):
        return "arrays"
    if any(_PICTURES.search(name) for name in store.names):
        return "pictures"
    if any(name.rpartition("/")[2] == mat.LABELED for name in store.names):
        return "mat"
    raise UserError(
        f"nyuv2: {store.source} has neither train/image/*.jpg or *.npy, nor gt_sets/train.txt, nor {mat.LABELED}; "
        "pass the folder or zip"
    )
