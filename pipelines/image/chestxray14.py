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

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import carve_validation, hash_split
from mtlscale.data.tables.raw_files import Problems, decoded
from pipelines._images.indexed_images import DecodedColumn, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._images.pixels import colour
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared

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
NO_FINDING = "No Finding"
TABLES = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
LISTS = {"train": "train_val_list.txt", "test": "test_list.txt"}
COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
SPLIT_FRACTIONS = {"train": 0.8, "val": 0.1, "test": 0.1}
_IMAGE = re.compile(r"(?:^|/)(\d{8}_\d{3}\.png)$")


@dataclass(frozen=True)
class ImageEntry:
    """Entry of the table for one image."""

    patient: str
    labels: Sequence[int] | str  # 0 or 1 per finding, or the problem with them


class ChestXray14(ImagePipeline):
    """ChestX-ray14: a binary task for each of 14 findings on radiographs scaled to size x size pixels.

    The source is one folder with the official files: `Data_Entry_2017.csv` (or its version of 2020),
    `train_val_list.txt`, `test_list.txt`, and the pictures, extracted below `images_001` to `images_012`, in one
    folder, or in zips. "No Finding" is 0 in all tasks. Gray becomes three equal channels.

    `split: official` keeps the official test list, which shares no patient with the other list, holds out a share of
    the other list's patients for validation, and requires every listed picture. `own` takes the pictures that are
    present and decides 80/10/10 by a hash of the patient, so that no patient is in two splits.
    """

    name: ClassVar[str] = "chestxray14"
    source: ClassVar[str] = "Wang et al., CVPR 2017; nihcc.app.box.com/v/ChestXray-NIHCC"
    folder: ClassVar[str] = "chestxray14"
    delta: ClassVar[tuple[str, ...]] = ("auroc",)

    size: int = knob(224, low=8, high=1024, help="pixels of height and width")
    split: str = knob("official", choices=("official", "own"), help="the official test list, or 80/10/10 by patient")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="share of train's patients")

    def selects(self, name: str) -> bool:
        return bool(_IMAGE.search(name)) or name.rpartition("/")[2] in (*TABLES, *LISTS.values())

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        problems: Problems = []
        store = self.store(source)
        images = {match[1]: name for name in store.names if (match := _IMAGE.search(name))}
        if not images:
            raise UserError(f"chestxray14: {source} has no images_*/images/*.png, extracted or in a zip")

        entries = _entries(store)
        usable = {}
        for image, split in self._splits(store, images, entries, problems).items():
            entry = entries.get(image)
            if entry is None or isinstance(entry.labels, str):
                problems.append((image, f"is not in {TABLES[0]}" if entry is None else str(entry.labels)))
            else:
                usable[image] = (split, entry.labels)

        rows = [
            {"id": image.removesuffix(".png"), "split": split, "image": store.location(images[image])}
            for image, (split, _) in usable.items()
        ]

        index = index_table(rows, ["image"])
        labels = np.array([labels for _, labels in usable.values()], np.int8).reshape(-1, len(FINDINGS))
        for position, finding in enumerate(FINDINGS):
            index = index.append_column(f"target.{finding}", pa.array(labels[:, position]))

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
        columns = {"input": DecodedColumn("uint8", shape)}
        return prepared_images(
            suite, index, decode, columns, str(store.root), problems, context, self.encoded_modality, notes
        )

    def _splits(
        self, store: Store, images: Mapping[str, str], entries: Mapping[str, ImageEntry], problems: Problems
    ) -> dict[str, str]:
        """Return image -> split for the images that are present and wanted."""
        patient_of = {image: entry.patient for image, entry in entries.items()}
        if self.split == "own":
            return {
                i: hash_split(patient_of.get(i, i), SPLIT_FRACTIONS, self.name) for i in self.limited(sorted(images))
            }

        listed = {part: _listed(store, file) for part, file in LISTS.items()}
        training_patients = {patient_of[image] for image in listed["train"] if image in patient_of}
        overlap = next((image for image in listed["test"] if patient_of.get(image) in training_patients), None)
        if overlap is not None:
            raise UserError(f"chestxray14: the patient of {overlap} is in {LISTS['test']} and in {LISTS['train']}; "
                            "fetch both again, or split them with `split: own`")  # fmt: skip

        split_of = {}
        for part, listed_names in listed.items():
            if not any(image in images for image in listed_names):
                raise UserError(f"chestxray14: none of the {len(images)} images is in {LISTS[part]}; add the missing "
                                "images, or split them with `split: own`")  # fmt: skip
            for image in self.limited(sorted(listed_names)):
                if image not in images:
                    problems.append((image, f"is in {LISTS[part]}, but the image is missing; or use `split: own`"))
                elif part == "test":
                    split_of[image] = part
                else:
                    split_of[image] = carve_validation(patient_of.get(image, image), self.validation, self.name)

        listed_images = {image for listed_names in listed.values() for image in listed_names}
        problems += [(image, "is in no list") for image in sorted(images) if image not in listed_images]
        return split_of


def decode_radiograph(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    """Decode one radiograph to three channels of size x size pixels."""
    return {"input": colour(files("image"), (size, size))[0]}


def _text(store: Store, *names: str) -> str:
    for file in names:
        name = next((name for name in store.names if name.rpartition("/")[2] == file), None)
        if name is not None:
            return decoded(f"chestxray14: {file}", store.read(name))[0]
    raise UserError(f"chestxray14: {names[0]} is missing in {store.source}; it comes with the images")


def _listed(store: Store, file: str) -> list[str]:
    names = _text(store, file).split()
    invalid_name = next((name for name in names if not _IMAGE.fullmatch(name)), None)
    if invalid_name is not None or len(set(names)) < len(names) or not names:
        problem = f"names {invalid_name[:40]!r}, which is no image" if invalid_name else "names no image, or one twice"
        raise UserError(f"chestxray14: {file} {problem}; fetch it again")
    return names


def _entries(store: Store) -> dict[str, ImageEntry]:
    lines = csv.reader(_text(store, *TABLES).splitlines())
    header = [name.strip() for name in next(lines, [])]
    for name in COLUMNS:
        if name not in header:
            raise UserError(f"chestxray14: {TABLES[0]} has no column {name!r}; fetch it again")

    positions = [header.index(name) for name in COLUMNS]
    entries: dict[str, ImageEntry] = {}
    for row in lines:
        if len(row) <= max(positions):
            continue
        image, labels, patient = (row[position].strip() for position in positions)
        if image in entries:
            raise UserError(f"chestxray14: {TABLES[0]} has {image} twice; fetch it again")
        entries[image] = ImageEntry(patient, _labels(labels) if patient else f"has no patient in {TABLES[0]}")

    return entries


def _labels(text: str) -> list[int] | str:
    """Return 0 or 1 per finding, or the problem with the text."""
    names = [name.strip() for name in text.split("|")]
    unknown_name = next((name for name in names if name not in (*FINDINGS, NO_FINDING)), None)
    if unknown_name is not None or (NO_FINDING in names and len(names) > 1):
        return f"has the findings {text[:60]!r} in {TABLES[0]}, which are none of the 14"
    return [int(finding in names) for finding in FINDINGS]


def _without(index: pa.Table) -> dict[str, dict[str, list[str]]]:
    """Return, as a note, the findings that no picture of a split has: no area under the curve exists there."""
    splits = index["split"].to_numpy(zero_copy_only=False)
    missing_findings = {
        split: [name for name in FINDINGS if not index[f"target.{name}"].to_numpy()[splits == split].any()]
        for split in SPLITS
    }
    missing_findings = {split: names for split, names in missing_findings.items() if names}
    return {"without_positives": missing_findings} if missing_findings else {}
