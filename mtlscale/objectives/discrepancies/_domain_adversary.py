"""Domain adversary: a discriminator guesses a feature's domain, and the network learns to hide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import knob
from mtlscale.data import Workers
from mtlscale.objectives.discrepancies._alignment import Alignment, AlignmentModule, DomainBatch
from mtlscale.objectives.task_discriminator import reverse_gradient


class DomainAdversary(Alignment):
    """Base class of objectives with a discriminator of domains.

    The discriminator learns with unit weight, the network against it with λ.
    """

    hidden: int = knob(256, low=0, help="width of the discriminator's hidden layer; 0: it is linear")
    ramp: int = knob(0, low=0, help="steps p = 0…1 over which λ rises as 2/(1 + exp(-10 p)) - 1; 0: constant")


class DomainAdversaryModule(AlignmentModule):
    """Objective that trains one discriminator per feature size, and the network against it."""

    steps: Tensor  # number of steps so far
    factor = 1.0  # the network minimises -λ times this times the discriminator's loss

    def __init__(self, recipe: DomainAdversary, model: MultiTaskModule, features: Sequence[int]) -> None:
        """Create one discriminator for each feature size.

        Args:
            features: Sizes of a discriminator's input; several if the size changes from epoch to epoch.
        """
        super().__init__(recipe, model)
        self.discriminators = nn.ModuleDict({str(size): _discriminator(size, recipe.hidden) for size in features})
        self.ramp = recipe.ramp
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64))

    def hidden_from(self, side: DomainBatch) -> Tensor:
        """Return the discriminator's input [N, …] for the rows of a domain."""
        return side.features

    def weights(self, side: DomainBatch) -> Tensor:
        """Return weights [N] of the rows, with mean 1 over all workers' rows."""
        return side.features.new_ones(len(side.features))

    def penalties(self, logits: Tensor, domain: float) -> Tensor:
        """Return the quantity [N] that the discriminator minimises.

        Args:
            logits: The discriminator's outputs [N].
            domain: 1 for rows of the source, 0 for rows of the target.
        """
        return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, domain), reduction="none")

    def of_step(self, source: DomainBatch, target: DomainBatch, workers: Workers) -> tuple[Tensor | None, Tensor]:
        loss = source.features.new_zeros(())
        for side, domain in ((source, 1.0), (target, 0.0)):
            hidden = reverse_gradient(self.hidden_from(side), self.reversal())
            discriminator = self.discriminators[str(hidden.shape[1])]
            logits = discriminator(hidden.to(next(discriminator.parameters()).dtype)).squeeze(1)
            loss = loss + (self.weights(side) * self.penalties(logits, domain)).sum() / (2 * side.total)
        return loss, loss

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        super().after_step(lr, sum)
        self.steps += 1

    def added(self) -> float:
        """Return what the network minimises: minus the discriminator's loss, times the current λ."""
        super().added()
        return -float(self.reversal()) * self.measured

    def reversal(self) -> Tensor | float:
        """Return the strength of the reversed gradient that reaches the network."""
        strength = self.strength * self.factor
        if not self.ramp:
            return strength
        progress = (self.steps / self.ramp).clamp(max=1.0)
        return strength * (2 / (1 + (-10 * progress).exp()) - 1)


def _discriminator(features: int, hidden: int) -> nn.Module:
    """Build a discriminator: [N, features] -> [N, 1]."""
    if not hidden:
        return nn.Sequential(nn.Linear(features, 1))
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
