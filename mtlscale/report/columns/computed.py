"""All columns of a table as numbers: those of its runs, and those of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.config.registry.report_parts import failed
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Family, families
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.tables.table import Table, tested_name


@dataclass(frozen=True)
class Computed:
    """Columns as numbers.

    Attributes:
        values: [runs or rows, columns].
        stored: Column -> its place in CSV and JSON.
        notes: A note on each column of a plugin that could not be computed.
    """

    values: pd.DataFrame
    stored: dict[str, int]
    notes: list[str]


def of_runs(frame: Frame) -> Computed:
    """Compute every column that has a value for each finished run."""
    return _computed("runs", frame, frame.runs.index, lambda entry: entry.compute(frame))


def of_rows(table: Table, frame: Frame, measured: Computed) -> Computed:
    """Compute every column of rows, in the order of files: means and intervals of what is measured, and the others.

    Args:
        table: The table without its rows.
        frame: Its runs.
        measured: The columns of its runs.
    """
    keys = [key for key in measured.stored if not key.endswith(tested_name(""))]
    grouped = table.runs.groupby("method", sort=False)[keys]
    mean = grouped.mean()
    width = pd.DataFrame(half_width(grouped.std(), grouped.count()), index=mean.index, columns=mean.columns)
    means = pd.concat([mean, width.add_suffix("_ci")], axis=1).reindex(frame.counts.index)

    with_means = replace(table, rows=means)
    others = _computed("rows", frame, means.index, lambda entry: entry.compute(with_means, frame))
    stored = {name: measured.stored[key] for key in keys for name in (key, f"{key}_ci")} | others.stored
    rows = pd.concat([means, others.values], axis=1)[sorted(stored, key=lambda name: stored[str(name)])]
    return Computed(rows, stored, others.notes)


def notes(table: Table, frame: Frame) -> list[str]:
    """Return what to know of the columns, in the order of tables."""
    ordered = sorted(families(frame.plugins), key=lambda entry: entry.definitions[0].shown)
    return [note for entry in ordered if entry.notes is not None for note in entry.notes(table, frame)]


def _computed(
    of: str, frame: Frame, index: pd.Index[Any], compute: Callable[[Family], pd.Series[Any] | pd.DataFrame]
) -> Computed:
    frames, stored, notes = [pd.DataFrame(index=index)], dict[str, int](), list[str]()
    for entry in families(frame.plugins):
        if entry.of != of:
            continue
        try:
            values = _framed(entry, compute(entry), index)
        except Exception as error:
            if not entry.plugin:
                raise
            keys = ", ".join(definition.key for definition in entry.definitions)
            notes.append(failed(f"column {keys}", entry.plugin, error))
            continue
        places = {definition.key: definition.stored for definition in entry.definitions}
        stored |= {str(key): places.get(str(key), entry.definitions[0].stored) for key in values}
        frames.append(values)
    return Computed(pd.concat(frames, axis=1), stored, notes)


def _framed(entry: Family, values: pd.Series[Any] | pd.DataFrame, index: pd.Index[Any]) -> pd.DataFrame:
    """Return what a family gave as a frame; columns of a plugin are checked, and hold finite numbers alone."""
    if not entry.plugin:
        return (values.to_frame(entry.definitions[0].key) if isinstance(values, pd.Series) else values).reindex(index)

    if entry.of == "runs" and len(values) != len(index):
        raise ValueError(f"{len(values)} values for {len(index)} finished runs")
    if not isinstance(values, pd.Series | pd.DataFrame):
        values = pd.Series(values, index)
    frame = values.to_frame(entry.definitions[0].key) if isinstance(values, pd.Series) else values
    if missing := [definition.key for definition in entry.definitions if definition.key not in frame]:
        raise ValueError(f"no values of {missing[0]}")
    frame = frame[[definition.key for definition in entry.definitions]].reindex(index).astype(float)
    return frame.where(np.isfinite(frame))
