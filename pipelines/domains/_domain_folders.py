"""Sets of pictures in folders, `<domain>/<class>/<picture>`, and the transfer between two of their domains.

To add such a set, define a class with a name, a source, its `places` and the choices of `domain` and `target`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mtlscale.config import UserError, knob, named_files
from mtlscale.data.tables.raw_files import Problems
from pipelines._images.backbones import BACKBONES, FRAMES, LITE, Backbone
from pipelines._images.image_features import picture_features
from pipelines._images.indexed_images import ImagePipeline
from pipelines._sources.file_store import Store
from pipelines.contract import PrepareContext, Prepared
from pipelines.domains._adaptation import Domain, Pictured, adaptation, adaptation_of_images, check_classes

PICTURES = r"[^/]+\.(?i:jpe?g|png|bmp)"
INPUTS = ("backbone", "images")


class DomainFolders(ImagePipeline):
    """Pipeline of one transfer: all pictures of the labelled domain, and those of the target."""

    ray_from_bytes: ClassVar[float] = 64e6  # Ray pays off sooner with a network than with decoding alone
    places: ClassVar[Mapping[str, str]]  # domain -> pattern of its folder, which holds the folders of the classes
    layout: ClassVar[str] = "<domain>/<class>/*.jpg"

    limit: int = knob(0, low=0, high=1e9, help="only the first so many pictures of each class of a domain; 0: all")
    domain: str = knob("", help="the labelled source")
    target: str = knob("", help="the target, whose labels test alone has")
    features: str = knob("backbone", choices=INPUTS, help="the inputs: features of a frozen network, or pixels")
    backbone: str = knob(LITE, choices=BACKBONES, help="the frozen network")
    weights: str | None = knob(None, file=True, help="file of torchvision's weights of the backbone; none: its package")
    image_size: int = knob(224, low=8, high=1024, help="pixels of height and width")
    frame: str = knob("crop", choices=FRAMES, help="what a backbone sees: the middle, 7/8 of the shorter side; or all")
    validation: float = knob(0.2, low=0.0, high=0.5, open_low=True, help="share of the source held out, by class")
    split: int = knob(0, low=0, help="which random validation part")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain == self.target:
            raise UserError(f"{self.name}: source and target are both {self.domain}; choose two domains")
        if self.encoded and self.features != "images":
            raise UserError(f"{self.name}: `encoded` keeps pictures, and these are features; set `features: images`")

    def options(self) -> dict[str, Any]:
        """Return the knobs without those that have no effect here; weights count by their content."""
        options = super().options()
        unused = {"backbone": [], "images": ["backbone", "weights", "frame"]}.get(
            self.features, ["backbone", "weights", "frame", "image_size", "limit"]
        )
        options = {name: value for name, value in options.items() if name not in unused}
        return named_files.identity(
            options | {"weights": named_files.with_content_hash(self.weights)} if "weights" in options else options
        )

    def selects(self, name: str) -> bool:
        """Return whether a file is a picture of one of the two domains."""
        return any(self.class_of(domain, name) is not None for domain in (self.domain, self.target))

    def class_of(self, domain: str, name: str) -> str | None:
        """Return the class of a picture of a domain, by its name below the source; None if it is none."""
        match = _pattern(self.places[domain]).search(name)
        return match[1] if match else None

    def labelled(self, store: Store, domain: str, problems: Problems) -> dict[str, str]:
        """Return the name of each picture of a domain -> its class."""
        class_by_name = {name: self.class_of(domain, name) for name in store.names}
        return {name: label for name, label in class_by_name.items() if label is not None}

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        """Return the suite and the tables of the transfer, on features or on pictures."""
        assert source is not None
        store, problems = self.store(source), Problems()
        pictures = {
            domain: self._pictures(self.labelled(store, domain, problems)) for domain in (self.domain, self.target)
        }
        for domain, labels in pictures.items():
            if not labels:
                raise UserError(f"{self.name}: {source} has no picture of the domain {domain}; expected {self.layout}, "
                                "in folders, a zip or a tar")  # fmt: skip

        classes = sorted({label for labels in pictures.values() for label in labels.values()})
        source_domain, target_domain = (
            self._domain(store, domain, pictures[domain], classes) for domain in (self.domain, self.target)
        )
        check_classes(self.name, classes, source_domain, target_domain)

        salt = f"{self.name}/{self.split}"
        if self.features == "images":
            pictured = Pictured(self.image_size, str(store.root), self.encoded_modality, problems)
            return adaptation_of_images(
                self.name, classes, source_domain, target_domain, self.validation, salt, pictured, context
            )

        if problems and not context.skip_bad:
            context.settle(problems, "images")

        backbone = Backbone(
            self.backbone, self.weights and named_files.with_content_hash(self.weights), self.image_size, self.frame
        )
        notes: dict[str, Any] = {"features": backbone.identity, "pictures_enlarged": 0}
        sets = {domain: [(name, store.files[name]) for name in labels] for domain, labels in pictures.items()}

        features = picture_features(store.root, sets, backbone, context)
        domains = []
        for located in (source_domain, target_domain):
            extracted = features[located.name]
            usable = ~extracted.bad
            domains.append(Domain(located.name, located.ids[usable], extracted.values[usable], located.labels[usable]))
            notes["pictures_enlarged"] += int(extracted.enlarged.sum())
            problems += extracted.problems

        prepared = adaptation(self.name, classes, domains[0], domains[1], self.validation, salt)
        return replace(prepared, notes=notes | context.settle(problems, "images"))

    def _domain(self, store: Store, name: str, labels: Mapping[str, str], classes: list[str]) -> Domain:
        """Return the locations of a domain's pictures, and their classes."""
        return Domain(
            name,
            np.array([f"{name}/{'/'.join(picture.split('/')[-2:])}" for picture in labels]),
            np.array([store.location(picture) for picture in labels], object),
            np.array([classes.index(label) for label in labels.values()]),
        )

    def _pictures(self, labels: dict[str, str]) -> dict[str, str]:
        """Return all pictures, or the first `limit` of each class."""
        counts: Counter[str] = Counter()
        chosen = {}
        for name, label in labels.items():
            counts[label] += 1
            if not self.limit or counts[label] <= self.limit:
                chosen[name] = label
        return chosen


@functools.cache
def _pattern(place: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|/){place}/([^/]+)/{PICTURES}$")
