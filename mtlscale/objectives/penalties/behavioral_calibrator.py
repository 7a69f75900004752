"""BehavioralCalibrator: a penalty where a later task is likelier than the task that it follows."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, UserError, knob, nearest
from mtlscale.data import Batch, Outputs
from mtlscale.objectives.contract import Objective, ObjectiveModule


class BehavioralCalibrator(Objective):
    """Behavioural expectation calibrator: α Σ_t mean max(p_t - p_{t-1}, 0) over the tasks of a chain.

    p_t is the probability that an architecture gives task t of a sample: whoever buys has clicked. The mean is over all
    samples, whether they have labels or not.
    """

    name: ClassVar[str] = "behavioral_calibrator"
    source: ClassVar[str] = "Xi et al., KDD 2021"
    architecture: ClassVar[str] = "aitm"

    strength: float = knob(0.6, low=0.0, search=(0.0, 0.1, 0.3, 0.6, 1.0), help="α; 0.6 in the paper")
    chain: tuple[str, ...] = knob((), help="the tasks in their order; none: all of yes or no, in the suite's order")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        binary = [task.name for task in suite.tasks if task.loss == "bce" and task.outputs == 1]
        for name in self.chain:
            if name not in binary:
                raise UserError(f"behavioral_calibrator: `chain` names {name!r}; {nearest(name, binary)}")
        names = list(self.chain) or binary
        if len(names) < 2 or len(set(names)) < len(names) or suite.inputs != "shared":
            raise UserError(
                "behavioral_calibrator compares probabilities of two or more tasks of yes or no on the same inputs; "
                f"{suite.name} has {', '.join(binary) or 'none'}"
            )
        return BehavioralCalibratorModule(self.strength, names)


class BehavioralCalibratorModule(ObjectiveModule):
    """Objective that penalises what a task's probability exceeds that of the task before it by."""

    predicts = True

    def __init__(self, strength: float, names: list[str]) -> None:
        super().__init__()
        self.strength, self.names = strength, names

    def term(self, batch: Batch, outputs: Outputs) -> Tensor | None:
        probabilities = torch.cat([outputs.predictions[name] for name in self.names], 1).sigmoid()
        excess = (probabilities[:, 1:] - probabilities[:, :-1]).clamp(min=0)
        return self.strength * excess.sum() / batch.total
