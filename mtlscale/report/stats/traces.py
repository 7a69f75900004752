"""Traces with a number per task, branch point or module, as data frames: searches record them with their epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.stats.curves import positions

MOST_METHODS = 12  # with a picture or panel of their own


def trace_values(records: Sequence[RunRecord], trace: str) -> pd.DataFrame:
    """Return one row per number of a trace; empty where no run recorded it.

    The columns are `method`, `phase`, `seed`, `epoch` (over all phases), `task` ("" where the trace has none), `place`
    (from 1; 0 where a task has one number) and `value`.
    """
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
    """Return method -> its rows, of the first methods."""
    groups = ((str(method), rows) for method, rows in frame.groupby("method", sort=False))
    return {method: rows for (method, rows), _ in zip(groups, range(MOST_METHODS), strict=False)}


def last_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, for each method, seed, task and place, the row of the last epoch that has it."""
    return frame.sort_values("epoch", kind="stable").drop_duplicates(["method", "seed", "task", "place"], keep="last")


def users(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return method -> the other methods whose runs share an earlier phase with its own, and so its search."""
    phases: dict[str, set[str]] = {}
    for record in records:
        phases.setdefault(record.method, set()).update(phase.phase_id for phase in record.phases)
    return {
        method: [
            other_method
            for other_method, other_phases in phases.items()
            if other_method != method and own_phases & other_phases
        ]
        for method, own_phases in phases.items()
    }


def shortened(name: str, longest: int = 16) -> str:
    """Cut a long name in its middle: its ends tell names of a family apart."""
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def _entries(value: Any) -> Iterator[tuple[str, int, float]]:
    """Yield (task, place, number) of a trace: a list of numbers, or one or a list of them for each task."""
    if isinstance(value, list):
        yield from (
            ("", position, number) for position, number in enumerate(value, 1) if isinstance(number, int | float)
        )
    elif isinstance(value, dict):
        for task, numbers in value.items():
            if isinstance(numbers, int | float):
                yield str(task), 0, numbers
            else:
                yield from ((str(task), position, number) for _, position, number in _entries(numbers))
