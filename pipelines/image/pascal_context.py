"""Dense prediction on PASCAL's images, as multi-task work has it (PASCAL-Context)."""

from __future__ import annotations

import io
import json
import re
import zlib
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mtlscale.config import MISSING_CLASS, Task, UserError, knob
from pipelines._images.dense_images import (
    DensePipeline,
    columns_of,
    image_suite,
    map_task,
    normals_task,
    segmentation_task,
)
from pipelines._images.indexed_images import Files, Row, index_table, prepared_images
from pipelines._images.pixels import (
    BYTES,
    BadImage,
    Size,
    classes,
    colour,
    filtered,
    nearest,
    same_size,
    table_of,
    unit_normals,
    values,
)
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared

VOC = (
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
PARTS = ("background", "head", "torso", "upper arm", "lower arm", "upper leg", "lower leg")
# PASCAL-Part's names of a person's parts, merged into the six of multi-task work.
PART_OF = {
    **dict.fromkeys(("hair", "head", "lear", "rear", "lebrow", "rebrow", "leye", "reye", "mouth", "nose"), 1),
    **dict.fromkeys(("neck", "torso"), 2),
    **dict.fromkeys(("luarm", "ruarm"), 3),
    **dict.fromkeys(("llarm", "rlarm", "lhand", "rhand"), 4),
    **dict.fromkeys(("luleg", "ruleg"), 5),
    **dict.fromkeys(("llleg", "rlleg", "lfoot", "rfoot"), 6),
}
PERSON = 15  # PASCAL VOC's number of the class
TASKS = {
    "segmentation": segmentation_task(VOC),
    "parts": segmentation_task(PARTS, "parts"),
    "saliency": Task(
        name="saliency",
        loss="cross_entropy",
        outputs=2,
        metrics=("miou", "max_f"),
        classes=("background", "salient"),
    ),
    "normals": normals_task(more=("angle_rmse",)),
    "edges": map_task("edges"),
}
LABELS = table_of({number: number for number in range(len(VOC))}, void=(255,))
_NEEDS = {  # task -> its part of a sample, as messages name it
    "segmentation": "semseg",
    "parts": "human_parts",
    "saliency": "sal_distill",
    "normals": "normals_distill",
    "edges": "pascal-context/trainval",
}
_LIST = re.compile(r"(?:^|/)ImageSets/Context/(train|val)\.txt$")
_JSON = re.compile(r"(?:^|/)(?:json|db_info)/(nyu_classes|context_classes)\.json$")
_FILE = re.compile(
    r"(?:^|/)(?:(JPEGImages)/(\w+)\.jpg|(semseg)/(?:VOC12|pascal-context)/(\w+)\.png|"
    r"(human_parts|pascal-context/trainval)/(\w+)\.mat|(sal_distill|normals_distill)/(\w+)\.png)$"
)


class PascalContext(DensePipeline):
    """PASCAL-Context: 21-class segmentation, 7-class human parts, saliency, surface normals, edges.

    The source is the folder of Maninis et al., CVPR 2019, which is in common use: `JPEGImages`,
    `ImageSets/Context/{train,val}.txt`, `semseg/VOC12` (which takes precedence over `semseg/pascal-context`),
    `human_parts/*.mat` (PASCAL-Part), `sal_distill` (8 bits, salient above half), `normals_distill` (v / 127.5 - 1),
    `pascal-context/trainval/*.mat` (label maps, whose borders are the edges). The official validation part is the test
    split; validation is carved out of train by image. Images are scaled to one size without keeping their aspect ratio.

    Images without an annotated person have no part labels. Normals count on the classes that `json/nyu_classes.json`
    and `context_classes.json` share (and tvmonitor) where these and the label maps are present, else everywhere. An
    edge is a pixel whose right or lower neighbour has another label: one pixel wide without the thinning of the usual
    code. The thesis has the first four tasks.
    """

    name: ClassVar[str] = "pascal_context"
    source: ClassVar[str] = "Mottaghi et al., CVPR 2014; labels of Chen et al. 2014 and Maninis et al. 2019"
    picture: ClassVar[str] = "JPEGImages"
    folder: ClassVar[str] = "pascal_context"
    results_version: ClassVar[int] = 2  # normals are also measured by the root of the mean square
    delta: ClassVar[tuple[str, ...]] = (
        "miou",
        "max_f",
        "angle_mean",
        "angle_rmse",
        "within_11.25",
        "within_22.5",
        "within_30",
    )

    size: tuple[int, ...] = knob((256, 256), help="height and width in pixels")
    tasks: tuple[str, ...] = knob(tuple(TASKS), help="which of the five")

    def __post_init__(self) -> None:
        super().__post_init__()
        for task in self.tasks:
            if task not in TASKS:
                raise UserError(f"pascal_context: tasks has {task!r}, which is none of {', '.join(TASKS)}")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise UserError("pascal_context: tasks should name at least one task, and none twice")

    def selects(self, name: str) -> bool:
        return bool(_FILE.search(name) or _LIST.search(name) or _JSON.search(name))

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None

        store = self.store(source)
        files_of: dict[str, dict[str, str]] = {}
        for name in store.names:  # in order: VOC12 comes before pascal-context
            if match := _FILE.search(name):
                part, id = (group for group in match.groups() if group)
                files_of.setdefault(id, {}).setdefault(part, name)

        shared = _shared_classes(store) if "normals" in self.tasks else None
        needs = [_NEEDS[task] for task in self.tasks]
        if shared is not None and _NEEDS["edges"] not in needs:
            needs.append(_NEEDS["edges"])  # the label maps say where normals count

        rows, problems = self.rows(store, self._listed(store, files_of), ["JPEGImages", *needs])

        suite = image_suite(self.name, [TASKS[task] for task in self.tasks], self.height_width)
        decode = partial(decode_scene, size=self.height_width, tasks=self.tasks, shared=shared)
        index = index_table(rows, ["JPEGImages", *needs])

        notes = (
            {"normals_on": "shared classes" if shared is not None else "all pixels"} if "normals" in self.tasks else {}
        )

        return prepared_images(
            suite, index, decode, columns_of(suite), str(store.root), problems, context, self.encoded_modality, notes
        )

    def _listed(self, store: Store, split_lists: dict[str, dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        """Return (part, id) -> files for the images that the two lists name."""
        lists = {match[1]: name for name in store.names if (match := _LIST.search(name))}

        result = {}
        for part in ("train", "val"):
            if part not in lists:
                raise UserError(f"pascal_context: ImageSets/Context/{part}.txt is missing in {store.source}")
            for id in store.read(lists[part]).decode().split():
                if ("train", id) in result:
                    raise UserError(f"pascal_context: {id} is in both lists of ImageSets/Context; remove it from one")
                result[part, id] = split_lists.get(id, {})
        return result


def decode_scene(
    row: Row, files: Files, size: Size, tasks: tuple[str, ...], shared: frozenset[int] | None
) -> dict[str, np.ndarray]:
    """Decode a row: the image and the target map of every chosen task."""
    image, original_size = colour(files("JPEGImages"), size)
    result = {"input": image}

    if "segmentation" in tasks:
        labels = values(files("semseg"), BYTES, "8 bits")
        same_size(labels.shape, original_size)
        result["target.segmentation"] = nearest(classes(labels, LABELS, "the 21 classes"), size)
    if "parts" in tasks:
        result["target.parts"] = nearest(human_parts(_matlab(files("human_parts")), original_size), size)
    if "saliency" in tasks:
        saliency = values(files("sal_distill"), BYTES, "8 bits")
        same_size(saliency.shape, original_size)
        result["target.saliency"] = nearest(saliency > 127, size)

    context = label_map(files, original_size) if _NEEDS["edges"] in row else None
    if "edges" in tasks:
        assert context is not None
        result["target.edges"] = filtered(borders(context), size)

    if "normals" in tasks:
        vectors = values(files("normals_distill"), ("RGB",), "three times 8 bits") / 127.5 - 1
        same_size(vectors.shape[:2], original_size)
        valid = np.linalg.norm(vectors, axis=-1) > 0.5
        if shared is not None and context is not None:
            valid &= np.isin(context, list(shared))
        # An image may show none of the classes with normals; that is not an error.
        unit = unit_normals(vectors, valid) if valid.any() else np.full(vectors.shape, np.nan, np.float32)
        result["target.normals"] = nearest(unit, size).transpose(2, 0, 1)

    return result


def label_map(files: Files, before: Size) -> np.ndarray:
    """Return the label of every pixel among the 459 of PASCAL-Context."""
    labels = _matlab(files(_NEEDS["edges"])).get("LabelMap")
    if labels is None or labels.ndim != 2:
        raise BadImage("has no LabelMap")
    same_size(labels.shape, before)
    return labels


def borders(labels: np.ndarray) -> np.ndarray:
    """Return a map that is 1.0 where the right or the lower neighbour has another label."""
    edges = np.zeros(labels.shape, bool)
    edges[:, :-1] = labels[:, :-1] != labels[:, 1:]
    edges[:-1] |= labels[:-1] != labels[1:]
    return edges.astype(np.float64)


def human_parts(content: dict[str, Any], before: Size) -> np.ndarray:
    """Convert PASCAL-Part's annotation to 0 background, 1..6 parts; MISSING_CLASS if no person has parts."""
    try:
        target = np.full(before, MISSING_CLASS, np.int8)

        for person in np.atleast_1d(content["anno"].objects):
            if int(person.class_ind) != PERSON or not np.size(person.parts):
                continue

            same_size(np.shape(person.mask), before)
            target = np.maximum(target, 0)
            for part in np.atleast_1d(person.parts):
                if str(part.part_name) not in PART_OF:
                    raise BadImage(f"has the part {part.part_name}, which no person has")
                target[np.asarray(part.mask, bool)] = PART_OF[str(part.part_name)]

        return target
    except (KeyError, AttributeError, TypeError, IndexError) as error:
        raise BadImage(f"is no annotation of PASCAL-Part ({error})") from None


def _matlab(raw: bytes) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        return loadmat(io.BytesIO(raw), squeeze_me=True, struct_as_record=False)  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError, IndexError, OSError, EOFError, NotImplementedError, zlib.error) as error:
        raise BadImage(
            f"is corrupt or no .mat file ({str(error).splitlines()[0] if str(error) else 'empty'})"
        ) from None


def _shared_classes(store: Store) -> frozenset[int] | None:
    """Return the numbers of PASCAL-Context's classes that NYU has, too; None without the two lists."""
    names = {match[1]: name for name in store.names if (match := _JSON.search(name))}
    if len(names) < 2:
        return None
    try:
        nyu = set(json.loads(store.read(names["nyu_classes"])))
        context = dict(json.loads(store.read(names["context_classes"])))
        return frozenset(int(number) for name, number in context.items() if name in (nyu | {"tvmonitor"}) - {"unknown"})
    except (ValueError, TypeError) as error:
        raise UserError(
            f"pascal_context: {' or '.join(names.values())} cannot be read ({error}); fetch it again"
        ) from None
