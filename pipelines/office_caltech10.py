"""Office-Caltech10: ten classes in four domains, one transfer between two of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.spec import UserError, knob
from pipelines._base import Pipeline, Prepared, Work
from pipelines._domains import Domain, adaptation
from pipelines._mat import read_mat

DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
CLASSES = (
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector",
)  # fmt: skip
ARRAYS = "efficientnet_lite0_128.npz"


class OfficeCaltech10(Pipeline):
    """Office-Caltech10 (Gong et al., CVPR 2012): the ten classes that Office-31 and Caltech-256 share, on features.

    A transfer from the labelled domain `source` to the unlabelled `target`. `features`: efficientnet_lite0, of a frozen
    ImageNet network (`efficientnet_lite0_128.npz`, `x_<domain>` and `y_<domain>`); surf, the set's own SURF-800 bags
    (`surf/<domain>.mat`), each row divided by its sum and standardised within its domain, as is usual.
    """

    name: ClassVar[str] = "office_caltech10"
    source: ClassVar[str] = "Gong, Shi, Sha & Grauman, CVPR 2012"
    folder: ClassVar[str] = "office_caltech10"
    needs_source: ClassVar[bool] = True

    domain: str = knob("amazon", choices=DOMAINS, help="the labelled source")
    target: str = knob("webcam", choices=DOMAINS, help="the target, whose labels test alone has")
    features: str = knob("efficientnet_lite0", choices=("efficientnet_lite0", "surf"), help="what the inputs are")
    validation: float = knob(0.2, low=0.0, high=0.5, open_low=True, help="share of the source held out, by class")
    split: int = knob(0, low=0, help="which random validation part")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain == self.target:
            raise UserError(f"office_caltech10: source and target are both {self.domain}; choose two domains")

    def expected(self) -> tuple[str, ...]:
        if self.features == "surf":
            return tuple(f"surf/{domain}.mat" for domain in (self.domain, self.target))
        return (ARRAYS,)

    def source_fingerprint(self, located: Path | None) -> str:
        assert located is not None
        digest = hashlib.sha256()
        for name in self.expected():
            digest.update((located / name).read_bytes())
        return digest.hexdigest()

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        domains = [self._domain(source, name) for name in (self.domain, self.target)]
        return adaptation(self.name, CLASSES, *domains, self.validation, f"{self.name}/{self.split}")

    def _domain(self, folder: Path, name: str) -> Domain:
        if self.features == "surf":
            content = read_mat(folder / "surf" / f"{name}.mat")
            values, labels = content["fts"].astype(np.float64), content["labels"].ravel().astype(int) - 1
            values /= np.maximum(values.sum(1, keepdims=True), 1e-12)
            deviation = values.std(0)
            values = (values - values.mean(0)) / np.where(deviation > 0, deviation, 1.0)
        else:
            with np.load(folder / ARRAYS, allow_pickle=False) as content:
                order = [CLASSES.index(str(one)) for one in content["classes"]]
                values = content[f"x_{name}"].astype(np.float32)
                labels = np.array(order)[content[f"y_{name}"]]
        ids = np.array([f"{name}/{row:04d}" for row in range(len(labels))])
        return Domain(name, ids, values, labels)
