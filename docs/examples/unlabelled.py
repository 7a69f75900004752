"""An objective over an unlabelled stream in one file, with a small data set that has one.

`mean_matching` pulls the mean features of the labelled samples and of the unlabelled ones together:
λ‖mean z(labelled) - mean z(unlabelled)‖², means over the whole step. Sums that enter a nonlinear function are shared
with `workers.share`: every worker sees the total, and each differentiates its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob
from mtlscale.data import Batch, Outputs, Workers
from mtlscale.objectives import Objective, ObjectiveModule
from pipelines import Pipeline, PrepareContext, Prepared

FEATURES = 5


class MeanMatchingModule(ObjectiveModule):
    """Sees all streams of a step at once."""

    whole_step = True

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def step_term(self, seen: Sequence[tuple[Batch, Outputs]], workers: Workers) -> Tensor | None:
        means = []
        for labelled in (True, False):
            side = [(batch, out) for batch, out in seen if bool(batch.tasks) is labelled]
            sums = [out.representation.sum(0) for _, out in side if out.representation is not None]
            if not sums:
                return None
            means.append(workers.share(sum(sums[1:], sums[0])) / sum(batch.total for batch, _ in side))
        return self.strength * (means[0] - means[1]).square().sum()


class MeanMatching(Objective):
    """The mean features of labelled and unlabelled samples are pulled together."""

    name: ClassVar[str] = "mean_matching"
    source: ClassVar[str] = "own example"

    strength: float = knob(1.0, low=0.0, search=(1e-2, 10.0, "log"), help="λ")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        if not suite.unlabelled:
            raise UserError(f"{self.name} compares with an unlabelled stream, and {suite.name} has none")
        return MeanMatchingModule(self.strength)


class Shifted(Pipeline):
    """Two labelled tasks, and unlabelled samples whose inputs are shifted."""

    name: ClassVar[str] = "shifted"
    needs_source: ClassVar[bool] = False

    def prepare(self, source: Path | None, work: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        directions = rng.normal(size=(2, FEATURES))
        rows = {"left": 50, "right": 33, "extra": 45}
        tables: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
        for split in SPLITS:
            for stream, count in rows.items():
                inputs = rng.normal(size=(count, FEATURES)) + (1.5 if stream == "extra" else 0.0)
                columns = {
                    "id": [f"{split}/{stream}/{row:03d}" for row in range(count)],
                    "input": pa.FixedSizeListArray.from_arrays(inputs.astype(np.float32).ravel(), FEATURES),
                }
                if stream != "extra":
                    columns[f"target.{stream}"] = (inputs @ directions[int(stream == "right")] > 0).astype(np.int64)
                tables[split][stream] = pa.table(columns)
        tasks = [Task(name=n, loss="cross_entropy", outputs=2, metrics=("accuracy",)) for n in ("left", "right")]
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(tasks),
            inputs="per_task",
            input_kind="vector",
            input_shape=(FEATURES,),
            unlabelled=("extra",),
        )
        return Prepared(suite, tables)
