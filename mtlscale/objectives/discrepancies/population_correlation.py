"""Correlation of what two domains have in common."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import population_correlation

__all__ = ["PopulationCorrelation", "population_correlation"]


class PopulationCorrelation(Discrepancy):
    """Population correlation: every feature of a domain is drawn to its nearest direction in the other.

    Minus λ times the correlation is added to the source's losses. Its maxima are over the whole step's batch, so larger
    batches see more (128 and above are stable).
    """

    name: ClassVar[str] = "population_correlation"
    source: ClassVar[str] = "Yue, Guo & Zhang, arXiv 2021; AASPC in Yue's thesis, chapter 4"

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return -population_correlation(source.features, target.features)
