"""Log losses, by their gradient's weights."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State


class LogLoss(Balancer):
    """The gradient of the mean of log ℓ_t, which no rescaling of a loss changes: ω_t = 1/(T ℓ_t).

    Also known as scale-invariant losses. Floor of 1e-12; one task weighs 1.
    """

    name: ClassVar[str] = "log_loss"
    source: ClassVar[str] = "scale-invariant losses, baseline SI of Navon et al., ICML 2022"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    positive_losses: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        tasks = losses.shape[-1]
        return (torch.ones_like(losses) if tasks == 1 else 1.0 / (tasks * losses.clamp(min=1e-12))), state
