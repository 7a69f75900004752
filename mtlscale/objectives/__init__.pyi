# Written by `python tests/house/stubs.py`.
from mtlscale.objectives.contract import Objective as Objective
from mtlscale.objectives.contract import ObjectiveModule as ObjectiveModule
from mtlscale.objectives.contract import ProximalModule as ProximalModule
from mtlscale.objectives.discrepancies._alignment import gathered as gathered
from mtlscale.objectives.discrepancies.population_correlation import population_correlation as population_correlation
from mtlscale.objectives.relatedness import adversarial_value as adversarial_value
from mtlscale.objectives.relatedness import next_multiplier as next_multiplier
from mtlscale.objectives.relatedness import relatedness_matrix as relatedness_matrix
from mtlscale.objectives.relatedness import relatedness_weights as relatedness_weights
from mtlscale.objectives.task_discriminator import reverse_gradient as reverse_gradient
