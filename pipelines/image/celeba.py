"""CelebA: 40 binary attributes of aligned faces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.data.sampling.splits import hash_split
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images.indexed_images import DecodedColumn, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._images.pixels import colour
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared

NINE = (
    "5_o_Clock_Shadow",
    "Black_Hair",
    "Blond_Hair",
    "Brown_Hair",
    "Goatee",
    "Mustache",
    "No_Beard",
    "Rosy_Cheeks",
    "Wearing_Hat",
)
ATTRIBUTES, PARTITION, IDENTITY = "list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt"
OFFICIAL_SPLITS = {"0": "train", "1": "val", "2": "test"}
SPLIT_FRACTIONS = {"train": 0.8, "val": 0.1, "test": 0.1}
VALUES = {"1": 1, "-1": 0, "0": 0, "True": 1, "False": 0}  # an attribute's values in a column of a set of the hub
_NUMBER = re.compile(r"(\d{6})\.jpg")
_IMAGE = re.compile(r"(?:^|/)img_align_celeba/(\d{6}\.jpg)$")


@dataclass(frozen=True)
class Face:
    """Usable image: its id, its split, its location, and 0 or 1 for every attribute."""

    id: str
    split: str
    location: str
    labels: Sequence[int]


class Celeba(ImagePipeline):
    """CelebA: one binary task per face attribute, aligned images scaled to size x size pixels.

    The source is one folder with the official files, extracted or in their zips: `img_align_celeba/*.jpg`,
    `list_attr_celeba.txt`, `list_eval_partition.txt` and, optionally, `identity_CelebA.txt`. Or it is a set of the
    `datasets` library with the columns image, one per attribute (true and false, 1 and -1, or 1 and 0) and, optionally,
    celeb_id.

    `split="official"` takes the official partition (for a set of the hub, its own splits) and requires every image that
    it lists. `"own"` takes the images that are present and decides 80/10/10 by a hash of the person, or of the image
    where identities are unknown; then one person may be in two splits. The whole aligned image is scaled without
    keeping its aspect ratio, as is usual for 64 x 64.
    """

    name: ClassVar[str] = "celeba"
    source: ClassVar[str] = "Liu, Luo, Wang & Tang, ICCV 2015; mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    folder: ClassVar[str] = "celeba"
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    delta: ClassVar[tuple[str, ...]] = ("error",)
    hub: ClassVar[bool] = True

    size: int = knob(64, low=8, high=1024, help="pixels of height and width")
    attributes: str = knob("nine", choices=("nine", "all"), help="the nine of CelebA-9, or all 40")
    split: str = knob("official", choices=("official", "own"), help="the official partition, or 80/10/10 by hash")

    def selects(self, name: str) -> bool:
        return bool(_IMAGE.search(name)) or name.rpartition("/")[2] in (ATTRIBUTES, PARTITION, IDENTITY)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        problems: list[tuple[str, str]] = []
        if is_hub_folder(source):
            root, (header, faces, notes) = source, self._hub_faces(HubFolder(self.name, source), problems)
        else:
            store = self.store(source)
            root, (header, faces, notes) = store.root, self._faces(store, problems)

        attributes = NINE if self.attributes == "nine" else tuple(header)
        for name in attributes:
            if name not in header:
                raise UserError(f"celeba: {ATTRIBUTES} has no attribute {name}; fetch it again")
        positions = [header.index(name) for name in attributes]

        rows = [{"id": face.id, "split": face.split, "image": face.location} for face in faces]
        index = index_table(rows, ["image"])
        columns = np.array([[face.labels[position] for position in positions] for face in faces], np.int8)
        for number, name in enumerate(attributes):
            index = index.append_column(f"target.{name}", pa.array(columns.reshape(-1, len(attributes))[:, number]))

        shape = (3, self.size, self.size)
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=name, loss="bce", outputs=1, metrics=("error", "accuracy", "f1")) for name in attributes
            ),
            inputs="shared",
            input_kind="image",
            input_shape=shape,
        )

        decode = partial(decode_face, size=self.size)
        return prepared_images(
            suite,
            index,
            decode,
            {"input": DecodedColumn("uint8", shape)},
            str(root),
            problems,
            context,
            self.encoded_modality,
            notes,
        )

    def _faces(self, store: Store, problems: list[tuple[str, str]]) -> tuple[list[str], list[Face], dict[str, Any]]:
        """Return the attributes, the images of the official files, and notes."""
        images = {m.group(1): name for name in store.names if (m := _IMAGE.search(name))}
        if not images:
            raise UserError(f"celeba: {store.source} has no img_align_celeba/*.jpg, extracted or in a zip")

        header, attributes = _attributes(store)
        split_of, split_problems = self._splits(store, images)
        problems += split_problems

        faces = []
        for image, split in split_of.items():
            labels = _labels(attributes.get(image), len(header))
            if isinstance(labels, str):
                problems.append((image, labels))
            else:
                faces.append(Face(image[:6], split, store.location(images[image]), labels))

        return header, faces, {"images_found": len(images), "images_listed": len(attributes)}

    def _hub_faces(
        self, hub: HubFolder, problems: list[tuple[str, str]]
    ) -> tuple[list[str], list[Face], dict[str, Any]]:
        """Return the same for a set of the `datasets` library; ids are the pictures' numbers, or their rows."""
        attribute_columns = {name: (name,) for name in NINE} if self.attributes == "nine" else {}
        column = hub.columns(
            {"image": ("image", "img"), "person": ("celeb_id", "identity"), **attribute_columns}, ("person",)
        )

        faces: list[Face] = []
        parts = hub.split_names
        if self.split == "official" and len(parts) < len(SPLIT_FRACTIONS):
            raise UserError(f"celeba: {hub.root} has the splits {', '.join(parts)} alone; use `split: own`")
        header = [*NINE] if attribute_columns else _attribute_columns(hub, parts["train"])

        for part, split in parts.items():
            cells, paths = hub.cells(split, column["image"]), hub.paths(split, column["image"])
            people = hub.values(split, column["person"]) if "person" in column else None
            values = [hub.values(split, column.get(name, name)) for name in header]
            for row in range(len(cells))[: self.limit or None]:
                number = _NUMBER.fullmatch(paths[row] or "")
                id = number[1] if number else f"{part}{row:06d}"
                name = None if people is None else people[row]
                person = str(name) if name is not None else number[0] if number else id
                labels = [VALUES.get(str(value[row]), -1) for value in values]
                if -1 in labels:
                    attribute = header[labels.index(-1)]
                    problems.append((f"{split} row {row + 1}", f"has no 1, 0 or -1 in {attribute}"))
                    continue
                face_split = part if self.split == "official" else hash_split(person, SPLIT_FRACTIONS, self.name)
                faces.append(Face(id, face_split, cells[row], labels))

        return header, faces, {"images_found": len(faces)}

    def _splits(self, store: Store, images: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Return image -> split, and the images on which the lists and the folder disagree."""
        if self.split == "own":
            person_of = _pairs(_text(store, IDENTITY), IDENTITY) if _named(store, IDENTITY) else None
            chosen_images = self.limited(sorted(images))
            missing = [
                (i, f"is not in {IDENTITY}") for i in chosen_images if person_of is not None and i not in person_of
            ]
            person_of = person_of if person_of is not None else {image: image for image in chosen_images}
            return {
                i: hash_split(person_of[i], SPLIT_FRACTIONS, self.name) for i in chosen_images if i in person_of
            }, missing

        partition = _pairs(_text(store, PARTITION), PARTITION)
        for image, part in partition.items():
            if part not in OFFICIAL_SPLITS:
                raise UserError(f"celeba: {PARTITION} has {image} in part {part!r}, expected 0, 1 or 2; fetch it again")

        split_of, problems = {}, []
        for part, split in OFFICIAL_SPLITS.items():
            listed = sorted(image for image, image_part in partition.items() if image_part == part)
            if listed and not any(image in images for image in listed):
                raise UserError(
                    f"celeba: none of the {len(images)} images is in the {split} part of {PARTITION}; "
                    "add the missing images, or split them with `split: own`"
                )
            for image in self.limited(listed):
                if image in images:
                    split_of[image] = split
                else:
                    problems.append((image, f"is in {PARTITION}, but the image is missing; or use `split: own`"))

        problems += [(image, f"is not in {PARTITION}") for image in sorted(images) if image not in partition]
        return split_of, problems


def decode_face(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    """Decode one aligned face to size x size pixels."""
    return {"input": colour(files("image"), (size, size))[0]}


def _named(store: Store, file: str) -> str | None:
    return next((name for name in store.names if name.rpartition("/")[2] == file), None)


def _text(store: Store, file: str) -> str:
    name = _named(store, file)
    if name is None:
        raise UserError(f"celeba: {file} is missing in {store.source}; it comes with the official annotations, and "
                        "docs/datasets_images.md makes it of Kaggle's .csv")  # fmt: skip
    return store.read(name).decode("latin-1")


def _attributes(store: Store) -> tuple[list[str], dict[str, str]]:
    """Return the attribute names, and image -> the values of its line as one text."""
    lines = _text(store, ATTRIBUTES).split("\n")
    count, header = lines[0].strip(), lines[1].split() if len(lines) > 1 else []
    rows = dict(line.split(None, 1) for line in lines[2:] if len(line.split(None, 1)) == 2)
    if not header or not count.isdigit() or int(count) != len(rows):
        raise UserError(f"celeba: {ATTRIBUTES} announces {count!r} images and lists {len(rows)}; fetch it again")
    return header, rows


def _attribute_columns(hub: HubFolder, split: str) -> list[str]:
    """Return the columns that hold two values, in the order of the set."""
    names = [name for name in hub.integer_columns(split) if set(map(str, hub.values(split, name)[:64])) <= set(VALUES)]
    if not names:
        raise UserError(f"celeba: {hub.root} has no column of an attribute; it has {', '.join(hub.names(split))}")
    return names


def _labels(line: str | None, count: int) -> list[int] | str:
    """Return 0 or 1 per attribute, or the problem with the line."""
    if line is None:
        return f"is not in {ATTRIBUTES}"
    values = line.split()
    if len(values) != count or not set(values) <= {"1", "-1"}:
        return f"has no {count} values of 1 or -1 in {ATTRIBUTES}"
    return [int(value == "1") for value in values]


def _pairs(text: str, file: str) -> dict[str, str]:
    rows = [line.split() for line in text.split("\n") if line.strip()]
    if not rows or any(len(row) != 2 for row in rows):
        raise UserError(f"celeba: {file} should have an image and a number on every line; fetch it again")
    return {row[0]: row[1] for row in rows}
