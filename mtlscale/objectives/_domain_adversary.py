"""A discriminator that guesses a feature's domain, and a network that learns to hide it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Workers
from mtlscale.objectives._adversarial import reverse_gradient
from mtlscale.objectives._alignment import Alignment, AlignmentModule, Side
from mtlscale.spec import knob


class DomainAdversary(Alignment):
    """The discriminator learns with unit weight, the network against it with λ."""

    hidden: int = knob(256, low=0, help="width of the discriminator's hidden layer; 0: it is linear")
    ramp: int = knob(0, low=0, help="steps p = 0…1 over which λ rises as 2/(1 + exp(-10 p)) - 1; 0: constant")


class DomainAdversaryModule(AlignmentModule):
    steps: Tensor  # taken so far
    factor = 1.0  # what the network makes small is λ times this times less the discriminator's loss

    def __init__(self, recipe: DomainAdversary, model: MultiTaskModule, features: Sequence[int]) -> None:
        """features: what a discriminator sees of a sample; where that changes there is one for each size."""
        super().__init__(recipe, model)
        self.discriminators = nn.ModuleDict({str(size): _discriminator(size, recipe.hidden) for size in features})
        self.ramp = recipe.ramp
        self.register_buffer("steps", torch.zeros((), dtype=torch.float64))

    def hidden_from(self, side: Side) -> Tensor:
        """What the discriminator sees of a domain [N, …], as the network gives it."""
        return side.features

    def weights(self, side: Side) -> Tensor:
        """[N] of the rows, with mean 1 over all workers' rows."""
        return side.features.new_ones(len(side.features))

    def penalties(self, logits: Tensor, domain: float) -> Tensor:
        """[N]: what the discriminator makes small for rows of domain 1, the source, or 0."""
        return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, domain), reduction="none")

    def of_step(self, source: Side, target: Side, workers: Workers) -> tuple[Tensor | None, Tensor]:
        loss = source.features.new_zeros(())
        for side, domain in ((source, 1.0), (target, 0.0)):
            hidden = reverse_gradient(self.hidden_from(side), self.reversal())
            discriminator = self.discriminators[str(hidden.shape[1])]
            logits = discriminator(hidden.to(next(discriminator.parameters()).dtype)).squeeze(1)
            loss = loss + (self.weights(side) * self.penalties(logits, domain)).sum() / (2 * side.total)
        return loss, loss

    def after_step(self, lr: float) -> None:
        self.steps += 1

    def added(self) -> float:
        """Less the loss of the discriminator, times λ as it is by now: what the network makes small."""
        super().added()
        return -float(self.reversal()) * self.measured

    def reversal(self) -> Tensor | float:
        """What the gradient that the network gets is multiplied by, with the other sign."""
        strength = self.strength * self.factor
        if not self.ramp:
            return strength
        part = (self.steps / self.ramp).clamp(max=1.0)
        return strength * (2 / (1 + (-10 * part).exp()) - 1)


def _discriminator(features: int, hidden: int) -> nn.Module:
    """[N, features] -> [N, 1]."""
    if not hidden:
        return nn.Sequential(nn.Linear(features, 1))
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
