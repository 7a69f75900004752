"""A small transfer: three classes in two domains, the target turned a little and moved."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import knob
from pipelines import Pipeline, PrepareContext, Prepared
from pipelines.domains._adaptation import Domain, adaptation

CLASSES, FEATURES = ("cup", "lamp", "shoe"), 6


class TwoDomains(Pipeline):
    """50 samples of the source `shop` and 33 of the target `street`."""

    name: ClassVar[str] = "two_domains"
    needs_source: ClassVar[bool] = False

    scale: float = knob(1.0, low=0.0, help="of all features; 0: there is nothing in them")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        centres, turn = rng.normal(size=(3, FEATURES)), np.eye(FEATURES)
        turn[:2, :2] = [[0.8, -0.6], [0.6, 0.8]]
        domains = []
        for name, rows in (("shop", 50), ("street", 33)):
            labels = np.arange(rows) % 3
            features = centres[labels] + 0.5 * rng.normal(size=(rows, FEATURES))
            if name == "street":
                features = features @ turn + 0.5
            ids = np.array([f"{name}/{row:02d}" for row in range(rows)])
            domains.append(Domain(name, ids, (self.scale * features).astype(np.float32), labels))
        return adaptation(self.name, CLASSES, *domains, 0.2, self.name)
