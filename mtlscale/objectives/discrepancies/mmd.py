"""MMD: two-sample kernel statistic."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import mean_discrepancy


class MMD(Discrepancy):
    """Squared maximum mean discrepancy of two domains' features, with five Gaussian kernels."""

    name: ClassVar[str] = "mmd"
    source: ClassVar[str] = "Gretton et al., JMLR 2012; kernels as in Long et al., ICML 2015"

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return mean_discrepancy([source.features], [target.features])
