"""Domain classification error as a distance of domains."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import sizes_of
from mtlscale.objectives.discrepancies._domain_adversary import DomainAdversary, DomainAdversaryModule


class ProxyA(DomainAdversary):
    """Proxy A-distance 2 (1 - 2 ε), with ε the error of a linear guess of the domain; the network minimises it.

    ε is the mean probability of the wrong domain, which has a gradient (ours; the distance itself counts errors).
    """

    name: ClassVar[str] = "proxy_a"
    source: ClassVar[str] = "Ben-David et al., Machine Learning 2010"

    hidden: int = knob(0, low=0, help="width of the discriminator's hidden layer; 0: it is linear")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return ProxyAModule(self, model, sizes_of(self, suite, model))


class ProxyAModule(DomainAdversaryModule):
    """Domain adversary whose discriminator minimises the probability of the wrong domain."""

    factor = 4.0  # coefficient of ε in the distance 2 - 4 ε

    def penalties(self, logits: Tensor, domain: float) -> Tensor:
        return (-logits if domain else logits).sigmoid()

    def added(self) -> float:
        """Return λ times the distance."""
        return super().added() + float(self.reversal()) / 2

    def traces(self) -> dict[str, Any]:
        return {**super().traces(), "proxy_a_distance": 2 * (1 - 2 * self.measured)}
