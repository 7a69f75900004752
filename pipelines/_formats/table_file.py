"""Reader for a CSV, TSV, Parquet or ARFF file as an Arrow table, and the messages for files that are something else."""

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
from pipelines._formats.arff import read_arff_table
from pipelines._formats.text_files import LATIN_1, Problems, decoded, unpacked

SUFFIXES = (".csv", ".tsv", ".parquet", ".arff")
ROW = "\0row"
_ZIP = b"PK\x03\x04"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_LOOKED_AT = 20  # cells of a column
_NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
          "NULL", "NaN", "n/a", "nan", "null")  # fmt: skip  # pyarrow's own


def format_of(path: Path) -> str:
    """Return the suffix that tells a file's format, without `.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix


def is_table_file(path: Path) -> bool:
    """Return whether a file's name is that of a table."""
    return format_of(path) in SUFFIXES and not path.name.endswith(".parquet.gz")


def read_table(
    path: Path, *, header: bool = True, missing: Sequence[str] = (), problems: Problems | None = None
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the file with its row numbers as the column `ROW`, and notes on how it was read.

    Args:
        path: The file.
        header: Whether the first line of a text file names the columns; otherwise they are called 1, 2, …
        missing: Texts that count as empty cells.
        problems: Rows with too many or too few fields are added here and left out; None: they are refused.

    Raises:
        UserError: The file cannot be read, has no row, or has two columns of one name.
    """
    kind, rows = format_of(path), None
    try:
        if kind == ".parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                check_names(path.name, file.schema_arrow.names)
                table, notes = file.read(), {}
        elif kind == ".arff":
            text, encoding = decoded(f"table: {path.name}", unpacked(f"table: {path.name}", path))
            table, notes = read_arff_table(f"table: {path.name}", text), _encoding_note(path, encoding)
        else:
            table, notes, rows = _read_csv(path, header, missing, problems)
            check_names(path.name, table.column_names)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"table: {path.name} cannot be read: {str(error).splitlines()[0]}") from None

    if not len(table):
        raise UserError(f"table: {path.name} has no row")
    return table.append_column(ROW, pa.array(range(len(table)) if rows is None else rows)), notes


def _read_csv(
    path: Path, header: bool, missing: Sequence[str], problems: Problems | None
) -> tuple[pa.Table, dict[str, Any], list[int] | None]:
    """Read a text file as UTF-8 or, if that fails, as Latin-1, which the notes record."""
    raw = unpacked(f"table: {path.name}", path)
    if raw.startswith(_ZIP):
        raise UserError(f"table: {path.name} is a spreadsheet or a zip archive, no CSV; save its sheet as CSV")

    text, encoding = decoded(f"table: {path.name}", raw)
    if encoding == LATIN_1:
        check_one_encoding(path.name, *encodings_of(raw))
        raw = text.encode()
    delimiter = "\t" if format_of(path) == ".tsv" else ","
    check_separator(path.name, text.partition("\n")[0], delimiter)

    bad_rows: dict[int, str] = {}

    def keep_bad(row: Any) -> str:
        first = 1 + header  # the line of the first row
        bad_rows[row.number - first] = f"has {row.actual_columns} fields, not {row.expected_columns}"
        return "skip"

    convert = convert_options(missing)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
    read = pyarrow.csv.ReadOptions(use_threads=problems is None)
    if not header:
        width = 1 + text.partition("\n")[0].count(delimiter)
        read.column_names = [str(number + 1) for number in range(width)]
    if problems is not None:
        parse.invalid_row_handler = keep_bad

    table = pyarrow.csv.read_csv(io.BytesIO(raw), read_options=read, parse_options=parse, convert_options=convert)
    notes = _encoding_note(path, encoding)
    if problems is None or not bad_rows:
        return table, notes, None

    problems += [(f"row {row + 1}", problem) for row, problem in bad_rows.items()]
    return table, notes, [row for row in range(len(table) + len(bad_rows)) if row not in bad_rows]


def _encoding_note(path: Path, encoding: str) -> dict[str, Any]:
    return {"read_as_latin_1": [path.name]} if encoding == LATIN_1 else {}


def convert_options(missing: Sequence[str]) -> pyarrow.csv.ConvertOptions:
    """Return how cells of text become values; the texts of `missing` are empty cells, too."""
    convert = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    if missing:
        convert.null_values = [*_NULLS, *missing, *(f" {value}" for value in missing)]
    return convert


def check_one_encoding(name: str, utf_8: int, latin_1: int) -> None:
    """Raise `UserError` if a line of a file is UTF-8 with letters beyond ASCII, and another is no UTF-8.

    Args:
        name: The file's name.
        utf_8: The number of the one line; 0: there is none.
        latin_1: The number of the other.
    """
    if utf_8 and latin_1:
        raise UserError(
            f"table: {name} has two encodings: line {utf_8} is UTF-8, line {latin_1} is not; save it as UTF-8"
        )


def encodings_of(raw: bytes) -> tuple[int, int]:
    """Return the first line, from 1, with letters beyond ASCII in UTF-8, and the first that is no UTF-8; 0: none."""
    utf_8 = latin_1 = 0
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            utf_8 = utf_8 or number
        except UnicodeDecodeError:
            latin_1 = latin_1 or number
    return utf_8, latin_1


def check_separator(name: str, header: str, delimiter: str) -> None:
    """Raise `UserError` if the first line has no delimiter and another separator instead."""
    if delimiter in header:
        return
    for separator, separator_name in _SEPARATORS.items():
        if separator in header:
            raise UserError(f"table: {name} is separated by {separator_name}; save it with commas between the columns")


def check_names(name: str, columns: Sequence[str]) -> None:
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
