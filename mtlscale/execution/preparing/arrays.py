"""Arrays and data frames of a user as one table file, named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.config import UserError
from mtlscale.records import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

_LETTERS = 16  # of a file's name


def joined(inputs: Any, targets: Any) -> tuple[pa.Table, list[str]]:
    """Return inputs and targets side by side, and the names of the targets.

    Args:
        inputs: A data frame, an array [N, D], or a mapping of columns. Columns of an array are called x1, x2, …
        targets: The same, or one column [N], which is called y.

    Raises:
        UserError: They have different rows or a column of one name, or are no tables.
    """
    _check_same_index(inputs, targets)
    x_table, y_table = _table(inputs, "X", "x"), _table(targets, "Y", "y")
    if len(x_table) != len(y_table):
        raise UserError(f"compare: X has {len(x_table)} rows and Y has {len(y_table)}; give both a row per sample")
    if not len(x_table):
        raise UserError("compare: X has no row")

    twice = next((name for name in y_table.column_names if name in x_table.column_names), None)
    if twice is not None:
        raise UserError(f"compare: column {twice!r} is in X and in Y; drop it from X, or rename it")

    table = x_table
    for name in y_table.column_names:
        table = table.append_column(name, y_table[name])
    return table, list(y_table.column_names)


def write_table(table: pa.Table, folder: Path) -> Path:
    """Write a table as a Parquet file named by its content, unless it exists, and return the file."""
    import pyarrow as pa
    import pyarrow.parquet

    buffer = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer)
    content = buffer.getvalue().to_pybytes()

    path = folder / f"{hashlib.sha256(content).hexdigest()[:_LETTERS]}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return path


def _table(columns: Any, argument: str, letter: str) -> pa.Table:
    """Return columns as a table without the metadata of the library that they come from."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(columns, str | Path):
        raise UserError(
            f"compare: {argument} is a text; pass a data frame or an array, or run `mtlscale inspect FILE` on a file"
        )
    if hasattr(columns, "toarray"):
        raise UserError(f"compare: {argument} is a sparse matrix; pass {argument}.toarray()")
    try:
        if isinstance(columns, pd.Series):
            columns = columns.to_frame(letter if columns.name is None else columns.name)
        if isinstance(columns, pd.DataFrame):
            columns = columns.rename(columns=str)
            if (twice := columns.columns[columns.columns.duplicated()]).size:
                raise UserError(f"compare: {argument} has two columns named {twice[0]!r}; rename or drop one")
            table = pa.Table.from_pandas(columns, preserve_index=False)
        elif isinstance(columns, Mapping):
            arrays = {str(n): v if isinstance(v, Sequence) else np.asarray(v) for n, v in columns.items()}
            table = pa.table(arrays)
        elif hasattr(columns, "__arrow_c_stream__"):
            table = pa.table(columns)
        else:
            _check_one_kind(columns, argument)
            table = _of_array(np.asarray(columns), argument, letter)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problem = " ".join(str(part) for part in error.args).splitlines()[0]
        if (column := re.search(r"Conversion failed for column (.+) with type object", problem)) is not None:
            raise UserError(
                f"compare: column {column[1]!r} of {argument} has values of several kinds, such as texts beside "
                "numbers; mend it"
            ) from None
        raise UserError(f"compare: {argument} is no table: {problem}; pass a data frame or an array") from None

    if not table.num_columns:
        raise UserError(f"compare: {argument} has no column")
    return table.replace_schema_metadata(None)


def _check_one_kind(rows: Any, argument: str) -> None:
    """Raise `UserError` for lists in which a column has texts beside numbers, which numpy would make texts of."""
    if not isinstance(rows, list | tuple) or not rows:
        return
    columns = zip(*rows, strict=False) if isinstance(rows[0], list | tuple) else [rows]
    for number, column in enumerate(columns):
        if len({isinstance(value, str) for value in column}) > 1:
            raise UserError(f"compare: column {number} of {argument} has texts beside numbers; mend it")
    if isinstance(rows[0], list | tuple) and len({isinstance(value, str) for value in rows[0]}) > 1:
        raise UserError(f"compare: {argument} has columns of texts and of numbers; pass a data frame")


def _of_array(values: np.ndarray[Any, Any], argument: str, letter: str) -> pa.Table:
    """Return an array [N] or [N, columns] as a table."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.table({letter: values})
    if values.ndim != 2:
        shape = ", ".join(map(str, values.shape))
        raise UserError(f"compare: {argument} has the shape [{shape}]; give it a row per sample and a column per value")
    return pa.table(
        {f"{letter}{column + 1}": np.ascontiguousarray(values[:, column]) for column in range(values.shape[1])}
    )


def _check_same_index(inputs: Any, targets: Any) -> None:
    """Raise `UserError` if both are of pandas and their rows have different labels."""
    import pandas as pd

    kinds = (pd.DataFrame, pd.Series)
    if not (isinstance(inputs, kinds) and isinstance(targets, kinds)) or len(inputs) != len(targets):
        return

    differs = [row for row, (x, y) in enumerate(zip(inputs.index, targets.index, strict=True)) if x != y]
    if differs:
        x, y = (frame.index[differs[0] : differs[0] + 1].tolist()[0] for frame in (inputs, targets))
        raise UserError(f"compare: row {differs[0] + 1} is {x!r} in X and {y!r} in Y; pass Y.loc[X.index]")
