"""JAN: joint adaptation network."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import mean_discrepancy


class JAN(Discrepancy):
    """Joint adaptation: maximum mean discrepancy of features and class probabilities together."""

    name: ClassVar[str] = "jan"
    source: ClassVar[str] = "Long et al., ICML 2017"
    reads_classes: ClassVar[bool] = True

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        assert source.classes is not None and target.classes is not None
        return mean_discrepancy([source.features, source.classes], [target.features, target.classes])
