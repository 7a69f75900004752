from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.objectives import Objective, ObjectiveModule


class SmallFeaturesModule(ObjectiveModule):
    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def term(self, batch: Batch, outputs: Outputs) -> Tensor | None:
        if outputs.representation is None:
            return None
        return self.strength * outputs.representation.square().mean(1).sum() / batch.total


class SmallFeatures(Objective):
    """The mean square of the shared features is kept small."""

    name: ClassVar[str] = "small_features"
    source: ClassVar[str] = "own example"

    strength: float = knob(1e-2, low=0.0, search=(1e-4, 1.0, "log"), help="λ")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        return SmallFeaturesModule(self.strength)
