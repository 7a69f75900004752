"""Splits of a table's rows: at random, by groups that stay together, by time, or as a column says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, SPLITS, UserError
from mtlscale.data.format.table_columns import category_names, numbers_of
from mtlscale.data.sampling.splits import uniform_hash
from pipelines._formats.hub import SPLIT_NAMES
from pipelines._steps.features import random_split


@dataclass(frozen=True, kw_only=True)
class RowSplit:
    """The rule that splits rows: at random unless it names a column of groups, of times, or of splits."""

    pipeline: str
    test: float
    validation: float
    seed: int = 0
    group: str = ""
    time: str = ""
    column: str = ""

    def __post_init__(self) -> None:
        named = [name for name in ("group", "time", "split_column") if getattr(self, name.removeprefix("split_"))]
        if len(named) > 1:
            raise UserError(f"{self.pipeline}: {' and '.join(named)} both say how rows are split; keep one")

    @property
    def salt(self) -> str:
        """The salt of the hashes."""
        return f"{self.pipeline}/{self.seed}"

    def rows(self, table: pa.Table, ids: np.ndarray, labels: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return split -> its rows.

        Args:
            ids: The ids [N], which decide a random split.
            labels: Classes [N] of each target of classes, `MISSING_CLASS` where there is none; a random split keeps a
                row of each class in training, and the shares of the first target's classes.
        """
        if self.column:
            return self._named(category_names(table[self.column]).tolist(), ids)
        if self.time:
            return self._by_time(table, ids)

        units = category_names(table[self.group]) if self.group else ids.astype(object)
        if self.group:
            distinct = np.array(sorted(set(units)), dtype=object)
            parts = self._random(distinct, None)
        else:
            distinct, parts = units, self._random(units, labels[0] if len(labels) else None)
        split_of = {unit: split for split, rows in parts.items() for unit in distinct[rows]}

        splits = np.array([split_of[unit] for unit in units], dtype=object)
        for codes in labels:
            for code in sorted(set(codes[codes != MISSING_CLASS]) - set(codes[splits == "train"])):
                candidates = np.flatnonzero(codes == code)
                first = min(candidates, key=lambda row: uniform_hash(str(units[row]), self.salt))
                splits[units == units[first]] = "train"
        return self._checked(splits)

    def _random(self, units: np.ndarray, classes: np.ndarray | None) -> dict[str, np.ndarray]:
        try:
            return random_split(
                self.pipeline, "all", units, self.salt, classes, test=self.test, validation=self.validation
            )
        except UserError:
            if classes is not None:
                return self._random(units, None)  # too few rows to keep one of every class first
            counted = f"{len(units)} values of {self.group!r}" if self.group else f"{len(units)} rows"
            raise UserError(f"{self.pipeline}: there are {counted}, too few for {self.test:.0%} test and "
                            f"{self.validation:.0%} of the rest validation; change the shares")  from None  # fmt: skip

    def _by_time(self, table: pa.Table, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Put the latest rows into test and those before them into validation; rows of one time stay together."""
        column = table[self.time]
        if not (pa.types.is_temporal(column.type) or pa.types.is_integer(column.type)
                or pa.types.is_floating(column.type)):  # fmt: skip
            raise UserError(f"{self.pipeline}: column {self.time!r} of `time` holds {column.type}; use dates such as "
                            "2024-01-31, or numbers")  # fmt: skip
        times = numbers_of(column, "date" if pa.types.is_temporal(column.type) else "number")[:, 0]

        ordered = np.sort(times)
        tests = max(1, int(self.test * len(ids) + 0.5))
        test_from = ordered[len(ids) - tests]
        earlier = ordered[ordered < test_from]
        validations = max(1, int(self.validation * len(earlier) + 0.5))
        validation_from = earlier[len(earlier) - validations] if len(earlier) else test_from
        return self._checked(
            np.where(times >= test_from, "test", np.where(times >= validation_from, "val", "train")).astype(object)
        )

    def _named(self, names: Sequence[str], ids: np.ndarray) -> dict[str, np.ndarray]:
        """Take the split that each row names; without a validation part, a share of train is held out by hash."""
        unknown = next((name for name in names if name.lower() not in SPLIT_NAMES), None)
        if unknown is not None:
            raise UserError(
                f"{self.pipeline}: column {self.column!r} has {unknown!r}, which is no split; use {', '.join(SPLITS)}"
            )

        splits = np.array([SPLIT_NAMES[name.lower()] for name in names], dtype=object)
        if "val" not in splits:
            train = np.flatnonzero(splits == "train")
            order = train[np.argsort([uniform_hash(str(id), self.salt) for id in ids[train]])]
            splits[order[: max(1, int(self.validation * len(train) + 0.5))]] = "val"
        return self._checked(splits)

    def _checked(self, splits: np.ndarray) -> dict[str, np.ndarray]:
        rows = {split: np.flatnonzero(splits == split) for split in SPLITS}
        empty = next((split for split, chosen in rows.items() if not len(chosen)), None)
        if empty is not None:
            raise UserError(
                f"{self.pipeline}: no row falls into {empty}; change `test` and `validation`, or the column that splits"
            )
        return rows
