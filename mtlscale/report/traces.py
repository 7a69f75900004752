"""Traces that have a number per task, branch point or module, as data frames: what searches leave with their epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.curves import positions

MOST_METHODS = 12  # with a picture or panel of their own


def trace_values(records: Sequence[RunRecord], trace: str) -> pd.DataFrame:
    """One row per number of a trace: `method`, `phase`, `seed`, `epoch` (over all phases), `task` ("" where the trace
    has none), `place` (from 1; 0 where a task has one number) and `value`. Empty where nobody recorded it."""
    rows = [
        (record.method, epoch.phase, record.seed, position, *entry)
        for record in records
        if any(trace in epoch.traces for epoch in record.epochs)  # most records of most reports have none
        for position, epoch in zip(positions(record), record.epochs, strict=True)
        for entry in _entries(epoch.traces.get(trace))
        if math.isfinite(entry[-1])
    ]
    frame = pd.DataFrame(rows, columns=["method", "phase", "seed", "epoch", "task", "place", "value"])
    frame["value"] = frame["value"].astype(float)
    return frame


def by_method(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The first methods' rows."""
    groups = ((str(method), rows) for method, rows in frame.groupby("method", sort=False))
    return {method: rows for (method, rows), _ in zip(groups, range(MOST_METHODS), strict=False)}


def last_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each method, seed, task and place the row of the last epoch that has it."""
    return frame.sort_values("epoch", kind="stable").drop_duplicates(["method", "seed", "task", "place"], keep="last")


def users(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Method -> the other methods whose runs share an earlier phase with its own, and so its search."""
    phases: dict[str, set[str]] = {}
    for record in records:
        phases.setdefault(record.method, set()).update(phase.phase_id for phase in record.phases)
    return {
        method: [other for other, theirs in phases.items() if other != method and mine & theirs]
        for method, mine in phases.items()
    }


def shortened(name: str, longest: int = 16) -> str:
    """A long name without its middle: its ends tell names of a family apart."""
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def _entries(value: Any) -> Iterator[tuple[str, int, float]]:
    """(task, place, number) of a trace: a list of numbers, or one or a list of them for each task."""
    if isinstance(value, list):
        yield from (("", place, number) for place, number in enumerate(value, 1) if isinstance(number, int | float))
    elif isinstance(value, dict):
        for task, found in value.items():
            if isinstance(found, int | float):
                yield str(task), 0, found
            else:
                yield from ((str(task), place, number) for _, place, number in _entries(found))
