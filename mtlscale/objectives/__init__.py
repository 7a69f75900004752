"""Extra terms of the training objective. One module per objective, named as in experiment files."""

from mtlscale.objectives._adversarial import reverse_gradient
from mtlscale.objectives._base import EpochView, Objective, ObjectiveModule, ProximalModule
from mtlscale.objectives._relatedness import (
    adversarial_value,
    next_multiplier,
    relatedness_matrix,
    relatedness_weights,
)
from mtlscale.objectives.population_correlation import population_correlation

__all__ = [
    "EpochView",
    "Objective",
    "ObjectiveModule",
    "ProximalModule",
    "adversarial_value",
    "next_multiplier",
    "population_correlation",
    "relatedness_matrix",
    "relatedness_weights",
    "reverse_gradient",
]
