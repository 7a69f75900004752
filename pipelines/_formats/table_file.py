"""Reader for a CSV or Parquet file as an Arrow table, and the messages for files that are something else."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mtlscale.config import UserError
from pipelines._formats.text_files import LATIN_1, decoded

SUFFIXES = (".csv", ".parquet")
ROW = "\0row"
_ZIP = b"PK\x03\x04"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_LOOKED_AT = 20  # cells of a column


def read_table(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the file with its row numbers as the column `ROW`, and notes on how it was read."""
    try:
        if path.suffix == ".csv":
            table, notes = _read_csv(path)
            _check_names(path.name, table.column_names)
        else:
            with pyarrow.parquet.ParquetFile(path) as file:
                _check_names(path.name, file.schema_arrow.names)
                table, notes = file.read(), {}
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"table: {path.name} cannot be read: {str(error).splitlines()[0]}") from None

    if not len(table):
        raise UserError(f"table: {path.name} has no row")
    return table.append_column(ROW, pa.array(range(len(table)))), notes


def _read_csv(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Read a CSV file as UTF-8 or, if that fails, as Latin-1, which the notes record."""
    raw = path.read_bytes()
    if raw.startswith(_ZIP):
        raise UserError(f"table: {path.name} is a spreadsheet or a zip archive, no CSV; save its sheet as CSV")
    text, encoding = decoded(f"table: {path.name}", raw)
    _check_separator(path.name, text.partition("\n")[0])

    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    if encoding == LATIN_1:
        return pyarrow.csv.read_csv(io.BytesIO(text.encode()), convert_options=options), {
            "read_as_latin_1": [path.name]
        }
    return pyarrow.csv.read_csv(io.BytesIO(raw), convert_options=options), {}


def _check_separator(name: str, header: str) -> None:
    """Raise `UserError` if the first line has no comma and another separator instead."""
    for separator, separator_name in _SEPARATORS.items():
        if separator in header and "," not in header:
            raise UserError(f"table: {name} is separated by {separator_name}; save it with commas between the columns")


def _check_names(name: str, columns: Sequence[str]) -> None:
    """Raise `UserError` if two columns have the same name."""
    twice = next((column for column, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"table: {name} has two columns named {twice!r}; rename one")


def why_no_numbers(column: pa.ChunkedArray) -> str:
    """Return the advice for a column of texts, for a message that it holds no numbers."""
    values = [value for value in column.drop_null()[:_LOOKED_AT].to_pylist() if isinstance(value, str)]
    if values and all(_DECIMAL_COMMA.fullmatch(value) for value in values):
        return "its numbers have decimal commas; write points"
    return "name it in `categorical`, or list `features` without it"
