"""VisDA-2017: twelve classes, rendered pictures and photographs, and a transfer between two of its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from mtlscale.config import UserError, knob
from mtlscale.data.tables.raw_files import Problems, decoded
from pipelines._sources.file_store import Store
from pipelines.domains._domain_folders import DomainFolders

DOMAINS = ("train", "validation", "test")
CLASSES = (
    "aeroplane", "bicycle", "bus", "car", "horse", "knife", "motorcycle", "person", "plant", "skateboard", "train",
    "truck",
)  # fmt: skip
LIST = "image_list.txt"


class Visda(DomainFolders):
    """VisDA-2017's classification track: 12 classes, a transfer from rendered pictures to photographs.

    The rendered pictures are the domain `train`, the photographs `validation` and `test`. The source has the official
    folders or tars: `train/<class>/*.png`, `validation/<class>/*.jpg`, `test/trunk*/*.jpg`. An `image_list.txt` in a
    part, with a picture and the number of its class on every line, decides which pictures the part has and what their
    classes are; `test` needs one. Inputs are features of a frozen network, or the pictures for a trainable one.
    """

    name: ClassVar[str] = "visda"
    source: ClassVar[str] = "Peng et al., 2017; ai.bu.edu/visda-2017"
    folder: ClassVar[str] = "visda"
    places: ClassVar[Mapping[str, str]] = {domain: domain for domain in DOMAINS}
    layout: ClassVar[str] = f"train/<class>/*.png and validation/<class>/*.jpg, or their {LIST}"

    domain: str = knob("train", choices=DOMAINS, help="the labelled source")
    target: str = knob("validation", choices=DOMAINS, help="the target, whose labels test alone has")

    def selects(self, name: str) -> bool:
        return super().selects(name) or any(_list_of(domain, name) for domain in (self.domain, self.target))

    def labelled(self, store: Store, domain: str, problems: Problems) -> dict[str, str]:
        lists = [name for name in store.names if _list_of(domain, name)]
        if not lists:
            class_of = super().labelled(store, domain, problems)
            unknown_class = next((label for label in class_of.values() if label not in CLASSES), None)
            if unknown_class is not None:
                raise UserError(f"visda: the folder {unknown_class} of {domain} is none of the 12 classes, "
                                f"and {domain} has no {LIST}; add it, or leave the folder out")  # fmt: skip
            return class_of

        folder = lists[0].rpartition("/")[0]
        text = decoded(f"visda: {lists[0]}", store.read(lists[0]))[0]

        class_of = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            picture, _, number = line.rpartition(" ")
            name = f"{folder}/{picture.strip()}"
            if not number.isdigit() or int(number) >= len(CLASSES):
                raise UserError(f"visda: {lists[0]} has the line {line[:60]!r}; expected a picture and its class, a "
                                "number from 0 to 11")  # fmt: skip

            if name not in store.files:
                problems.append((name, f"is in {lists[0]}, but the picture is missing"))
                continue
            class_of[name] = CLASSES[int(number)]

        return dict(sorted(class_of.items()))


def _list_of(domain: str, name: str) -> bool:
    return re.search(rf"(?:^|/){domain}/{re.escape(LIST)}$", name) is not None
