"""Task relatedness from a discriminator's outputs, and the multiplier of the adversarial constraint (AAMTRL)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FORMS = ("prob", "xent")
MULTIPLIER_RULES = ("ascent", "printed")


def relatedness_matrix(probs: Tensor, task_index: Tensor) -> Tensor:
    """AAMTRL's R [T, T] from the discriminator's outputs [N, T] and each sample's task [N].

    Source: AAMTRL eq. 14-15. Symmetric, in [0, 1], unit diagonal; from means per task, so that unequal
    numbers of samples stay fair.
    """
    return relatedness_from_sums(*sums_by_task(probs, task_index))


def relatedness_from_sums(sums: Tensor, counts: Tensor) -> Tensor:
    """R [T, T] from the outputs summed over each task's samples [T, T] and the numbers of these [T]."""
    means = sums / counts.clamp(min=1)[:, None]
    own = means.diagonal()
    numerator, denominator = means + means.mT, own[:, None] + own
    # Where neither task is ever recognised, any confusion of the two is complete.
    undefined = (numerator > 0).to(means)
    return torch.where(denominator > 0, numerator / denominator, undefined).clamp(max=1.0).fill_diagonal_(1.0)


def relatedness_weights(relatedness: Tensor) -> Tensor:
    """Task weights [T] from R [T, T]: its column sums, normalised to sum to one (AAMTRL eq. 18)."""
    return relatedness.sum(0) / relatedness.sum()


def adversarial_value(probs: Tensor, task_index: Tensor, form: str = "prob") -> Tensor:
    """A, a scalar: how well the outputs [N, T] name each sample's task [N]; the mean over tasks of means, 0 at chance.

    Source: AAMTRL eq. 7. `prob` is about the probability of the true task, `xent` about its logarithm.
    """
    sums, counts = sums_by_task(probs if form == "prob" else probs.log(), task_index)
    return adversarial_from_sums(sums.diagonal(), counts, form)


def adversarial_from_sums(scores: Tensor, counts: Tensor, form: str) -> Tensor:
    """A from the scores of the true task summed over each task's samples [T], and the numbers of these [T]."""
    return (scores / counts.clamp(min=1)).mean() - chance(form, len(counts))


def chance(form: str, tasks: int) -> float:
    """The score of outputs that are 1/T for every task."""
    return 1.0 / tasks if form == "prob" else -math.log(tasks)


def sums_by_task(values: Tensor, task_index: Tensor) -> tuple[Tensor, Tensor]:
    """([T, T], [T]): rows [N, T] summed by task, in float64, and how many each task has."""
    tasks = values.shape[1]
    sums = torch.zeros(tasks, tasks, dtype=torch.float64, device=values.device)
    sums.index_add_(0, task_index, values.to(torch.float64))
    return sums, task_index.bincount(minlength=tasks).to(sums)


def next_multiplier(multiplier: Tensor, penalty: Tensor, value: Tensor, rule: str, maximum: float) -> Tensor:
    """The next λ from λ, r and the constraint's value A, all scalars (docs/methods.md#aamtrl).

    `ascent` is dual ascent for λA + rA²/2, kept in [0, maximum]. `printed` is AAMTRL's eq. 20, whose sign does not fit
    its eq. 19: λ - rA where that is positive, else λ again.
    """
    if rule == "ascent":
        return (multiplier + penalty * value).clamp(0.0, maximum)
    candidate = multiplier - penalty * value
    return torch.where(candidate > 0, candidate, multiplier)
