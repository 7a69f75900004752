"""Hooks of a network around epochs and training, for networks that have these capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from mtlscale.architectures import (
    AfterTraining,
    BeginsEpochs,
    EndsEpochs,
    FollowsLosses,
    MultiTaskModule,
    SelectsByLoss,
    TakesPreferences,
    capability,
)
from mtlscale.config.preferences import Preference, central
from mtlscale.data import Batch
from mtlscale.records import FrontPoint, Metrics


def begin_epoch(model: MultiTaskModule, epoch: int) -> None:
    """Tell a network that an epoch begins; epochs count from 1."""
    network = capability(model, BeginsEpochs)
    if network is not None:
        network.on_epoch_begin(epoch)


def end_epoch(model: MultiTaskModule, epoch: int, losses: Mapping[str, float], added: float = 0.0) -> None:
    """Tell a network that the steps of an epoch are over.

    Args:
        epoch: The epoch, from 1.
        losses: Each task's mean training loss in it.
        added: The term that an objective added to their sum.
    """
    following = capability(model, FollowsLosses)
    if following is not None:
        following.on_losses(losses, added)

    network = capability(model, EndsEpochs)
    if network is not None:
        network.on_epoch_end(epoch)


def select_by_loss(model: MultiTaskModule, losses: Callable[[str], Mapping[str, float]]) -> None:
    """Have a network decide by the losses of a split what gradients do not decide."""
    network = capability(model, SelectsByLoss)
    if network is not None:
        network.select_by_loss(losses)


def after_training(model: MultiTaskModule, train: Iterator[Batch], sum: Callable[[Tensor], Tensor]) -> None:
    """Show a trained network this worker's share of the training samples."""
    network = capability(model, AfterTraining)
    if network is not None:
        with torch.no_grad():
            network.after_training(train, sum)


def prefer(model: MultiTaskModule, preference: Preference | None = None) -> None:
    """Give a preference to a network that takes one, by default the central one of its grid."""
    network = capability(model, TakesPreferences)
    if network is not None:
        chosen = network.grid[central(network.grid)] if preference is None else preference
        network.set_preference(torch.tensor(chosen, dtype=torch.float64))


def front(model: MultiTaskModule, evaluate: Callable[..., Metrics]) -> list[FrontPoint]:
    """Return what a network reaches for each preference of its grid, if it is given any.

    Args:
        evaluate: From a split and a `preference` to metrics.
    """
    network = capability(model, TakesPreferences)
    points = [
        FrontPoint(
            preference=list(preference),
            metrics={split: evaluate(split, preference=preference) for split in ("val", "test")},
        )
        for preference in (() if network is None else network.grid)
    ]
    prefer(model)
    return points
