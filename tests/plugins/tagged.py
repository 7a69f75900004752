"""A small set of tagged sentences of unequal length in two languages, prepared as words with their characters."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, Task, TaskSuite
from mtlscale.data.format.manifest import SPECIAL_WORDS
from pipelines import Pipeline, PrepareContext, Prepared

ROWS = {"train": 24, "val": 8, "test": 8}
LENGTH, LETTERS, WORDS = 7, 3, 20
TAGS = ("O", "B-X", "I-X")


class Tagged(Pipeline):
    """A word's tag depends on the word alone; every seventh word has none."""

    name: ClassVar[str] = "tagged"
    needs_source: ClassVar[bool] = False

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        rng = np.random.default_rng(0)
        metrics = ("entity_f1", "accuracy", "f1")
        tasks = tuple(
            Task(name=name, loss="cross_entropy", outputs=len(TAGS), metrics=metrics, classes=TAGS, per="token")
            for name in ("en", "te")
        )
        suite = TaskSuite(
            name=self.name,
            tasks=tasks,
            inputs="per_task",
            input_kind="tokens",
            input_shape=(LENGTH, 1 + LETTERS),
            vocabulary_size=WORDS,
            extras={"characters": ["a", "b", "c"]},
        )
        tables = {
            split: {task.name: _table(rng, task.name, split, rows - 4 * place) for place, task in enumerate(tasks)}
            for split, rows in ROWS.items()
        }
        words = [*SPECIAL_WORDS, *(f"w{code}" for code in range(2, WORDS))]
        return Prepared(suite, tables, target_shapes={task.name: (LENGTH,) for task in tasks}, vocabulary=words)


def _table(rng: np.random.Generator, task: str, split: str, rows: int) -> pa.Table:
    words = rng.integers(1, WORDS, (rows, LENGTH))
    tags = np.where(words % 7 == 3, MISSING_CLASS, words % len(TAGS))
    behind = np.arange(LENGTH) >= rng.integers(1, LENGTH + 1, rows)[:, None]
    words[behind], tags[behind] = 0, MISSING_CLASS
    letters = [np.where(words == 0, 0, 1 + (words + place) % 4) for place in range(LETTERS)]
    inputs = np.stack([words, *letters], axis=2).astype(np.int32)
    return pa.table(
        {
            "id": [f"{task}/{split}{row:03}" for row in range(rows)],
            "input": pa.FixedSizeListArray.from_arrays(inputs.ravel(), LENGTH * (1 + LETTERS)),
            f"target.{task}": pa.FixedSizeListArray.from_arrays(tags.astype(np.int16).ravel(), LENGTH),
        }
    )
