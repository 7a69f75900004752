"""Taskonomy: five tasks on views of scanned buildings."""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from mtlscale.config import UserError, knob
from mtlscale.data.sampling.splits import hash_split
from pipelines._images.dense_images import (
    NORMAL_METRICS,
    SEGMENTATION_AND_DEPTH,
    DensePipeline,
    columns_of,
    depth_task,
    image_suite,
    map_task,
    normals_task,
    segmentation_task,
)
from pipelines._images.indexed_images import Files, Row, index_table, prepared_images
from pipelines._images.pixels import (
    BYTES,
    WORDS,
    BadImage,
    Size,
    classes,
    colour,
    depth,
    filtered,
    nearest,
    same_size,
    table_of,
    unit_normals,
    values,
)
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared

BUILDINGS = ("allensville", "collierville", "mifflinburg", "noxapater", "onaga")
CLASSES = (
    "background",
    "bottle",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "dining table",
    "toilet",
    "tv",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "book",
    "clock",
    "vase",
)
LABELS = table_of({number: number - 1 for number in range(1, len(CLASSES) + 1)}, void=(0,))
DOMAINS = ("rgb", "segment_semantic", "depth_zbuffer", "keypoints2d", "edge_texture", "normal")
TEST_SHARE = 3794 / (13286 + 3794)  # the thesis' numbers of test and training images
_NO_DEPTH = 65535
_FULL = 65535.0  # full scale of the 16-bit maps
LISTS = ("tiny", "medium", "full", "fullplus")  # train_val_test_<name>.csv of the official splits
OFFICIAL_SPLITS = ("train", "val", "test")
_FILE = re.compile(r"(?:^|/)(point_\d+_view_\d+)_domain_(\w+)\.png$")
_LIST = re.compile(r"(?:^|/)train_val_test_(\w+)\.csv$")


class Taskonomy(DensePipeline):
    """Taskonomy: 17-class segmentation, depth in metres, keypoints, edges and surface normals.

    The source has files `point_P_view_V_domain_<domain>.png` below a folder with the name of their building, extracted
    or in the official tars (`<building>_<domain>.tar`, or `<domain>__taskonomy__<building>.tar` as Omnidata has them).
    Stored values: labels 1..17 (0 uncertain: void), 16-bit depth in 1/512 m (65535 and 0: absent), 16-bit keypoints and
    edges as parts of 65535, 8-bit normals v / 127.5 - 1, absent where depth is. When scaled, keypoints, edges and
    colour are filtered; the others keep their nearest pixel.

    `split: tiny` (medium, full, fullplus) takes buildings and splits from the official `train_val_test_tiny.csv`, which
    lies beside the images. `split: points` uses the thesis' five buildings. The thesis does not say which images are
    its 3,794 test images; here whole points (all views of one) are drawn by hash in that proportion, and validation is
    drawn from the others, or `test_buildings` and `val_buildings` name whole buildings.
    """

    name: ClassVar[str] = "taskonomy"
    source: ClassVar[str] = "Zamir et al., CVPR 2018; taskonomy.stanford.edu"
    picture: ClassVar[str] = "rgb"
    folder: ClassVar[str] = "taskonomy"
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    delta: ClassVar[tuple[str, ...]] = (*SEGMENTATION_AND_DEPTH, "mae", *NORMAL_METRICS)
    results_version: ClassVar[int] = 2  # validation is drawn from the samples that are not test

    size: tuple[int, ...] = knob((256, 256), help="height and width in pixels")
    split: str = knob("points", choices=("points", *LISTS), help="points by hash, or an official list of buildings")
    buildings: tuple[str, ...] = knob((), help="folders to use; none: the thesis' five, or all of the list")
    test_buildings: tuple[str, ...] = knob((), help="of these, those whose images are all test; none: by hash")
    val_buildings: tuple[str, ...] = knob((), help="of these, those whose images are all validation; none: by hash")

    def __post_init__(self) -> None:
        super().__post_init__()
        buildings = self.buildings or BUILDINGS
        for option, part_buildings in (("test_buildings", self.test_buildings), ("val_buildings", self.val_buildings)):
            if part_buildings and self.split != "points":
                raise UserError(f"taskonomy: `split: {self.split}` says what each building is for; drop {option}")
            for building in part_buildings:
                if building not in buildings:
                    raise UserError(f"taskonomy: {option} has {building!r}, which is none of buildings")
        if in_two_parts := sorted(set(self.test_buildings) & set(self.val_buildings)):
            raise UserError(f"taskonomy: {in_two_parts[0]!r} is in test_buildings and in val_buildings; name it once")

    def selects(self, name: str) -> bool:
        match = _FILE.search(name)
        if match is None:
            return _LIST.search(name) is not None
        return _domain(match[2]) in DOMAINS and (
            not self._named_buildings or _building(name, self._named_buildings) is not None
        )

    @property
    def _named_buildings(self) -> tuple[str, ...]:
        """The buildings that the options name; empty if the official list decides."""
        return self.buildings or (BUILDINGS if self.split == "points" else ())

    def inside(self, archive: str) -> str | None:
        """Return the building of a tar, which may be in its name alone; "" for other archives, None to skip a tar."""
        stem = archive.rpartition("/")[2].rpartition(".")[0]
        if not archive.endswith(".tar"):
            return ""

        first, taskonomy, building = stem.partition("__taskonomy__")
        if taskonomy:
            domain = first
        else:
            domain = next((domain for domain in (*DOMAINS, "segmentsemantic") if stem.endswith(f"_{domain}")), "")
            building = stem.removesuffix(f"_{domain}")

        if _domain(domain) not in DOMAINS or (self._named_buildings and building not in self._named_buildings):
            return None  # listing a tar of another domain takes as long as listing one that is used
        return building

    def split_of(self, part: str, id: str) -> str:
        """Choose the split by the point's hash, or by the options that name whole buildings."""
        building, point = id.rpartition("_view_")[0].split("/")
        if building in self.test_buildings:
            return "test"
        if building in self.val_buildings:
            return "val"

        test = 0.0 if self.test_buildings else TEST_SHARE
        val = 0.0 if self.val_buildings else (1.0 - test) * self.validation
        return hash_split(f"{building}/{point}", {"test": test, "val": val, "train": 1.0 - test - val}, self.name)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        store = self.store(source)
        part_of = self._official_splits(store)

        samples: dict[tuple[str, str], dict[str, str]] = {}
        for name in store.names:
            if (match := _FILE.search(name)) and (building := _building(name, part_of)):
                samples.setdefault((building, f"{building}/{match[1]}"), {})[_domain(match[2])] = name

        for building in part_of:
            domains = {
                domain
                for (sample_building, _), files in samples.items()
                if sample_building == building
                for domain in files
            }
            for domain in DOMAINS:
                if domain not in domains:
                    raise UserError(
                        f"taskonomy: building {building} has no {domain} image in {source}; "
                        "extract its files there, or leave it out of `buildings`"
                    )

        rows, problems = self.rows(store, samples, DOMAINS)
        for row in rows:
            row["split"] = part_of[row["id"].partition("/")[0]] or row["split"]

        tasks = [
            segmentation_task(CLASSES),
            depth_task(),
            map_task("keypoints"),
            map_task("edges"),
            normals_task(),
        ]

        suite = image_suite(self.name, tasks, self.height_width)
        index = index_table(rows, list(DOMAINS))
        decode = partial(decode_view, size=self.height_width)
        return prepared_images(
            suite, index, decode, columns_of(suite), str(store.root), problems, context, self.encoded_modality
        )

    def _official_splits(self, store: Store) -> Mapping[str, str]:
        """Return building -> its part in the official list, or "" where the hash decides."""
        if self.split == "points":
            return dict.fromkeys(self._named_buildings, "")

        name = next((name for name in store.names if (m := _LIST.search(name)) and m[1] == self.split), None)
        if name is None:
            raise UserError(
                f"taskonomy: train_val_test_{self.split}.csv is missing in {store.source}; it is in "
                "splits_taskonomy.zip of github.com/StanfordVL/taskonomy, data/assets"
            )

        listed = _listed(name, store.read(name).decode("utf-8-sig", "replace"))
        for building in self.buildings:
            if building not in listed:
                raise UserError(f"taskonomy: {name} does not list {building!r}; leave it out of `buildings`")

        return {building: part for building, part in listed.items() if not self.buildings or building in self.buildings}


def _building(name: str, buildings: Container[str]) -> str | None:
    """Return the nearest folder above a file that is named as a building."""
    return next((folder for folder in reversed(name.split("/")[:-1]) if folder in buildings), None)


def _listed(name: str, text: str) -> dict[str, str]:
    """Return building -> split from an official list of `id,train,val,test`, zeros and a single 1 a line."""
    lines = list(csv.DictReader(text.splitlines()))
    if not lines or not {"id", *OFFICIAL_SPLITS} <= set(lines[0]):
        raise UserError(f"taskonomy: {name} should begin with id,train,val,test; fetch it again")

    listed = {}
    for number, line in enumerate(lines, start=2):
        parts = [part for part in OFFICIAL_SPLITS if (line[part] or "").strip() in ("1", "1.0")]
        if len(parts) > 1:
            raise UserError(f"taskonomy: line {number} of {name} has {line['id']} in {' and '.join(parts)}; mend it")
        if parts:
            listed[line["id"].strip()] = parts[0]

    return listed


def decode_view(row: Row, files: Files, size: Size) -> dict[str, Any]:
    """Decode a view: the image and the targets of the five tasks."""
    image, original_size = colour(files("rgb"), size)

    def stored(domain: str, modes: tuple[str, ...], bits: str) -> np.ndarray:
        array = values(files(domain), modes, bits)
        same_size(array.shape[:2], original_size)
        return array

    labels = stored("segment_semantic", BYTES, "8 bits")
    segmentation = nearest(classes(labels, LABELS, "the 17 classes"), size)

    zbuffer = stored("depth_zbuffer", WORDS, "16 bits")
    valid = (zbuffer > 0) & (zbuffer < _NO_DEPTH)
    metres = nearest(depth(zbuffer / 512, valid), size)
    result: dict[str, Any] = {"input": image, "target.segmentation": segmentation, "target.depth": metres}
    for domain, task in (("keypoints2d", "keypoints"), ("edge_texture", "edges")):
        numbers = stored(domain, WORDS, "16 bits")
        if numbers.min() < 0 or numbers.max() > _FULL:
            raise BadImage(f"has the value {numbers.max()}, outside 0..65535")
        result[f"target.{task}"] = filtered(numbers / _FULL, size)

    vectors = stored("normal", ("RGB",), "three times 8 bits") / 127.5 - 1
    unit = unit_normals(vectors, valid & (np.linalg.norm(vectors, axis=-1) > 0.5))
    return result | {"target.normals": nearest(unit, size).transpose(2, 0, 1)}


def _domain(name: str) -> str:
    return "segment_semantic" if name == "segmentsemantic" else name
