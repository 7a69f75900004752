"""Task losses (cross entropy, mse, …) as sums over labelled samples, with a mask for missing labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from mtlscale.config import MISSING_CLASS

# Elementwise: prediction [B, outputs, ...], target -> (losses [B, ...], present [B, ...]).
ElementLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _cross_entropy(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    present = target != MISSING_CLASS
    losses = F.cross_entropy(prediction, target.long(), reduction="none", ignore_index=MISSING_CLASS)
    return losses, present


def _soft_cross_entropy(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    present = ~target.isnan().any(dim=1)
    filled = torch.nan_to_num(target, nan=0.0).to(prediction.dtype)
    return -(filled * F.log_softmax(prediction, dim=1)).sum(dim=1), present


def _bce(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    target = target.reshape(prediction.shape)
    present = (target != MISSING_CLASS) & ~target.isnan() if target.is_floating_point() else target != MISSING_CLASS
    filled = torch.where(present, target, 0).to(prediction.dtype)
    return F.binary_cross_entropy_with_logits(prediction, filled, reduction="none"), present


def _regression(loss: Callable[..., Tensor]) -> ElementLoss:
    def elementwise(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        target = target.reshape(prediction.shape)
        present = ~target.isnan()
        filled = torch.where(present, target.to(prediction.dtype), prediction.detach())
        return loss(prediction, filled, reduction="none"), present

    return elementwise


def _cosine(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 − cos of vectors along dimension 1, in [0, 2], and which targets are neither NaN nor of length 0."""
    present = (target != 0).any(dim=1) & ~target.isnan().any(dim=1)
    filled = torch.nan_to_num(target, nan=0.0).to(prediction.dtype)
    return 1.0 - F.cosine_similarity(prediction, filled, dim=1), present


def _welsch(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 - exp(-|e|²) < 1 of the errors e along dimension 1, and which targets are without NaN."""
    target = target.reshape(prediction.shape)
    present = ~target.isnan().any(dim=1)
    filled = torch.nan_to_num(target, nan=0.0).to(prediction.dtype)
    return -torch.expm1(-(prediction - filled).square().sum(dim=1)), present


LOSSES: dict[str, ElementLoss] = {
    "cross_entropy": _cross_entropy,
    "soft_cross_entropy": _soft_cross_entropy,
    "bce": _bce,
    "mse": _regression(F.mse_loss),
    "l1": _regression(F.l1_loss),
    "cosine": _cosine,
    "welsch": _welsch,
}


# The kernel below `F.cross_entropy`, which counts labels on the way.
_SUM_AND_COUNT = torch.ops.aten.nll_loss_forward.default
_REDUCE_BY_SUM = 2  # torch's number of this reduction


def task_loss(name: str, prediction: Tensor, target: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses over labelled entries and their count, both scalars.

    The task loss is their ratio over all micro-batches and workers. `weights` [B] multiplies each sample's loss but not
    the count (an unbiased estimate, docs/methods.md).
    """
    if name == "cross_entropy" and weights is None:
        # One kernel for the same result: text and image classification spend a visible part of small steps here.
        if prediction.ndim == 2:
            total, count = _SUM_AND_COUNT(
                F.log_softmax(prediction, dim=1), target.long(), None, _REDUCE_BY_SUM, MISSING_CLASS
            )
            return total, count
        total = F.cross_entropy(prediction, target.long(), reduction="sum", ignore_index=MISSING_CLASS)
        return total, (target != MISSING_CLASS).sum()

    losses, present = LOSSES[name](prediction, target)
    count = present.sum()
    losses = torch.where(present, losses, torch.zeros_like(losses))
    if weights is not None:
        losses = losses * weights.to(losses.dtype).reshape(-1, *[1] * (losses.ndim - 1))

    return losses.sum(), count
