"""Two small data sets the awkward way: tasks of unequal size with missing labels, inputs per task or shared."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, SPLITS, Task, TaskSuite, knob
from pipelines import Pipeline, PrepareContext, Prepared

SIZES = {"a": 61, "b": 40, "c": 23}
FEATURES = 6


class Uneven(Pipeline):
    """Three tasks of 61, 40 and 23 samples; every fifth label is missing."""

    name: ClassVar[str] = "uneven"
    needs_source: ClassVar[bool] = False

    shared: bool = knob(False, help="one input with the labels of all tasks")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        directions = rng.normal(size=(3, FEATURES))
        tasks = (
            Task(name="a", loss="cross_entropy", outputs=2, metrics=("accuracy",)),
            Task(name="b", loss="cross_entropy", outputs=3, metrics=("accuracy",)),
            Task(name="c", loss="mse", outputs=1, metrics=("mse",)),
        )
        tables: dict[str, dict[str, pa.Table]] = {}
        for split in SPLITS:
            tables[split] = {}
            for stream in ("all",) if self.shared else SIZES:
                rows = max(SIZES.values()) if self.shared else SIZES[stream]
                inputs = rng.normal(size=(rows, FEATURES)).astype(np.float32)
                scores = inputs @ directions.T
                columns = {
                    "a": np.where(np.arange(rows) % 5 == 4, MISSING_CLASS, scores[:, 0] > 0).astype(np.int64),
                    "b": np.digitize(scores[:, 1], [-1, 1]),
                    "c": np.where(np.arange(rows) % 5 == 1, np.nan, scores[:, 2]).astype(np.float32),
                }
                names = tuple(SIZES) if self.shared else (stream,)
                tables[split][stream] = pa.table(
                    {
                        "id": [f"{split}/{stream}/{row:04d}" for row in range(rows)],
                        "input": pa.FixedSizeListArray.from_arrays(inputs.ravel(), FEATURES),
                        **{f"target.{name}": columns[name] for name in names},
                    }
                )
        suite = TaskSuite(
            name="uneven",
            tasks=tasks,
            inputs="shared" if self.shared else "per_task",
            input_kind="vector",
            input_shape=(FEATURES,),
        )
        return Prepared(suite, tables)
