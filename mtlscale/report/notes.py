"""What has to be said below a table so that nobody reads too much into it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mtlscale.metrics import METRICS
from mtlscale.records import RunRecord
from mtlscale.report.statistics import FEWEST_SEEDS, smallest_difference
from mtlscale.report.table import Table
from mtlscale.report.texts import SCORE_NAMES, about, counted

NEAR = 0.01  # of equal weights, relative: methods that always stayed as near did not act


def smallest(table: Table) -> tuple[int, float]:
    """(most seeds that a method shares with the reference, the smallest difference to it that they could show in the
    column that the tests are made on); (0, NaN) where no test is made."""
    if table.reference is None or table.order == "mean_rank":
        return 0, math.nan
    scores = table.runs.pivot(index="seed", columns="method", values=table.order)
    differences = scores.drop(columns=table.reference).sub(scores[table.reference], axis=0)
    pairs = differences.notna().sum()
    most = int(pairs.max()) if len(pairs) else 0
    tests = int((pairs >= FEWEST_SEEDS).sum()) + table.untested
    return most, smallest_difference(differences.std()[pairs == most], most, tests) if most else math.nan


def resolution(table: Table) -> list[str]:
    """The smallest difference to the reference that the seeds could show."""
    most, least = smallest(table)
    if most == 0 or least == 0:
        return []
    if most < FEWEST_SEEDS:
        return [f"with {counted(most, 'seed') if most > 1 else 'one seed'} no difference can be shown"]
    what = SCORE_NAMES[table.order]
    if math.isinf(least):
        return [f"with {most} seeds that differ by nothing, no difference of {what} can be shown"]
    return [f"with {most} seeds, differences of {what} below about {about(least, unit(table))} cannot be shown"]


def unit(table: Table) -> str:
    """ "point" where the column that rows are sorted by is in percent."""
    return "point" if table.relative or (table.order == "average" and in_percent(table)) else ""


def in_percent(table: Table) -> bool:
    """Whether the average over tasks is."""
    metrics = set(table.main_metrics.values())
    return bool(metrics) and all(metric in METRICS and METRICS[metric].unit == "%" for metric in metrics)


def departures(records: Sequence[RunRecord]) -> dict[str, float]:
    """Method -> how far its finished runs went from equal weighting at most; without methods one of whose runs does
    not say."""
    found: dict[str, float] = {}
    for record in records:
        if record.status == "finished":
            value = math.nan if record.departure is None else record.departure
            found[record.method] = float(np.maximum(found.get(record.method, 0.0), value))  # NaN stays
    return {method: value for method, value in found.items() if not math.isnan(value)}


def idle(records: Sequence[RunRecord]) -> dict[str, str]:
    """Methods that never left equal weighting, though they are not equal weighting: label -> what to say of it."""
    # Of one task there is nothing to balance, but perhaps in a search before.
    balancers = {record.method: _balancer(record) for record in records if len(record.main_metrics) > 1}
    equal = next((method for method, name in balancers.items() if name == "equal"), None)
    repeats = "its row repeats equal weighting" if equal is None else f"its row repeats {equal}"
    said = {}
    for method, departure in departures(records).items():
        if departure < NEAR and balancers.get(method, "equal") != "equal":
            kappas = [
                abs(float(kappa))
                for record in records
                if record.method == method
                for epoch in record.epochs
                if isinstance(kappa := epoch.traces.get("kappa"), int | float) and math.isfinite(kappa)
            ]
            kappa = f" (κ at most {max(kappas):.2g})" if kappas else ""
            share = f"{100 * departure:.2g} %" if departure >= 1e-6 else "0.0001 %"
            said[method] = f"{method} never left equal weighting: weights within {share} of 1/T{kappa}; {repeats}"
    return said


def _balancer(record: RunRecord) -> str:
    """The name of a run's balancer; equal weighting where its spec says nothing."""
    balancer = record.spec.get("balancer", "equal")
    return str(balancer.get("name", "equal") if isinstance(balancer, dict) else balancer)
