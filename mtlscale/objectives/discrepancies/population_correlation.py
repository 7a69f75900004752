"""PopulationCorrelation: Population correlation."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import Alignment, DiscrepancyModule, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import population_correlation

__all__ = ["PopulationCorrelation", "PopulationCorrelationModule", "population_correlation"]


class PopulationCorrelation(Alignment):
    """Population correlation: every feature of a domain is drawn to its nearest direction in the other.

    Minus λ times the correlation is added to the source's losses. Its maxima are over the whole step's batch, so larger
    batches see more (128 and above are stable).
    """

    name: ClassVar[str] = "population_correlation"
    source: ClassVar[str] = "Yue, Guo & Zhang, arXiv 2021; AASPC in Yue's thesis, chapter 4"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return PopulationCorrelationModule(self, model)


class PopulationCorrelationModule(DiscrepancyModule):
    """Objective that maximises the population correlation of the features."""

    def discrepancy(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return -population_correlation(source.features, target.features)
