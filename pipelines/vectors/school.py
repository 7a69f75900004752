"""The School set: exam scores of 139 schools, as classification into three segments (TOMATO) or as regression."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import Task, TaskSuite, UserError, knob
from pipelines._formats.mat import read_mat
from pipelines._steps.features import Vectors, random_split, standardised, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

FILE = "school.mat"
SEGMENTS = {"0-9": 10, "10-19": 20, "20-70": 71}  # segment -> first score above it
FEATURES = 28  # the last is a constant 1


class School(Pipeline):
    """School (Inner London Education Authority): a pupil's score segment out of three, one task per school.

    The random split is by school and, so that no school lacks a segment in training, by segment; the paper says by
    school alone. The two numeric features (columns 3 and 4) are standardised over the training pupils of all schools;
    the others are 0 or 1, the last always 1, as published. `target: score` predicts the score itself, in units of 10.
    """

    name: ClassVar[str] = "school"
    source: ClassVar[str] = "Goldstein 1991; Argyriou, Evgeniou & Pontil 2008; three segments: Zhang & Lee, CIKM 2020"
    folder: ClassVar[str] = "school"
    without_floors: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[tuple[str, ...]] = ("error", "rmse")
    archives: ClassVar[tuple[str, ...]] = (FILE,)

    target: str = knob("segment", choices=("segment", "score"), help="three segments of the score, or the score")
    split: int = knob(0, low=0, help="which random split")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        schools = _read_schools(source)
        features = np.concatenate([x for x, _ in schools]).astype(float)
        scores = np.concatenate([y for _, y in schools]).astype(float)
        segments = np.digitize(scores, list(SEGMENTS.values())[:-1])

        ends = np.cumsum([len(y) for _, y in schools])
        rows, ids, pupils_of = {}, {}, {}
        for number, end in enumerate(ends):
            task = f"school{number + 1:03d}"
            pupils_of[task] = np.arange(end - len(schools[number][1]), end)
            ids[task] = np.array([f"{task}/{pupil:03d}" for pupil in range(len(pupils_of[task]))])
            rows[task] = random_split(
                self.name, task, ids[task], f"{self.name}/{self.split}", segments[pupils_of[task]]
            )

        train = np.concatenate([pupils_of[task][rows[task]["train"]] for task in rows])
        numeric = features.max(0) > 1
        features, scaled = standardised(features, train, numeric)

        targets = segments if self.target == "segment" else scores / 10
        samples = {
            task: Vectors(ids[task], features[pupils], targets[pupils], rows[task])
            for task, pupils in pupils_of.items()
        }

        return Prepared(
            TaskSuite(
                name=self.name,
                tasks=tuple(self._task(task) for task in samples),
                inputs="per_task",
                input_kind="vector",
                input_shape=(features.shape[1],),
            ),
            vector_tables(samples),
            notes={"standardised": scaled},
        )

    def _task(self, name: str) -> Task:
        if self.target == "score":
            return Task(name=name, loss="mse", outputs=1, metrics=("rmse", "mae"))
        return Task(name=name, loss="cross_entropy", outputs=3, metrics=("error",), classes=tuple(SEGMENTS))


def _read_schools(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (features [n, 28], scores [n]) of each school."""
    try:
        content = read_mat(path)
    except ValueError as error:
        raise UserError(f"school: {path} is no MATLAB file or damaged ({error}); fetch it again") from None

    if "X" not in content or "Y" not in content or content["X"].shape != content["Y"].shape:
        raise UserError(f"school: {path} has not the cells X and Y, one entry per school each; use MALSAR's school.mat")

    schools = [(x, y.ravel()) for x, y in zip(content["X"].ravel(), content["Y"].ravel(), strict=True)]
    for number, (x, y) in enumerate(schools):
        if x.ndim != 2 or x.shape != (len(y), FEATURES):
            raise UserError(
                f"school: X of school {number + 1} is {x.shape}, not {len(y)} x {FEATURES}; use MALSAR's school.mat"
            )
        if not (finite := np.isfinite(x.astype(float))).all():
            row, column = (int(indices[0]) + 1 for indices in np.nonzero(~finite))
            raise UserError(
                f"school: pupil {row} of school {number + 1} has no finite number in column {column} of X; "
                "mend or drop it"
            )
        if len(y) and not (y.min() >= 0 and y.max() < max(SEGMENTS.values())):
            raise UserError(f"school: scores of school {number + 1} are not within 0 and 70; use MALSAR's school.mat")

    return schools
