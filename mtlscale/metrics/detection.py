"""How well samples out of a classifier's distribution are told from those in it: docs/methods.md#metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.metrics.ranking import average_precision, ranks


def confidence(logits: Tensor) -> Tensor:
    """Logits [N, classes] -> [N] float64, the logarithm of the largest probability: it orders samples alike, and has no
    ties where probabilities round to 1."""
    found: Tensor = logits.double().log_softmax(-1).amax(-1)
    return found


def detection(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Confidences of samples in the distribution [N] and out of it [M] -> figures in percent; those out of it are the
    positive class. `ood_aupr_inverted` ranks them by the confidence itself, a perfect detector has the least."""
    scores = torch.cat([inside, outside])
    truth = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).long()
    # Pairs in the right order, those of one score half: torchmetrics counts in single precision.
    right = ranks(-scores)[len(inside) :].sum() - len(outside) * (len(outside) + 1) / 2
    return {
        "ood_auroc": 100.0 * right.item() / (len(inside) * len(outside)),
        "ood_aupr": 100.0 * average_precision(-scores, truth),
        "ood_aupr_inverted": 100.0 * average_precision(scores, truth),
    }
