"""CelebA: 40 binary attributes of aligned faces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.data.splits import hash_split
from mtlscale.spec import Task, TaskSuite, UserError, knob
from pipelines._base import Prepared, Work
from pipelines._image_set import Column, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._pixels import colour
from pipelines._store import Store

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
PARTS = {"0": "train", "1": "val", "2": "test"}
OWN = {"train": 0.8, "val": 0.1, "test": 0.1}
_IMAGE = re.compile(r"(?:^|/)img_align_celeba/(\d{6}\.jpg)$")


class Celeba(ImagePipeline):
    """CelebA: one binary task per face attribute, aligned images scaled to size x size pixels.

    The official files, extracted or in their zips, in one folder: `img_align_celeba/*.jpg`,
    `list_attr_celeba.txt`, `list_eval_partition.txt`, optionally `identity_CelebA.txt`. `split="official"` takes the
    official partition and wants every image it lists; `"own"` takes the images at hand and decides 80/10/10 by a hash
    of the person, or of the image where identities are unknown: then one person may be in two splits. The whole
    aligned image is scaled, its aspect given up, as is usual for 64 x 64.
    """

    name: ClassVar[str] = "celeba"
    source: ClassVar[str] = "Liu, Luo, Wang & Tang, ICCV 2015; mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    folder: ClassVar[str] = "celeba"

    size: int = knob(64, low=8, high=1024, help="pixels of height and width")
    attributes: str = knob("nine", choices=("nine", "all"), help="the nine of CelebA-9, or all 40")
    split: str = knob("official", choices=("official", "own"), help="the official partition, or 80/10/10 by hash")

    def wanted(self, name: str) -> bool:
        return bool(_IMAGE.search(name)) or name.rpartition("/")[2] in (ATTRIBUTES, PARTITION, IDENTITY)

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        store = Store(source, self.wanted)
        images = {m.group(1): name for name in store.names if (m := _IMAGE.search(name))}
        if not images:
            raise UserError(f"celeba: {source} has no img_align_celeba/*.jpg, extracted or in a zip")
        header, attributes = _attributes(_text(store, ATTRIBUTES))
        split_of, problems = self._splits(store, images)
        wanted = NINE if self.attributes == "nine" else tuple(header)
        places = [_place(header, name) for name in wanted]
        rows: list[dict[str, Any]] = []
        labels: list[list[int]] = []
        for image, split in split_of.items():
            found = _labels(attributes.get(image), len(header))
            if isinstance(found, str):
                problems.append((image, found))
            else:
                rows.append({"id": image[:6], "split": split, "image": store.location(images[image])})
                labels.append([found[place] for place in places])
        index = index_table(rows, ["image"])
        columns = np.array(labels, np.int8).reshape(-1, len(wanted))
        for number, name in enumerate(wanted):
            index = index.append_column(f"target.{name}", pa.array(columns[:, number]))
        shape = (3, self.size, self.size)
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(Task(name=name, loss="bce", outputs=1, metrics=("error", "accuracy", "f1")) for name in wanted),
            inputs="shared",
            input_kind="image",
            input_shape=shape,
        )
        decode = partial(decode_face, size=self.size)
        notes = {"images_found": len(images), "images_listed": len(attributes)}
        return prepared_images(
            suite, index, decode, {"input": Column("uint8", shape)}, str(store.root), problems, work, notes
        )

    def _splits(self, store: Store, images: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Image -> split, and the images the lists and the folder disagree about."""
        if self.split == "own":
            person = _pairs(_text(store, IDENTITY), IDENTITY) if _named(store, IDENTITY) else None
            used = self.limited(sorted(images))
            missing = [(i, f"is not in {IDENTITY}") for i in used if person is not None and i not in person]
            person = person if person is not None else {image: image for image in used}
            return {i: hash_split(person[i], OWN, self.name) for i in used if i in person}, missing
        partition = _pairs(_text(store, PARTITION), PARTITION)
        for image, part in partition.items():
            if part not in PARTS:
                raise UserError(f"celeba: {PARTITION} has {image} in part {part!r}, expected 0, 1 or 2; fetch it again")
        found, problems = {}, []
        for part, split in PARTS.items():
            listed = sorted(image for image, its in partition.items() if its == part)
            if listed and not any(image in images for image in listed):
                raise UserError(
                    f"celeba: none of the {len(images)} images is in the {split} part of {PARTITION}; "
                    "add the missing images, or split them with `split: own`"
                )
            for image in self.limited(listed):
                if image in images:
                    found[image] = split
                else:
                    problems.append((image, f"is in {PARTITION}, but the image is missing; or use `split: own`"))
        problems += [(image, f"is not in {PARTITION}") for image in sorted(images) if image not in partition]
        return found, problems


def decode_face(row: Row, files: Files, size: int) -> dict[str, np.ndarray]:
    return {"input": colour(files("image"), (size, size))[0]}


def _named(store: Store, file: str) -> str | None:
    return next((name for name in store.names if name.rpartition("/")[2] == file), None)


def _text(store: Store, file: str) -> str:
    name = _named(store, file)
    if name is None:
        raise UserError(f"celeba: {file} is missing in {store.source}; it comes with the official annotations")
    return store.read(name).decode("latin-1")


def _attributes(text: str) -> tuple[list[str], dict[str, str]]:
    """The names, and image -> its line's numbers, not taken apart yet."""
    lines = text.split("\n")
    count, header = lines[0].strip(), lines[1].split() if len(lines) > 1 else []
    rows = dict(line.split(None, 1) for line in lines[2:] if len(line.split(None, 1)) == 2)
    if not header or not count.isdigit() or int(count) != len(rows):
        raise UserError(f"celeba: {ATTRIBUTES} announces {count!r} images and lists {len(rows)}; fetch it again")
    return header, rows


def _place(header: list[str], name: str) -> int:
    if name not in header:
        raise UserError(f"celeba: {ATTRIBUTES} has no attribute {name}; fetch it again")
    return header.index(name)


def _labels(line: str | None, count: int) -> list[int] | str:
    """0 or 1 per attribute, or what is wrong."""
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
