"""Pictures of three kinds, one label each, and pictures of none of them in a stream of their own."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite
from pipelines import Pipeline, PrepareContext, Prepared

SIZES = {"train": (40, 16), "val": (15, 9), "test": (21, 11)}  # of the kinds, and of none of them


class Kinds(Pipeline):
    """A red, a green or a blue square on a noisy ground; stripes are none of the kinds."""

    name: ClassVar[str] = "kinds"
    needs_source: ClassVar[bool] = False

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng, side = np.random.default_rng(0), 8
        tables: dict[str, dict[str, pa.Table]] = {}
        for split in SPLITS:
            count, others = SIZES[split]
            labels = np.arange(count) % 3
            pictures = rng.integers(20, 160, (count, 3, side, side))
            for row, label in enumerate(labels):
                pictures[row, label, 2:6, 2:6] += 80
            stripes = np.broadcast_to(np.where(np.arange(side) % 2, 240, 10), (others, 3, side, side))
            tables[split] = {
                "class": pa.table(
                    {"id": [f"{split}/{row}" for row in range(count)], "input": _rows(pictures), "target.class": labels}
                ),
                "ood": pa.table({"id": [f"ood/{split}/{row}" for row in range(others)], "input": _rows(stripes)}),
            }
        suite = TaskSuite(
            name="kinds",
            tasks=(Task(name="class", loss="cross_entropy", outputs=3, metrics=("accuracy",)),),
            inputs="per_task",
            input_kind="image",
            input_shape=(3, side, side),
            unlabelled=("ood",),
            extras={"mean": [100.0, 95.0, 105.0], "std": [50.0, 40.0, 60.0]},
        )
        return Prepared(suite, tables)


def _rows(pictures: np.ndarray) -> pa.Array:
    flat = np.ascontiguousarray(pictures.astype(np.uint8)).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), int(np.prod(pictures.shape[1:])))
