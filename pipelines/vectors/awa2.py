"""Animals with Attributes 2 as fifty one-against-rest tasks on components of deep features (TOMATO's AwA2)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import Task, TaskSuite, UserError, knob
from pipelines._steps.features import one_against_rest, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

FEATURES, LABELS = "AwA2-features.txt", "AwA2-labels.txt"


class AwA2(Pipeline):
    """AwA2: is it this animal? One binary task per class of 99 images, on 500 principal components of deep features.

    The source is the published feature files, extracted or in their zip, with one image per line: `AwA2-features.txt`
    has numbers separated by spaces, `AwA2-labels.txt` the class, counted from 1. The set's own page offers ResNet-101
    features; any other features in this form work, too. A task has `positives` images of its class and `negatives` of
    each other class; no image is in two tasks.
    """

    name: ClassVar[str] = "awa2"
    source: ClassVar[str] = "Xian et al., PAMI 2018; as in Zhang & Lee, CIKM 2020, table 2"
    folder: ClassVar[str] = "awa2"
    without_floors: ClassVar[tuple[str, ...]] = ()
    archives: ClassVar[tuple[str, ...]] = ("AwA2-features.zip",)
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

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        labels, features = _read_array(source, LABELS)[:, 0].astype(int), _read_array(source, FEATURES)
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


def _read_array(source: Path, file: str) -> np.ndarray:
    """Read a file of the folder or the zip as an array [lines, numbers]."""
    if source.is_dir():
        with (source / file).open() as lines:
            return _numbers(lines, source / file)

    try:
        with zipfile.ZipFile(source) as archive:
            name = next((name for name in archive.namelist() if name.rpartition("/")[2] == file), None)
            if name is None:
                raise UserError(f"awa2: {source} holds no {file}; pass AwA2-features.zip, not the pictures")
            with archive.open(name) as member:
                return _numbers((line.decode("latin-1") for line in member), source / name)
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"awa2: {source} is truncated or is no zip archive ({error}); fetch it again") from None


def _numbers(lines: Iterable[str], path: Path) -> np.ndarray:
    try:
        values = np.loadtxt(lines, dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise UserError(f"awa2: {path} does not hold as many numbers in every line ({error}); fetch it again") from None

    if not values.size:
        raise UserError(f"awa2: {path} has no line; fetch it again")
    if not np.isfinite(values).all():
        line, column = (int(indices[0]) + 1 for indices in np.nonzero(~np.isfinite(values)))
        raise UserError(
            f"awa2: line {line} of {path} has a number that is not finite, in column {column}; fetch it again"
        )
    return values
