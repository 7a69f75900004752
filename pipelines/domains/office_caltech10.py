"""Office-Caltech10: ten classes in four domains, and a transfer between two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import knob
from pipelines._formats.mat import read_mat
from pipelines.contract import Pipeline, PrepareContext, Prepared
from pipelines.domains._adaptation import Domain, adaptation
from pipelines.domains._domain_folders import INPUTS, DomainFolders

DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
CLASSES = (
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector",
)  # fmt: skip
ARRAYS = "efficientnet_lite0_128.npz"
GIVEN_FEATURES = ("efficientnet_lite0", "surf")  # features that come with the set


class OfficeCaltech10(DomainFolders):
    """Office-Caltech10 (Gong et al., CVPR 2012): the ten classes that Office-31 and Caltech-256 share.

    The task is a transfer from the labelled domain to the unlabelled `target`. `features` chooses the inputs:
    efficientnet_lite0, features of a frozen ImageNet network (`efficientnet_lite0_128.npz` with `x_<domain>` and
    `y_<domain>`); surf, the set's own SURF-800 bags (`surf/<domain>.mat`), each row divided by its sum and standardised
    within its domain, as is usual; backbone, features of a frozen network, and images, pixels for a trainable one, both
    from the pictures `<domain>/<class>/*.jpg` in folders or a zip.
    """

    name: ClassVar[str] = "office_caltech10"
    source: ClassVar[str] = "Gong, Shi, Sha & Grauman, CVPR 2012"
    folder: ClassVar[str] = "office_caltech10"
    places: ClassVar[Mapping[str, str]] = {
        domain: domain if domain != "caltech10" else "caltech(?:10)?" for domain in DOMAINS
    }

    domain: str = knob("amazon", choices=DOMAINS, help="the labelled source")
    target: str = knob("webcam", choices=DOMAINS, help="the target, whose labels test alone has")
    features: str = knob("efficientnet_lite0", choices=(*GIVEN_FEATURES, *INPUTS), help="what the inputs are")

    def expected(self) -> tuple[str, ...]:
        if self.features == "surf":
            return tuple(f"surf/{domain}.mat" for domain in (self.domain, self.target))
        return (ARRAYS,)

    def locate(self, source: Path) -> Path:
        return Pipeline.locate(self, source) if self.features in GIVEN_FEATURES else super().locate(source)

    def source_fingerprint(self, located: Path | None) -> str:
        if self.features not in GIVEN_FEATURES:
            return super().source_fingerprint(located)
        assert located is not None
        digest = hashlib.sha256()
        for name in self.expected():
            digest.update((located / name).read_bytes())
        return digest.hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        if self.features not in GIVEN_FEATURES:
            return super().prepare(source, context)
        assert source is not None
        source_domain, target_domain = (self._given_features(source, name) for name in (self.domain, self.target))
        return adaptation(
            self.name, CLASSES, source_domain, target_domain, self.validation, f"{self.name}/{self.split}"
        )

    def _given_features(self, folder: Path, name: str) -> Domain:
        if self.features == "surf":
            content = read_mat(folder / "surf" / f"{name}.mat")
            values, labels = content["fts"].astype(np.float64), content["labels"].ravel().astype(int) - 1
            values /= np.maximum(values.sum(1, keepdims=True), 1e-12)
            deviation = values.std(0)
            values = (values - values.mean(0)) / np.where(deviation > 0, deviation, 1.0)
        else:
            with np.load(folder / ARRAYS, allow_pickle=False) as content:
                order = [CLASSES.index(str(class_name)) for class_name in content["classes"]]
                values = content[f"x_{name}"].astype(np.float32)
                labels = np.array(order)[content[f"y_{name}"]]

        ids = np.array([f"{name}/{row:04d}" for row in range(len(labels))])
        return Domain(name, ids, values, labels)
