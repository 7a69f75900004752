"""GLS: the geometric loss strategy."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing.contract import Balancer, State


class GLS(Balancer):
    """The gradient of the losses' geometric mean: ω_t = (Π ℓ)^(1/T) / (T ℓ_t).

    Source: Chennupati et al. (CVPR workshops 2019). Computed in logs, with a floor of 1e-12.
    """

    name: ClassVar[str] = "gls"
    source: ClassVar[str] = "Chennupati et al., CVPRW 2019"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    positive_losses: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        logs = losses.clamp(min=1e-12).log()
        return (logs.mean(-1, keepdim=True) - logs).exp() / losses.shape[-1], state
