"""What no suite may say, and no table hold, when it is written: metrics nobody has, no rows, numbers that are none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from mtlscale.metrics import check_task
from mtlscale.spec import TaskSuite, UserError


def check_suite(suite: TaskSuite) -> None:
    """`UserError` for no task, for the same name twice, and for a loss or metrics that a task cannot have."""
    if not suite.tasks:
        raise UserError(f"{suite.name} has no task; give its suite one at least")
    names = [task.name for task in suite.tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{suite.name} has two tasks {twice[0]!r}; rename one")
    for task in suite.tasks:
        try:
            check_task(task)
        except UserError as error:
            raise UserError(f"{suite.name}: {error}") from None


def check_tables(suite: TaskSuite, tables: Mapping[str, Mapping[str, pa.Table]]) -> None:
    """split -> stream -> table. `UserError` names the first stream without rows, or sample with a NaN or an infinity.

    A target may be NaN: a label that is missing. An input may not, and nothing may be infinite.
    """
    for split, streams in tables.items():
        for stream, table in streams.items():
            if not len(table):
                task = next(iter(suite.streams[stream]))
                raise UserError(
                    f"{suite.name}: task {task} has no sample in {split}: {stream} has no row there; "
                    "the source is too small, or lacks a part"
                )
            for column in table.column_names:
                _check_finite(f"{suite.name}: {split} of {stream}", table, column)


def _check_finite(where: str, table: pa.Table, column: str) -> None:
    array = table[column].combine_chunks()
    width = 1
    if pa.types.is_fixed_size_list(array.type):
        width, array = array.type.list_size, array.flatten()
    if not pa.types.is_floating(array.type):
        return
    values = array.to_numpy(zero_copy_only=False)
    bad = np.isinf(values) if column.startswith("target.") else ~np.isfinite(values)
    if bad.any():
        row, place = divmod(int(bad.argmax()), width)
        part = f"number {place + 1} of {column}" if width > 1 else column
        raise UserError(f"{where} has {values[bad][0]} in {part} of sample {table['id'][row]}; mend or drop that row")
