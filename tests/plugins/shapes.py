"""A small generated image set: bright discs and squares on a noisy ground, with maps or labels to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, SPLITS, Task, TaskSuite, knob
from pipelines import Pipeline, PrepareContext, Prepared

IMAGES = {"train": 25, "val": 7, "test": 8}
MAPS = (
    Task(name="kind", loss="cross_entropy", outputs=3, metrics=("miou", "pixel_accuracy")),
    Task(name="depth", loss="l1", outputs=1, metrics=("abs_err", "rel_err")),
    Task(name="normals", loss="cosine", outputs=3, metrics=("angle_mean", "angle_median", "within_30")),
)
LABELS = tuple(Task(name=name, loss="bce", outputs=1, metrics=("error", "f1")) for name in ("disc", "red", "high"))


class Shapes(Pipeline):
    """One shape per image: its class, depth and normals by pixel, or three binary labels of it. Some are missing."""

    name: ClassVar[str] = "shapes"
    needs_source: ClassVar[bool] = False

    size: int = knob(16, low=8, help="pixels of a side")
    maps: bool = knob(True, help="maps, or labels of the image")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        tables, size = {}, self.size
        for split in SPLITS:
            rows = [self._sample(rng) for _ in range(IMAGES[split])]
            columns = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
            if self.maps:
                columns["target.kind"][0, :3] = MISSING_CLASS
                columns["target.depth"][1:3, 0, :, :2] = np.nan
            else:
                columns["target.red"][2] = np.nan
            tables[split] = {
                "all": pa.table(
                    {
                        "id": [f"{split}/{row:04d}" for row in range(len(rows))],
                        **{key: _column(value) for key, value in columns.items()},
                    }
                )
            }
        extras = {"mean": [90.0, 80.0, 70.0], "std": [50.0, 50.0, 60.0]}
        suite = TaskSuite(
            name="shapes",
            tasks=MAPS if self.maps else LABELS,
            inputs="shared",
            input_kind="image",
            input_shape=(3, size, size),
            extras=extras,
        )
        shapes = {"kind": (size, size), "depth": (1, size, size), "normals": (3, size, size)} if self.maps else {}
        return Prepared(suite, tables, target_shapes=shapes)

    def _sample(self, rng: np.random.Generator) -> dict[str, Any]:
        size = self.size
        y, x = np.mgrid[:size, :size]
        radius, row, column = size * rng.uniform(0.2, 0.35), *(size * rng.uniform(0.3, 0.7, 2))
        disc, red = rng.random() < 0.5, rng.random() < 0.5
        inside = (
            (y - row) ** 2 + (x - column) ** 2 < radius**2
            if disc
            else np.maximum(abs(y - row), abs(x - column)) < radius * 0.9
        )
        image = rng.uniform(20, 90, (3, size, size))
        image[0 if red else 2] += inside * 150
        image[1] += y / size * 50
        found: dict[str, Any] = {"input": image.clip(0, 255).astype(np.uint8)}
        if self.maps:
            normal = np.stack([(x - column) / size, (y - row) / size, np.ones((size, size))])
            found["target.kind"] = np.where(inside, 1 + int(red), 0).astype(np.int64)
            found["target.depth"] = np.where(inside, 1.0, 3.0 - y / size)[None].astype(np.float32)
            found["target.normals"] = (normal / np.linalg.norm(normal, axis=0)).astype(np.float32)
            return found
        labels = {"disc": disc, "red": red, "high": row < size / 2}
        return found | {f"target.{name}": np.float32(value) for name, value in labels.items()}


def _column(values: np.ndarray) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(values.ravel(), int(np.prod(values.shape[1:])))
