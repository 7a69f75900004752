"""Reader for text files with columns, as a whole or in parts that end with a row."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mtlscale.data.tables.arrow_types import is_text
from mtlscale.data.tables.missing_words import IN_WORDS, WORDS, ColumnWords, cut

_SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 20, 1 << 30  # bytes


@dataclass(frozen=True)
class CsvRows:
    """The rows of a file or part.

    Attributes:
        table: The usable rows.
        bad_rows: Position of a row that was left out -> its problem.
        first_bad: The text of the first of them.
    """

    table: pa.Table
    bad_rows: dict[int, str]
    first_bad: str = ""

    @property
    def numbers(self) -> list[int]:
        """The position of each usable row among all rows."""
        count = len(self.table) + len(self.bad_rows)
        return [row for row in range(count) if row not in self.bad_rows] if self.bad_rows else list(range(count))


def read_csv(
    raw: bytes,
    names: Sequence[str],
    separator: str,
    *,
    missing: Sequence[str] = (),
    values: Collection[str] = (),
    columns: Sequence[str] | None = None,
    types: Mapping[str, pa.DataType] | None = None,
) -> CsvRows:
    """Return the rows of a text in UTF-8 that begins with a row.

    Args:
        separator: The character between two fields.
        missing: Texts that count as empty cells in every column, besides the usual words.
        values: Columns in which the usual words are values.
        columns: The columns to read; None: all.
        types: The types of columns that are known.

    Raises:
        pa.ArrowInvalid: A cell is not of its column's type, or quotes stand where none may.
    """
    chosen = list(names if columns is None else columns)
    known = dict(types or {})
    if not raw.strip():
        return CsvRows(pa.table({name: pa.array([], known.get(name, pa.null())) for name in chosen}), {})

    convert = _convert(["", *WORDS, *_listed(missing)], chosen, {name: known[name] for name in chosen if name in known})
    rows = _parsed(raw, names, separator, convert)
    kept = [name for name in chosen if name in values]
    if kept:
        exact = _parsed(
            raw, names, separator, _convert(["", *_listed(missing)], kept, dict.fromkeys(kept, pa.string()))
        )
        table = rows.table
        for name in (name for name in kept if exact.table[name].null_count < len(table)):
            table = table.set_column(table.column_names.index(name), name, exact.table[name])
        rows = replace(rows, table=table)
    return rows


def words_in(raw: bytes, names: Sequence[str], separator: str, rows: CsvRows) -> dict[str, ColumnWords]:
    """Return the usual words of missing cells that stand in columns, and the values beside them.

    Args:
        raw: The text that was read.
        separator: The character between two fields.
        rows: What `read_csv` made of it.

    Returns:
        The entry of each column of texts, and of others with such words.
    """
    table = rows.table
    words = {name: ColumnWords(True, len(table), table[name].null_count, values=_values(table[name]))
             for name in table.column_names if is_text(table[name].type)}  # fmt: skip
    with_empty = [name for name in table.column_names if table[name].null_count]
    if not with_empty or not any(part[:1] in raw and part in raw for part in IN_WORDS):
        return words

    types = dict.fromkeys(with_empty, pa.string())
    exact = _parsed(raw, names, separator, _convert([""], with_empty, types)).table
    unquoted = exact
    if b'"' in raw:
        unquoted = _parsed(raw, names, separator, _convert(WORDS, with_empty, types, quoted=False)).table
    for name in with_empty:
        cells = exact[name]
        is_word = pc.fill_null(pc.is_in(cells, pa.array(WORDS)), False)
        if not pc.any(is_word).as_py():
            continue
        in_quotes = pc.is_valid(unquoted[name]) if unquoted is not exact else pa.scalar(False)
        values = _values(cells.filter(pc.invert(is_word)))
        words[name] = ColumnWords(
            texts=is_text(table[name].type) or not values,
            rows=len(cells),
            empty=cells.null_count,
            plain=_counts(cells.filter(pc.and_not(is_word, in_quotes))),
            quoted=_counts(cells.filter(pc.and_(is_word, in_quotes))),
            values=values,
        )
    return words


def _values(cells: pa.ChunkedArray) -> frozenset[str]:
    """Return the different texts that have a letter, cut off where they are many."""
    return cut(frozenset(text for text in pc.unique(cells).to_pylist() if text and text.strip()))


def _listed(missing: Sequence[str]) -> list[str]:
    return [*missing, *(f" {text}" for text in missing)]


def _counts(cells: pa.ChunkedArray) -> Counter[str]:
    return Counter({entry["values"]: entry["counts"] for entry in pc.value_counts(cells).to_pylist()})


def _convert(
    words: Sequence[str], columns: Sequence[str], types: Mapping[str, pa.DataType], *, quoted: bool = True
) -> pyarrow.csv.ConvertOptions:
    return pyarrow.csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=quoted,
        null_values=list(words),
        include_columns=list(columns),
        column_types=dict(types),
    )


def _parsed(raw: bytes, names: Sequence[str], separator: str, convert: pyarrow.csv.ConvertOptions) -> CsvRows:
    bad_rows: dict[int, str] = {}
    texts: list[str] = []

    def keep_bad(row: Any) -> str:
        bad_rows[row.number - 1] = f"has {row.actual_columns} fields, not {row.expected_columns}"
        texts.append(str(row.text) if not texts else "")
        return "skip"

    # One block, so that no cell lies in two: blocks are cut at line ends, of which a cell in quotes may have some.
    size = min(max(len(raw) + 1, _SMALLEST_BLOCK), _LARGEST_BLOCK)
    table = pyarrow.csv.read_csv(
        io.BytesIO(raw),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=list(names), block_size=size),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=separator, newlines_in_values=True, invalid_row_handler=keep_bad
        ),
        convert_options=convert,
    )
    return CsvRows(table, bad_rows, texts[0] if texts else "")
