"""Objectives: components that add terms to the training objective.

One module per objective, named as in experiment files. `Objective` is the contract; the functions exported here compute
task relatedness, multipliers and correlations.
"""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Objective": ".contract",
        "ObjectiveModule": ".contract",
        "ProximalModule": ".contract",
        "adversarial_value": ".relatedness",
        "gathered": ".discrepancies._alignment",
        "next_multiplier": ".relatedness",
        "population_correlation": ".discrepancies.population_correlation",
        "relatedness_matrix": ".relatedness",
        "relatedness_weights": ".relatedness",
        "reverse_gradient": ".task_discriminator",
    },
)
