"""MCSEM: customers' feelings about a company in several channels, as distributions over five levels."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtlscale.config import Task, TaskSuite, UserError, knob
from pipelines._steps.features import Vectors, random_split, vector_tables
from pipelines.contract import Pipeline, PrepareContext, Prepared

LEVELS = 5


class MCSEM(Pipeline):
    """MCSEM: distributions over five levels in several channels, from text features; the set itself is not public.

    The source is a folder with one file `<channel>.npz` per channel, as `numpy.savez` writes it: `features` [N, D],
    such as BERT's, with the same D in every channel, and `shares` [N, 5], which are not negative and are scaled here to
    sum to one.
    """

    name: ClassVar[str] = "mcsem"
    source: ClassVar[str] = "Zhang & Lee, CIKM 2020, table 2"
    folder: ClassVar[str] = "mcsem"
    without_floors: ClassVar[tuple[str, ...]] = ()
    delta: ClassVar[tuple[str, ...]] = ("cross_entropy",)

    split: int = knob(0, low=0, help="which random split")

    def locate(self, source: Path) -> Path:
        """Return the folder of the channels' files."""
        if not source.is_dir() or not any(source.glob("*.npz")):
            raise UserError(f"mcsem: {source} holds no <channel>.npz; its docstring says what they contain")
        return source

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        samples: dict[str, Vectors] = {}
        for path in sorted(source.glob("*.npz")):
            channel = path.stem
            features, shares = _read_table(path)
            first = next(iter(samples.values()), None)
            if first is not None and first.features.shape[1] != features.shape[1]:
                raise UserError(
                    f"mcsem: {path} has {features.shape[1]} features, {next(iter(samples))}.npz "
                    f"{first.features.shape[1]}; they must be the same"
                )

            ids = np.array([f"{channel}/{row:06d}" for row in range(len(features))])
            rows = random_split(self.name, channel, ids, f"{self.name}/{self.split}")
            samples[channel] = Vectors(ids, features, shares, rows)

        target_shape: tuple[int, ...] = (LEVELS,)
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(
                Task(name=channel, loss="soft_cross_entropy", outputs=LEVELS, metrics=("cross_entropy", "soft_error"))
                for channel in samples
            ),
            inputs="per_task",
            input_kind="vector",
            input_shape=next(iter(samples.values())).features.shape[1:],
        )

        return Prepared(suite, vector_tables(samples), target_shapes=dict.fromkeys(samples, target_shape))


def _read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            features, shares = content["features"], content["shares"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"mcsem: {path} has no arrays `features` and `shares` ({error}); write it again") from None

    if features.ndim != 2 or shares.shape != (len(features), LEVELS):
        raise UserError(f"mcsem: {path} has features {features.shape} and shares {shares.shape}, not [N, D] and [N, 5]")
    if not (finite := np.isfinite(features)).all():
        row, column = (int(indices[0]) for indices in np.nonzero(~finite))
        raise UserError(f"mcsem: row {row} of {path} has {features[row, column]} in feature {column}; mend or drop it")

    sums = shares.sum(1)
    invalid = ~((shares >= 0).all(1) & (sums > 0) & np.isfinite(sums))
    if invalid.any():
        raise UserError(f"mcsem: row {int(invalid.argmax())} of {path} has no valid shares; mend or drop it")

    return features, shares / sums[:, None]
