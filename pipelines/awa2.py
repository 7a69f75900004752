"""Animals with Attributes 2 as fifty one-against-rest tasks on components of deep features (TOMATO's AwA2)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.spec import Task, TaskSuite, UserError, knob
from pipelines._base import Pipeline, Prepared, Work
from pipelines._features import one_against_rest, vector_tables

FEATURES, LABELS = "AwA2-features.txt", "AwA2-labels.txt"


class AwA2(Pipeline):
    """AwA2: is it this animal? One binary task per class of 99 images, on 500 principal components of deep features.

    Source: the feature files as published, one image a line: `AwA2-features.txt`, numbers separated by spaces, and
    `AwA2-labels.txt`, the class from 1 (ResNet-101 features of the set's own page; any other features in this form
    do). A task has `positives` images of its class and `negatives` of each other; no image is in two tasks.
    """

    name: ClassVar[str] = "awa2"
    source: ClassVar[str] = "Xian et al., PAMI 2018; as in Zhang & Lee, CIKM 2020, table 2"
    folder: ClassVar[str] = "awa2"
    roots: ClassVar[tuple[str, ...]] = (
        "",
        "ResNet101",
        "Features/ResNet101",
        "Animals_with_Attributes2/Features/ResNet101",
    )

    positives: int = knob(50, low=2, help="images of the task's class")
    negatives: int = knob(1, low=1, help="images of each other class in a task")
    components: int = knob(500, low=1, help="principal components")
    split: int = knob(0, low=0, help="which random split")

    def expected(self) -> tuple[str, ...]:
        return (FEATURES, LABELS)

    def prepare(self, source: Path | None, work: Work) -> Prepared:
        assert source is not None
        labels, features = _read(source / LABELS)[:, 0].astype(int), _read(source / FEATURES)
        if len(features) != len(labels):
            raise UserError(f"awa2: {FEATURES} has {len(features)} lines, {LABELS} {len(labels)}; they belong together")
        tasks = one_against_rest(
            self.name,
            features,
            labels,
            {f"class{label:02d}": int(label) for label in np.unique(labels)},
            positives=self.positives,
            negatives=self.negatives,
            components=self.components,
            split=self.split,
        )
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(Task(name=task, loss="cross_entropy", outputs=2, metrics=("error",)) for task in tasks),
            inputs="per_task",
            input_kind="vector",
            input_shape=(self.components,),
        )
        return Prepared(suite, vector_tables(tasks))


def _read(path: Path) -> np.ndarray:
    """[lines, numbers]."""
    try:
        values = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise UserError(f"awa2: {path} does not hold as many numbers in every line ({error}); fetch it again") from None
    if not np.isfinite(values).all():
        line = int(np.flatnonzero(~np.isfinite(values).all(1))[0]) + 1
        raise UserError(f"awa2: line {line} of {path} has a number that is not finite; fetch it again")
    return values
