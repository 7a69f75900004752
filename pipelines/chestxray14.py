"""ChestX-ray14: fourteen findings on chest radiographs."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.data.splits import carve_validation, hash_split
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError, knob
from pipelines._base import Prepared, Work
from pipelines._image_set import Column, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._pixels import colour
from pipelines._store import Store
from pipelines._text_files import Problems, decoded

FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
NOTHING = "No Finding"
TABLES = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
LISTS = {"train": "train_val_list.txt", "test": "test_list.txt"}
COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
OWN = {"train": 0.8, "val": 0.1, "test": 0.1}
_IMAGE = re.compile(r"(?:^|/)(\d{8}_\d{3}\.png)$")


@dataclass(frozen=True)
class Entry:
    """What the table says of an image."""

    patient: str
    labels: Sequence[int] | str  # 0 or 1 per finding, or what is wrong


class ChestXray14(ImagePipeline):
    """ChestX-ray14: a binary task for each of 14 findings on radiographs scaled to size x size pixels.

    The official files in one folder: `Data_Entry_2017.csv` (or its form of 2020), `train_val_list.txt`,
    `test_list.txt`, and the pictures, extracted below `images_001` to `images_012`, in one folder, or in zips. "No
    Finding" is 0 in all tasks. Gray becomes three equal channels. `split: official` keeps the official test list, which
    has no patient of the other, holds a share of the other's patients out for validation, and wants every picture that
    is listed; `own` takes the pictures at hand and decides 80/10/10 by a hash of the patient: no patient is in two
    splits.
    """

    name: ClassVar[str] = "chestxray14"
    source: ClassVar[str] = "Wang et al., CVPR 2017; nihcc.app.box.com/v/ChestXray-NIHCC"
    folder: ClassVar[str] = "chestxray14"
    delta: ClassVar[tuple[str, ...]] = ("auroc",)

    size: int = knob(224, low=8, high=1024, help="pixels of height and width")
    split: str = knob("official", choices=("official", "own"), help="the official test list, or 80/10/10 by patient")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="share of train's patients")

    def wanted(self, name: str) -> bool:
        return bool(_IMAGE.search(name)) or name.rpartition("/")[2] in (*TABLES, *LISTS.values())

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        problems: Problems = []
        store = self.store(source)
        images = {match[1]: name for name in store.names if (match := _IMAGE.search(name))}
        if not images:
            raise UserError(f"chestxray14: {source} has no images_*/images/*.png, extracted or in a zip")
        entries = _entries(store)
        kept = {}
        for image, split in self._splits(store, images, entries, problems).items():
            entry = entries.get(image)
            if entry is None or isinstance(entry.labels, str):
                problems.append((image, f"is not in {TABLES[0]}" if entry is None else str(entry.labels)))
            else:
                kept[image] = (split, entry.labels)
        rows = [
            {"id": image.removesuffix(".png"), "split": split, "image": store.location(images[image])}
            for image, (split, _) in kept.items()
        ]
        index = index_table(rows, ["image"])
        labels = np.array([labels for _, labels in kept.values()], np.int8).reshape(-1, len(FINDINGS))
        for place, finding in enumerate(FINDINGS):
            index = index.append_column(f"target.{finding}", pa.array(labels[:, place]))
        shape = (3, self.size, self.size)
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=name, loss="bce", outputs=1, metrics=("auroc", "f1", "accuracy")) for name in FINDINGS
            ),
            inputs="shared",
            input_kind="image",
            input_shape=shape,
        )
        notes = {"images_found": len(images), "images_in_table": len(entries)} | _without(index)
        decode = partial(decode_radiograph, size=self.size)
        columns = {"input": Column("uint8", shape)}
        return prepared_images(suite, index, decode, columns, str(store.root), problems, work, self.kept, notes)

    def _splits(
        self, store: Store, images: Mapping[str, str], entries: Mapping[str, Entry], problems: Problems
    ) -> dict[str, str]:
        """Image -> split, of the images that are there and wanted."""
        patient = {image: entry.patient for image, entry in entries.items()}
        if self.split == "own":
            return {i: hash_split(patient.get(i, i), OWN, self.name) for i in self.limited(sorted(images))}
        listed = {part: _listed(store, file) for part, file in LISTS.items()}
        trained = {patient[image] for image in listed["train"] if image in patient}
        both = next((image for image in listed["test"] if patient.get(image) in trained), None)
        if both is not None:
            raise UserError(f"chestxray14: the patient of {both} is in {LISTS['test']} and in {LISTS['train']}; fetch "
                            "both again, or split them with `split: own`")  # fmt: skip
        found = {}
        for part, names in listed.items():
            if not any(image in images for image in names):
                raise UserError(f"chestxray14: none of the {len(images)} images is in {LISTS[part]}; add the missing "
                                "images, or split them with `split: own`")  # fmt: skip
            for image in self.limited(sorted(names)):
                if image not in images:
                    problems.append((image, f"is in {LISTS[part]}, but the image is missing; or use `split: own`"))
                elif part == "test":
                    found[image] = part
                else:
                    found[image] = carve_validation(patient.get(image, image), self.validation, self.name)
        known = {image for names in listed.values() for image in names}
        problems += [(image, "is in no list") for image in sorted(images) if image not in known]
        return found


def decode_radiograph(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    return {"input": colour(files("image"), (size, size))[0]}


def _text(store: Store, *names: str) -> str:
    for wanted in names:
        name = next((name for name in store.names if name.rpartition("/")[2] == wanted), None)
        if name is not None:
            return decoded(f"chestxray14: {wanted}", store.read(name))[0]
    raise UserError(f"chestxray14: {names[0]} is missing in {store.source}; it comes with the images")


def _listed(store: Store, file: str) -> list[str]:
    names = _text(store, file).split()
    odd = next((name for name in names if not _IMAGE.fullmatch(name)), None)
    if odd is not None or len(set(names)) < len(names) or not names:
        problem = f"names {odd[:40]!r}, which is no image" if odd else "names no image, or one twice"
        raise UserError(f"chestxray14: {file} {problem}; fetch it again")
    return names


def _entries(store: Store) -> dict[str, Entry]:
    """Image -> its line of the table."""
    lines = csv.reader(_text(store, *TABLES).splitlines())
    header = [name.strip() for name in next(lines, [])]
    for name in COLUMNS:
        if name not in header:
            raise UserError(f"chestxray14: {TABLES[0]} has no column {name!r}; fetch it again")
    places = [header.index(name) for name in COLUMNS]
    found: dict[str, Entry] = {}
    for row in lines:
        if len(row) <= max(places):
            continue
        image, labels, patient = (row[place].strip() for place in places)
        if image in found:
            raise UserError(f"chestxray14: {TABLES[0]} has {image} twice; fetch it again")
        found[image] = Entry(patient, _labels(labels) if patient else f"has no patient in {TABLES[0]}")
    return found


def _labels(text: str) -> list[int] | str:
    """0 or 1 per finding, or what is wrong."""
    named = [name.strip() for name in text.split("|")]
    odd = next((name for name in named if name not in (*FINDINGS, NOTHING)), None)
    if odd is not None or (NOTHING in named and len(named) > 1):
        return f"has the findings {text[:60]!r} in {TABLES[0]}, which are none of the 14"
    return [int(finding in named) for finding in FINDINGS]


def _without(index: pa.Table) -> dict[str, dict[str, list[str]]]:
    """Findings that no picture of a split has: they have no area under a curve there."""
    splits = index["split"].to_numpy(zero_copy_only=False)
    found = {
        split: [name for name in FINDINGS if not index[f"target.{name}"].to_numpy()[splits == split].any()]
        for split in SPLITS
    }
    found = {split: names for split, names in found.items() if names}
    return {"without_positives": found} if found else {}
