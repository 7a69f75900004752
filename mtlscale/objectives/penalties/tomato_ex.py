"""The exclusive objective of TOMATO."""

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.penalties._topics import TopicPenalty
from mtlscale.solvers import prox_exclusive


class TomatoEx(TopicPenalty):
    """TOMATO-ex: exclusive sparsity, λ/2 Σ_k (Σ_t ‖θˢ_kt‖)², by proximal steps after plain SGD.

    The tasks compete for deviations within a topic. Source: Zhang & Lee, CIKM 2020, eq. 12, algorithm 1. The authors'
    code groups per layer (`groups: layer`).
    """

    name: ClassVar[str] = "tomato_ex"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, eq. 12, Algorithm 1"
    per_token: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    def prox(self, theta: Tensor, step: float | Tensor) -> Tensor:
        return prox_exclusive(theta, step)
