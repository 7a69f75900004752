"""Taskonomy: five tasks on views of scanned buildings."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mtlscale.data.splits import hash_split
from mtlscale.spec import UserError, knob
from pipelines._base import Prepared, Work
from pipelines._dense import (
    DensePipeline,
    columns_of,
    depth_task,
    image_suite,
    map_task,
    normals_task,
    segmentation_task,
)
from pipelines._image_set import Files, Row, index_table, prepared_images
from pipelines._pixels import (
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
from pipelines._store import Store

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
_FULL = 65535.0  # of the 16-bit maps
_FILE = re.compile(r"(?:^|/)([^/]+)/([^/]+)/(point_(\d+)_view_(\d+))_domain_(\w+)\.png$")


class Taskonomy(DensePipeline):
    """Taskonomy: 17-class segmentation, depth in metres, keypoints, edges and surface normals.

    Extracted files `<building>/<domain>/point_P_view_V_domain_<domain>.png`, or with domain and
    building the other way round. Stored values: labels 1..17 (0 uncertain: void), 16-bit depth in 1/512 m (65535 and 0:
    absent), 16-bit keypoints and edges as parts of 65535, 8-bit normals v / 127.5 - 1, absent where depth is. Keypoints
    and edges are filtered when scaled, as colour is; the others keep their nearest pixel. The thesis does not say which
    images were its 3,794 test images: here whole points (all views of one) are drawn by hash in that proportion, or
    `test_buildings` names whole buildings; validation is carved out of the rest by point.
    """

    name: ClassVar[str] = "taskonomy"
    source: ClassVar[str] = "Zamir et al., CVPR 2018; taskonomy.stanford.edu"
    folder: ClassVar[str] = "taskonomy"

    size: tuple[int, ...] = knob((256, 256), help="height and width in pixels")
    buildings: tuple[str, ...] = knob(BUILDINGS, help="folders to use")
    test_buildings: tuple[str, ...] = knob((), help="of these, those whose images are all test; none: by hash")

    def __post_init__(self) -> None:
        super().__post_init__()
        for building in self.test_buildings:
            if building not in self.buildings:
                raise UserError(f"taskonomy: test_buildings has {building!r}, which is none of buildings")

    def wanted(self, name: str) -> bool:
        match = _FILE.search(name)
        if match is None or _domain(match[6]) not in DOMAINS:
            return False
        return not {match[1], match[2]}.isdisjoint(self.buildings)

    def split_of(self, part: str, id: str) -> str:
        building, point = id.rpartition("_view_")[0].split("/")
        if self.test_buildings:
            first = "test" if building in self.test_buildings else "train"
        else:
            first = hash_split(f"{building}/{point}", {"test": TEST_SHARE, "train": 1 - TEST_SHARE}, self.name)
        return first if first == "test" else super().split_of("train", f"{building}/{point}")

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        store = Store(source, self.wanted)
        samples: dict[tuple[str, str], dict[str, str]] = {}
        for name in store.names:
            match = _FILE.search(name)
            assert match is not None
            building = match[1] if match[1] in self.buildings else match[2]
            samples.setdefault((building, f"{building}/{match[3]}"), {})[_domain(match[6])] = name
        for building in self.buildings:
            domains = {domain for (its, _), files in samples.items() if its == building for domain in files}
            for domain in DOMAINS:
                if domain not in domains:
                    raise UserError(
                        f"taskonomy: building {building} has no {domain} image in {source}; "
                        "extract its files there, or leave it out of `buildings`"
                    )
        rows, problems = self.rows(store, samples, DOMAINS)
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
        return prepared_images(suite, index, decode, columns_of(suite), str(store.root), problems, work)


def decode_view(row: Row, files: Files, size: Size) -> dict[str, Any]:
    image, before = colour(files("rgb"), size)

    def stored(domain: str, modes: tuple[str, ...], bits: str) -> np.ndarray:
        array = values(files(domain), modes, bits)
        same_size(array.shape[:2], before)
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
