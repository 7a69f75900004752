"""CityScapes: segmentation of street scenes and inverse depth."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from mtlscale.config import UserError, knob
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images.dense_images import (
    SEGMENTATION_AND_DEPTH,
    DensePipeline,
    columns_of,
    depth_task,
    image_suite,
    npy_depth,
    npy_labels,
    segmentation_task,
)
from pipelines._images.indexed_images import Files, Row, index_table, prepared_images
from pipelines._images.pixels import (
    BYTES,
    WORDS,
    Size,
    classes,
    depth,
    is_array,
    nearest,
    picture,
    same_size,
    table_of,
    values,
)
from pipelines.contract import PrepareContext, Prepared

CLASSES = {
    7: ("flat", "construction", "object", "nature", "sky", "human", "vehicle"),
    19: (
        "road",
        "sidewalk",
        "building",
        "wall",
        "fence",
        "pole",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
        "sky",
        "person",
        "rider",
        "car",
        "truck",
        "bus",
        "train",
        "motorcycle",
        "bicycle",
    ),
}
# The label ids that count in the official evaluation, in the order of the 19 classes, and the category of each.
_EVALUATED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
_CATEGORY = (0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 6, 6, 6, 6, 6, 6)
_VOID = tuple(id for id in (*range(34), 255) if id not in _EVALUATED)
LABELS = {
    19: table_of({id: number for number, id in enumerate(_EVALUATED)}, _VOID),
    7: table_of(dict(zip(_EVALUATED, _CATEGORY, strict=True)), _VOID),
}
_SUFFIX = {"leftImg8bit": "leftImg8bit", "gtFine": "gtFine_labelIds", "disparity": "disparity"}
_PARTS = {"leftImg8bit": "image", "gtFine": "label", "disparity": "depth"}
_OFFICIAL = re.compile(
    r"(?:^|/)(leftImg8bit|gtFine|disparity)/(train|val)/[^/]+/([^/]+_\d+_\d+)_"
    r"(leftImg8bit|gtFine_labelIds|disparity)\.png$"
)
_ARRAYS = re.compile(r"(?:^|/)(train|val)/(image|label|label_7|label_19|depth)/(\d+)\.npy$")


class Cityscapes(DensePipeline):
    """CityScapes: 7 categories or 19 classes, and inverse depth.

    The source has one of three layouts: the official files, extracted or in their zips, `leftImg8bit`, `gtFine`
    (`labelIds`) and `disparity`, each with `{train,val}/<city>/`; or arrays, `{train,val}/{image,label,depth}/N.npy`
    (`label_7` or `label_19` takes precedence over `label`), as MTAN and LibMTL use them; or a set of the `datasets`
    library with the columns image, segmentation (segmentation_7 or segmentation_19 takes precedence) and depth or
    disparity.

    Inverse depth is the disparity in pixels of the full image, (value - 1) / 256; 0 and infinitely far points are
    absent. Labels that the official evaluation ignores are void, in the categories too. Arrays keep their own scale of
    depth, which differs. The official validation part is the test split; validation is carved out of train by image.
    """

    name: ClassVar[str] = "cityscapes"
    source: ClassVar[str] = "Cordts et al., CVPR 2016; cityscapes-dataset.com"
    folder: ClassVar[str] = "cityscapes"
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    delta: ClassVar[tuple[str, ...]] = SEGMENTATION_AND_DEPTH
    hub: ClassVar[bool] = True

    size: tuple[int, ...] = knob((128, 256), help="height and width in pixels")
    classes: int = knob(7, choices=(7, 19), help="of the segmentation")

    def selects(self, name: str) -> bool:
        return bool(_OFFICIAL.search(name) or _ARRAYS.search(name))

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        if is_hub_folder(source):
            return self._prepare_hub(HubFolder(self.name, source), context)

        store = self.store(source)
        samples: dict[tuple[str, str], dict[str, str]] = {}
        arrays = any(name.endswith(".npy") for name in store.names)
        for name in store.names:
            if arrays and (match := _ARRAYS.search(name)):
                part, kind, number = match.groups()
                samples.setdefault((part, f"{part}/{int(number):04d}"), {})[kind] = name
            elif (match := _OFFICIAL.search(name)) and match[4] == _SUFFIX[match[1]]:
                samples.setdefault((match[2], f"{match[2]}/{match[3]}"), {})[_PARTS[match[1]]] = name

        if not samples:
            raise UserError(
                f"cityscapes: {source} has neither leftImg8bit/train/*/*_leftImg8bit.png nor train/image/*.npy"
            )

        for files in samples.values():
            if f"label_{self.classes}" in files:
                files["label"] = files[f"label_{self.classes}"]

        parts = ["image", "label", "depth"]
        rows, problems = self.rows(store, samples, parts)
        layout = "arrays" if arrays else "official"
        return self._prepared(layout, str(store.root), rows, parts, problems, context)

    def _prepare_hub(self, hub: HubFolder, context: PrepareContext) -> Prepared:
        count = self.classes
        names = {
            "image": ("image", "left_image"),
            "label": (f"segmentation_{count}", f"label_{count}", "segmentation", "semantic_segmentation", "label"),
            "depth": ("depth", "disparity", "inverse_depth"),
        }
        columns = hub.columns(names)
        rows = self.hub_rows(hub, columns, test="val")
        return self._prepared("hub", str(hub.root), rows, list(columns), [], context)

    def _prepared(
        self,
        layout: str,
        root: str,
        rows: list[dict[str, Any]],
        parts: list[str],
        problems: list[tuple[str, str]],
        context: PrepareContext,
    ) -> Prepared:
        suite = image_suite(self.name, [segmentation_task(CLASSES[self.classes]), depth_task()], self.height_width)
        suite = replace(suite, extras={"inverse": ["depth"]})  # larger is nearer: a zoom multiplies it

        decode = partial(decode_scene, size=self.height_width, count=self.classes)
        index = index_table(rows, parts)
        return prepared_images(
            suite, index, decode, columns_of(suite), root, problems, context, self.encoded_modality, {"layout": layout}
        )


def decode_scene(row: Row, files: Files, size: Size, count: int) -> dict[str, np.ndarray]:
    """Decode a row of the official files, or of arrays, told apart by their bytes: image, class map, inverse depth."""
    image, original_size = picture(files("image"), size)
    read_labels = npy_labels if is_array(files("label")) else _label_ids
    segmentation = read_labels(files, count, original_size, size)
    inverse = npy_depth(files, original_size) if is_array(files("depth")) else _disparity(files, original_size)
    return {"input": image, "target.segmentation": segmentation, "target.depth": nearest(inverse, size)}


def _label_ids(files: Files, count: int, before: Size, size: Size) -> np.ndarray:
    labels = values(files("label"), BYTES, "8 bits")
    same_size(labels.shape, before)
    return nearest(classes(labels, LABELS[count], "the label ids 0..33"), size)


def _disparity(files: Files, before: Size) -> np.ndarray:
    disparity = values(files("depth"), WORDS, "16 bits")
    same_size(disparity.shape, before)
    return depth((disparity.astype(np.float32) - 1) / 256, disparity > 1)
