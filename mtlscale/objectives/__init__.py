"""Objectives: components that add terms to the training objective.

One module per objective, named as in experiment files. `Objective` is the contract; the functions exported here compute
task relatedness, multipliers and correlations.
"""

from mtlscale.objectives.contract import EpochView, Objective, ObjectiveModule, ProximalModule
from mtlscale.objectives.discrepancies._alignment import gathered
from mtlscale.objectives.discrepancies.population_correlation import population_correlation
from mtlscale.objectives.relatedness import (
    adversarial_value,
    next_multiplier,
    relatedness_matrix,
    relatedness_weights,
)
from mtlscale.objectives.task_discriminator import reverse_gradient

__all__ = [
    "EpochView",
    "Objective",
    "ObjectiveModule",
    "ProximalModule",
    "adversarial_value",
    "gathered",
    "next_multiplier",
    "population_correlation",
    "relatedness_matrix",
    "relatedness_weights",
    "reverse_gradient",
]
