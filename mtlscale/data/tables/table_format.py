"""How a user's table is written, as the options of its data set say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mtlscale.data.tables.raw_files import suffix_of

SUFFIXES = (".csv", ".tsv", ".parquet", ".arff")


@dataclass(frozen=True)
class TableFormat:
    """The options on how a table is written.

    Attributes:
        header: Whether the first line of a text file names the columns; otherwise they are called 1, 2, …
        skip_lines: Number of lines above the header; None: a title is asked about.
        skip_rows: Number of rows below the header that are none; None: a line of units is asked about.
        decimal: The decimal mark, point or comma; "": the point, and another one is asked about.
        dates: How dates are written, as formats of `strptime`, besides 2024-01-31; None: others are asked about.
        missing: Texts and numbers that are empty cells; None: the usual words, unless one is a value of a column.
    """

    header: bool = True
    skip_lines: int | None = None
    skip_rows: int | None = None
    decimal: str = ""
    dates: tuple[str, ...] | None = None
    missing: tuple[str, ...] | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TableFormat:
        """Return the format that the options of a data set describe; others are ignored."""
        chosen: dict[str, Any] = {entry.name: options[entry.name] for entry in fields(cls) if entry.name in options}
        lists = {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
        return cls(**(chosen | lists))


def is_table_file(path: Path) -> bool:
    """Return whether a file's name is that of a table."""
    return suffix_of(path.name) in SUFFIXES
