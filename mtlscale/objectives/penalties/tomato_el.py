"""The element-wise objective of TOMATO."""

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.penalties._topics import TopicPenalty
from mtlscale.solvers import prox_element


class TomatoEl(TopicPenalty):
    """TOMATO-el: element-wise sparsity, λ Σ_kt ‖θˢ_kt‖, by proximal steps after plain SGD.

    Source: Zhang & Lee, CIKM 2020, eq. 9-11. The authors' code groups per layer (`groups: layer`).
    """

    name: ClassVar[str] = "tomato_el"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, eq. 9-11"
    per_token: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    def prox(self, theta: Tensor, step: float | Tensor) -> Tensor:
        return prox_element(theta, step)
