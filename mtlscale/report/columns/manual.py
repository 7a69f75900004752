"""The lists of columns for docs/leaderboard.md and `mtlscale list columns`, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator

from mtlscale.report.columns.registry import definitions
from mtlscale.report.stats.frames import UNITS


def manual() -> Iterator[tuple[list[str], str]]:
    """Yield (headers, what they say) of the columns of tables; columns with the same text share a line."""
    lines: dict[str, list[str]] = {}
    for definition in definitions().values():
        if definition.title and (text := definition.manual or definition.explain):
            lines.setdefault(text, []).append(definition.title)
    yield from ((headers, text) for text, headers in lines.items())


def stored() -> Iterator[tuple[list[str], str]]:
    """Yield (names, what they are) of the columns of CSV, likewise."""
    lines: dict[str, list[str]] = {"the row": ["dataset", "method"]}
    for one in sorted(definitions().values(), key=lambda one: one.stored):
        if text := one.numbers or one.explain:
            lines.setdefault(text, []).append(f"TASK.METRIC.{UNITS}" if one.key == UNITS else one.key)
    lines["half the 95 % interval over seeds of the column before it"] = ["…_ci"]
    yield from ((names, text) for text, names in lines.items())
