"""AMTRL: a task adversary of fixed strength."""

from typing import Any, ClassVar

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.task_discriminator import Adversarial, AdversarialModule


class AMTRL(Adversarial):
    """Adversarial multi-task learning: the encoder hides the task from a discriminator, with fixed strength λ.

    Source: Mao, Liu & Lin (ICML 2020), eq. 7. With `strength: 0` the discriminator only watches: the network is trained
    exactly as without the objective, and the record holds how related its representation makes the tasks.
    """

    name: ClassVar[str] = "amtrl"
    source: ClassVar[str] = "Liu, Qiu & Huang, ACL 2017; as in Mao, Liu & Lin, ICML 2020, eq. 7"

    strength: float = knob(1.0, low=0.0, search=(0.01, 10.0, "log"), help="λ; 0: watch only")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        return AMTRLModule(suite, self.check(suite, model), self.form, self.strength)


class AMTRLModule(AdversarialModule):
    """Objective with a fixed strength of the adversary."""

    def __init__(self, suite: TaskSuite, features: int, form: str, strength: float) -> None:
        super().__init__(suite, features, form)
        self.fixed = strength

    def strength(self) -> float:
        return self.fixed

    def traces(self) -> dict[str, Any]:
        return {**super().traces(), "lambda": self.fixed}
