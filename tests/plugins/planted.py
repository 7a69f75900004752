"""Three tasks on one input: b's labels are a's, c's are the opposite; and some more."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, knob
from pipelines import Pipeline, PrepareContext, Prepared

ROWS, FEATURES = 120, 6


class Planted(Pipeline):
    """A number of a linear function, the same again, its opposite; with `tasks` fewer of them."""

    name: ClassVar[str] = "planted"
    needs_source: ClassVar[bool] = False

    tasks: int = knob(3, low=1, high=3, help="the first so many")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        direction, names = rng.normal(size=FEATURES), ("a", "b", "c")[: self.tasks]
        tables: dict[str, dict[str, pa.Table]] = {}
        for split in SPLITS:
            inputs = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
            values = (inputs @ direction).astype(np.float32)
            columns = {"a": values, "b": values, "c": -values}
            tables[split] = {
                "all": pa.table(
                    {
                        "id": [f"{split}/{row:04d}" for row in range(ROWS)],
                        "input": pa.FixedSizeListArray.from_arrays(inputs.ravel(), FEATURES),
                        **{f"target.{name}": columns[name] for name in names},
                    }
                )
            }
        tasks = tuple(Task(name=name, loss="mse", outputs=1, metrics=("mse",)) for name in names)
        shape = (FEATURES,)
        suite = TaskSuite(name="planted", tasks=tasks, inputs="shared", input_kind="vector", input_shape=shape)
        return Prepared(suite, tables)
