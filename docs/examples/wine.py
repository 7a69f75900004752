from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite
from mtlscale.data.sampling.splits import hash_split
from pipelines import Pipeline, PrepareContext, Prepared


class Wine(Pipeline):
    """Two questions about the 178 wines that scikit-learn ships: which grower, and how much alcohol?"""

    name: ClassVar[str] = "wine"
    needs_source: ClassVar[bool] = False

    def prepare(self, source: Path | None, work: PrepareContext) -> Prepared:
        from sklearn.datasets import load_wine

        features, grower = load_wine(return_X_y=True)
        ids = np.array([f"{row:03d}" for row in range(len(grower))])
        # A split decided by a hash of a stable id is the same on every machine, whatever the order.
        split = np.array([hash_split(i, {"train": 0.6, "val": 0.2, "test": 0.2}) for i in ids])
        scaled = ((features - features[split == "train"].mean(0)) / features[split == "train"].std(0)).astype(
            np.float32
        )
        alcohol, inputs = scaled[:, 0], np.ascontiguousarray(scaled[:, 1:])
        tables = {
            part: {
                "all": pa.table(
                    {
                        "id": ids[split == part],
                        "input": pa.FixedSizeListArray.from_arrays(inputs[split == part].ravel(), inputs.shape[1]),
                        "target.grower": grower[split == part].astype(np.int8),
                        "target.alcohol": alcohol[split == part],
                    }
                )
            }
            for part in SPLITS
        }
        tasks = (
            Task(name="grower", loss="cross_entropy", outputs=3, metrics=("accuracy",)),
            Task(name="alcohol", loss="mse", outputs=1, metrics=("mae", "mse")),
        )
        suite = TaskSuite(
            name=self.name, tasks=tasks, inputs="shared", input_kind="vector", input_shape=(inputs.shape[1],)
        )
        return Prepared(suite, tables)
