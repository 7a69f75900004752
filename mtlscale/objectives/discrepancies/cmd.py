"""CMD: moments of features, order by order."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.config import knob
from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import moment_discrepancy


class CMD(Discrepancy):
    """Central moment discrepancy: means and central moments of two domains' features are pulled together.

    It is defined for features in [0, 1], so features pass through a sigmoid first (ours; the paper's layer ends in
    one).
    """

    name: ClassVar[str] = "cmd"
    source: ClassVar[str] = "Zellinger et al., ICLR 2017"

    moments: int = knob(5, low=1, high=10, help="K, the highest moment")

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return moment_discrepancy(source.features.sigmoid(), target.features.sigmoid(), self.moments)
