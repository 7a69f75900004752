"""Out-of-distribution detection metrics of a classifier: docs/methods.md#metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.metrics.shipped.ranking import Aupr, ranks


def confidence(logits: Tensor) -> Tensor:
    """Return the logarithm of the largest probability: logits [N, classes] -> [N] float64.

    It orders samples like the probability, and has no ties where probabilities round to 1.
    """
    log_probability: Tensor = logits.double().log_softmax(-1).amax(-1)
    return log_probability


def detection(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Return the detection metrics in percent; samples out of the distribution are the positive class.

    `ood_aupr_inverted` ranks them by the confidence itself; a perfect detector has the least.

    Args:
        inside: [N] confidences of samples in the distribution.
        outside: [M] confidences of samples out of it.
    """
    scores = torch.cat([inside, outside])
    truth = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long()
    # Number of pairs in the right order, ties count half.
    right = ranks(-scores)[len(inside) :].sum() - len(outside) * (len(outside) + 1) / 2
    return {
        "ood_auroc": 100.0 * right.item() / (len(inside) * len(outside)),
        "ood_aupr": 100.0 * Aupr.area(-scores, truth),
        "ood_aupr_inverted": 100.0 * Aupr.area(scores, truth),
    }
