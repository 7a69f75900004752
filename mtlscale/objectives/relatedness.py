"""Task relatedness from a discriminator's outputs, and the multiplier of the adversarial constraint (AAMTRL)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FORMS = ("prob", "xent")
MULTIPLIER_RULES = ("ascent", "printed")


def relatedness_matrix(probs: Tensor, task_index: Tensor) -> Tensor:
    """Return AAMTRL's R [T, T] from the discriminator's outputs.

    Source: AAMTRL eq. 14-15. R is symmetric, in [0, 1], with a unit diagonal. It is computed from means per task, so
    that unequal numbers of samples stay fair.

    Args:
        probs: The discriminator's outputs [N, T].
        task_index: Each sample's task [N].
    """
    return relatedness_from_sums(*sums_by_task(probs, task_index))


def relatedness_from_sums(sums: Tensor, counts: Tensor) -> Tensor:
    """Return R [T, T] from sums over samples.

    Args:
        sums: Outputs summed over each task's samples, [T, T].
        counts: Number of each task's samples, [T].
    """
    means = sums / counts.clamp(min=1)[:, None]
    true_task_means = means.diagonal()
    numerator, denominator = means + means.mT, true_task_means[:, None] + true_task_means
    # If neither task is ever recognised, any confusion of the two counts as complete.
    undefined = (numerator > 0).to(means)
    return torch.where(denominator > 0, numerator / denominator, undefined).clamp(max=1.0).fill_diagonal_(1.0)


def relatedness_weights(relatedness: Tensor) -> Tensor:
    """Return task weights [T] from R [T, T]: its column sums, normalised to sum to one (AAMTRL eq. 18)."""
    return relatedness.sum(0) / relatedness.sum()


def adversarial_value(probs: Tensor, task_index: Tensor, form: str = "prob") -> Tensor:
    """Return A, a scalar that tells how well the outputs name each sample's task; 0 at chance.

    Source: AAMTRL eq. 7. A is the mean over tasks of means over samples.

    Args:
        probs: The discriminator's outputs [N, T].
        task_index: Each sample's task [N].
        form: "prob" scores the probability of the true task, "xent" its logarithm.
    """
    sums, counts = sums_by_task(probs if form == "prob" else probs.log(), task_index)
    return adversarial_from_sums(sums.diagonal(), counts, form)


def adversarial_from_sums(scores: Tensor, counts: Tensor, form: str) -> Tensor:
    """Return A from sums over samples.

    Args:
        scores: Scores of the true task summed over each task's samples, [T].
        counts: Number of each task's samples, [T].
        form: "prob" or "xent".
    """
    return (scores / counts.clamp(min=1)).mean() - chance_score(form, len(counts))


def chance_score(form: str, tasks: int) -> float:
    """Return the score of outputs that are 1/T for every task."""
    return 1.0 / tasks if form == "prob" else -math.log(tasks)


def sums_by_task(values: Tensor, task_index: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows [N, T] summed by task, [T, T] in float64, and the number of rows of each task, [T]."""
    tasks = values.shape[1]
    sums = torch.zeros(tasks, tasks, dtype=torch.float64, device=values.device)
    sums.index_add_(0, task_index, values.to(torch.float64))
    return sums, task_index.bincount(minlength=tasks).to(sums)


def next_multiplier(multiplier: Tensor, penalty: Tensor, value: Tensor, rule: str, maximum: float) -> Tensor:
    """Return the next λ from λ, r and the constraint's value A, all scalars (docs/methods.md#aamtrl).

    The rule `ascent` is dual ascent for λA + rA²/2, kept in [0, maximum]. `printed` is AAMTRL's eq. 20, whose sign does
    not fit its eq. 19: λ - rA if that is positive, else λ unchanged.
    """
    if rule == "ascent":
        return (multiplier + penalty * value).clamp(0.0, maximum)
    candidate = multiplier - penalty * value
    return torch.where(candidate > 0, candidate, multiplier)
