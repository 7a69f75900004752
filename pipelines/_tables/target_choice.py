"""The target columns that a user names on the command line: by name, by pattern or by place, each with its kind."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from mtlscale.config import UserError
from pipelines._tables.targets import KINDS

_PLACES = ("first", "last")


def chosen_targets(options: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Return target column -> kind, `auto` where none is named.

    Args:
        options: Texts such as `a,b:regression`, `T*:class`, `first:3` or `last:14`. A text that is a column's name,
            alone or before `:KIND`, is that column, whatever marks are in it.
        columns: The columns that may be targets.

    Raises:
        UserError: An option names nothing, a pattern fits no column, or a column is named twice.
    """
    chosen: dict[str, str] = {}
    named: set[str] = set()
    for text in options:
        entries = list(_entries(text, columns))
        if not entries:
            raise UserError(f"--targets {text!r}: name the target columns, separated by commas")
        for name, kind in entries:
            matches = _matches(name, columns)
            if name in named:
                raise UserError(f"--targets: {name!r} is there twice; name each column once")
            named.add(name)
            for match in matches:
                if match == name or match not in named:
                    chosen[match] = kind
    return chosen


def _entries(text: str, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names or patterns in an option, and their kinds."""
    for part in [text] if _is_column(text, columns) else text.split(","):
        entry = part if part in columns else part.strip()
        name, colon, kind = entry.rpartition(":")
        if entry in columns or not colon or (name in _PLACES and kind.isdigit()):
            name, kind = entry, "auto"
        if name:
            yield name, kind


def _is_column(text: str, columns: Sequence[str]) -> bool:
    name, _, kind = text.rpartition(":")
    return text in columns or (name in columns and kind in KINDS)


def _matches(name: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that a name or a pattern means; a name that is no column stands for itself."""
    place, _, count = name.partition(":")
    if name in columns:
        return [name]
    if place in _PLACES and count.isdigit():
        if not 0 < int(count) < len(columns):
            raise UserError(f"--targets {name}: the table has {len(columns)} columns, one of which has to be an input")
        return list(columns[: int(count)] if place == "first" else columns[-int(count) :])
    if any(mark in name for mark in "*?["):
        matches = fnmatch.filter(columns, name)
        if not matches:
            raise UserError(f"--targets {name!r} fits no column; the columns are {', '.join(columns[:20])}")
        return matches
    return [name]
