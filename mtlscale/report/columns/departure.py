"""How far a method's weights went from equal ones, which methods are equal weighting, and which scale it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.records import NEAR_ZERO, ROUNDING, RunRecord
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import column
from mtlscale.report.tables.table import IDLE, Table

MARGIN = 0.01  # relative distance to equal weights, and of their sum to 1: methods that never went further did not act


@column(
    "departure",
    of="rows",
    stored=720,
    numbers="how far the weights went from equal ones at most, relative",
    notes=lambda table, frame: equal_weights(frame.finished, list(map(str, table.rows.index)))[1],
)
def departure(table: Table, frame: Frame) -> pd.Series[float]:
    """Return how far the weights of a row's runs went at most."""
    methods = table.rows.index
    return pd.Series(methods.map(departures(frame.finished)).astype(float), index=methods)


def departures(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return method -> how far its finished runs went from weights that are equal to each other at most.

    Methods are left out if one of their finished runs does not record it.
    """
    largest: dict[str, float] = {}
    for record in records:
        if record.status == "finished":
            value = math.nan if record.departure is None else record.departure
            largest[record.method] = float(np.maximum(largest.get(record.method, 0.0), value))  # NaN stays
    return {method: value for method, value in largest.items() if not math.isnan(value)}


def equal_weights(records: Sequence[RunRecord], rows: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the methods that never left equal weighting, without equal weighting itself, and the notes on all of them.

    Weights that are equal but negative, or that do not sum to 1, are another training: a note says what they sum to.

    Args:
        records: Records of finished runs.
        rows: The methods in the order of the notes.
    """
    by_method: dict[str, list[RunRecord]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record)
    furthest = departures(records)

    idle, notes = [], []
    for method in rows:
        runs = by_method.get(method, [])
        sums = [total for run in runs for total in run.weight_sums]
        # With one task, or where nothing is shared, there is nothing to balance.
        balanced = all(len(run.main_metrics) > 1 and run.shared_parameters > 0 for run in runs)
        if not sums or not balanced or _part(runs[0], "balancer")[0] == "equal":
            continue
        if not furthest.get(method, math.inf) < MARGIN:
            continue

        if all(abs(total - 1.0) <= MARGIN for total in sums):
            idle.append(method)
            kappas = [run.kappa for run in runs if run.kappa is not None]
            kappa = f" (κ at most {max(kappas):.2g})" if kappas else ""
            share = f"{100 * furthest[method]:.2g} %" if furthest[method] >= 1e-6 else "0.0001 %"
            text = f"{IDLE} {method} never left equal weighting: weights within {share} of 1/T{kappa}"
            equal = next((other for other in rows if _is_equal_weighting(by_method.get(other, []), runs[0])), None)
            notes.append(text if equal is None else f"{text}, as those of {equal}")
        else:
            shown = list(dict.fromkeys(f"{total:.4g}".replace("-", "−") for total in (min(sums), max(sums))))
            notes.append(f"{method} gave all tasks the same weight, but its weights sum to {' to '.join(shown)}, not 1")

    return tuple(idle), notes


def repeats(table: Table, records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the methods that are the reference over again: with its figures in every seed, or ≈ its equal weights.

    Args:
        table: The table with its rows.
        records: Records of finished runs.
    """
    reference = table.reference
    if reference is None:
        return ()
    columns = dict.fromkeys([*map(table.main_column, table.tasks), table.order])
    figures = table.runs.set_index("seed")[[column for column in columns if column in table.runs]]
    reference_figures = figures[(table.runs["method"] == reference).to_numpy()]
    if not reference_figures.notna().any(axis=None):
        return ()
    runs = [record for record in records if record.method == reference]

    lines = []
    for method in map(str, table.rows.index.drop(reference, errors="ignore")):
        method_figures = figures[(table.runs["method"] == method).to_numpy()].reindex(reference_figures.index)
        same_figures = np.allclose(method_figures, reference_figures, rtol=ROUNDING, atol=NEAR_ZERO, equal_nan=True)
        if not same_figures and method in table.idle:
            like = next(record for record in records if record.method == method)
            same_figures = _is_equal_weighting(runs, like)
        if same_figures:
            lines.append(method)
    return tuple(lines)


def _is_equal_weighting(runs: Sequence[RunRecord], like: RunRecord) -> bool:
    """Return whether these runs are those of the mean of the losses, on the architecture and objective of that run."""
    return any(
        _part(run, "balancer")[0] == "equal"
        and _part(run, "balancer")[1].get("reduction", "mean") == "mean"
        and run.shared_parameters > 0
        and all(_part(run, part) == _part(like, part) for part in ("architecture", "objective"))
        for run in runs
    )


def _part(record: RunRecord, part: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a component of a run, and its settings."""
    spec = record.spec.get(part)
    if isinstance(spec, dict):
        return str(spec.get("name", "")), spec
    return str(spec or {"balancer": "equal"}.get(part, "")), {}
