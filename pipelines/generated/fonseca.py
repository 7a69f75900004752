"""Fonseca and Fleming's problem: two losses with a concave Pareto front that is known exactly."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, knob
from pipelines._steps.features import lists
from pipelines.contract import Pipeline, PrepareContext, Prepared

TASKS = {"plus": 1.0, "minus": -1.0}  # task -> the sign of its target
DISTANCE = 2.0  # between the targets, for any number of variables


class Fonseca(Pipeline):
    """Fonseca and Fleming's problem as two tasks: ℓ = 1 - exp(-|x ∓ 1/√n|²) of one point x, the output for all samples.

    All samples are the same: the input is 1, the targets are (1/√n, …) and -(1/√n, …). With an architecture whose tasks
    share their output, `single`, the losses are those of the problem, whatever the network. Its Pareto front is the
    line between the targets, ℓ₁ = 1 - exp(-(t - 1)²), ℓ₂ = 1 - exp(-(t + 1)²) for t from -1 to 1. It is concave around
    its middle, where no weighted sum of the losses has a minimum.
    """

    name: ClassVar[str] = "fonseca"
    source: ClassVar[str] = "Fonseca & Fleming, Evolutionary Computation 1995"
    needs_source: ClassVar[bool] = False

    variables: int = knob(2, low=1, help="n, the size of the point x")
    samples: int = knob(32, low=1, help="samples of each split, all the same")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        tables = {}
        for split in SPLITS:
            targets = {
                f"target.{task}": self._target(np.full((self.samples, self.variables), sign / np.sqrt(self.variables)))
                for task, sign in TASKS.items()
            }
            ids = pa.array([f"{split}/{row:04d}" for row in range(self.samples)])
            tables[split] = {"all": pa.table({"id": ids, "input": lists(np.ones((self.samples, 1))), **targets})}

        tasks = tuple(Task(name=task, loss="welsch", outputs=self.variables, metrics=("welsch",)) for task in TASKS)
        suite = TaskSuite(name=self.name, tasks=tasks, inputs="shared", input_kind="vector", input_shape=(1,))
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(TASKS, (self.variables,)) if self.variables > 1 else {}
        return Prepared(suite, tables, target_shapes=shapes)

    def _target(self, values: np.ndarray) -> pa.Array:
        return lists(values) if self.variables > 1 else pa.array(values[:, 0].astype(np.float32))


def exact_front(points: int) -> np.ndarray:
    """Return points [points, 2] of the exact front, from one task's least loss to the other's."""
    way = np.linspace(DISTANCE / 2, -DISTANCE / 2, points)
    return np.stack([1.0 - np.exp(-((way - 1.0) ** 2)), 1.0 - np.exp(-((way + 1.0) ** 2))], axis=1)
