"""Fronts of several solutions: the rays of a method as one row, and the hypervolume and spread of what they reach."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mtlscale.config import UserError
from mtlscale.config.preferences import Preference, central, innermost, ray_of, row_of
from mtlscale.metrics import known_metric
from mtlscale.records import Metrics, RunRecord
from mtlscale.report.stats.pareto import dominated, hypervolume

SCORES = ("hypervolume", "spread", "off_ray", "rays_found")  # columns of a row with a front
_BEYOND = 0.1  # how far the reference point lies beyond the worst value of a metric without bounds


@dataclass(frozen=True)
class Fronts:
    """The fronts of a data set's rows.

    Attributes:
        points: One row per network: `method`, `seed`, `ray` (its place, from 0), `preference` (a tuple), the main
            metric of each task, `off_ray` in degrees and `found`, whether no other point of its front is better.
        scores: One row per front: `method`, `seed` and `SCORES`.
        objectives: Task -> its main metric.
    """

    points: pd.DataFrame
    scores: pd.DataFrame
    objectives: dict[str, str]

    def of_runs(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return `SCORES` for each of the runs, which have `method` and `seed`; NaN where a run has no front."""
        return runs[["method", "seed"]].merge(self.scores, how="left").drop(columns=["method", "seed"])


def folded(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records with one row for all rays of a method: that of its central ray, under the method's label."""
    records = list(records)
    rays: dict[tuple[str, str], dict[str, Preference | None]] = {}  # row -> label of a ray -> its preference
    for record in records:
        if is_ray(record):
            labels = rays.setdefault(_row(record), {})
            labels[record.method] = labels.get(record.method) or _preference(record)

    chosen = {}
    for row, labels in rays.items():
        known = sorted((preference, label) for label, preference in labels.items() if preference is not None)
        chosen[row] = known[central([preference for preference, _ in known])][1] if known else next(iter(labels))

    return [
        record.model_copy(update={"method": _row(record)[1]}) if is_ray(record) else record
        for record in records
        if not is_ray(record) or chosen[_row(record)] == record.method
    ]


def is_ray(record: RunRecord) -> bool:
    """Return whether a record is of one ray of a method with several."""
    return _row(record)[1] != record.method


def fronts(
    records: Sequence[RunRecord], split: str, main: Mapping[str, str], directions: Mapping[str, bool]
) -> Fronts | None:
    """Return the fronts of finished runs; None where no row has several solutions.

    Args:
        records: The newest records of one data set, those of all rays among them.
        split: The split that they are judged by.
        main: Task -> its main metric.
        directions: Metric -> whether more is better.
    """
    rows: list[tuple[Any, ...]] = [
        (row, record.seed, preference, *_values(metrics, main), _off(metrics, preference))
        for record in records
        if record.status == "finished"
        for row, preference, metrics in _points(record, split)
        if all(map(math.isfinite, _values(metrics, main)))
    ]
    if not rows:
        return None

    columns = ["method", "seed", "preference", *main, "off_ray"]
    points = pd.DataFrame(rows, columns=columns)
    order: dict[str, set[Any]] = defaultdict(set)
    for method, _, preference, *_ in rows:
        order[method].add(preference)
    points["ray"] = [sorted(order[method]).index(preference) for method, _, preference, *_ in rows]
    points["found"] = False
    scores = []
    signs = np.array([-1.0 if directions[metric] else 1.0 for metric in main.values()])
    scaled = _scaled(points[list(main)].to_numpy(float), main, signs)
    places_of: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, (method, seed, *_) in enumerate(rows):
        places_of[method, seed].append(position)
    for (method, seed), places in places_of.items():
        on_front = ~dominated(scaled[places])
        points.loc[places, "found"] = on_front
        reach = np.ptp(scaled[places][on_front], axis=0).mean()
        volume = hypervolume(scaled[places], np.ones(len(main)))
        scores.append(
            (method, seed, 100 * volume, 100 * reach, points["off_ray"].iloc[places].mean(), int(on_front.sum()))
        )

    return Fronts(points, pd.DataFrame(scores, columns=["method", "seed", *SCORES]), dict(main))


def preference_text(preference: Preference) -> str:
    """Return a preference as a text, such as "0.1 : 0.9"."""
    return " : ".join(f"{share:.3g}" for share in preference)


def _points(record: RunRecord, split: str) -> list[tuple[str, Preference, Metrics]]:
    """Return (row, preference, metrics) of each network that a record has measured, none if it is of no front."""
    if record.front:
        return [(record.method, tuple(point.preference), point.metrics.get(split, {})) for point in record.front]
    preference = _preference(record)
    return (
        [(_row(record)[1], preference, record.metrics.get(split, {}))]
        if is_ray(record) and preference is not None
        else []
    )


def _values(metrics: Metrics, main: Mapping[str, str]) -> list[float]:
    return [metrics.get(task, {}).get(metric, math.nan) for task, metric in main.items()]


def _off(metrics: Metrics, preference: Preference) -> float:
    """Return the angle in degrees between the losses and the ray along which r_t ℓ_t are equal; NaN without losses."""
    losses = np.array([values.get("loss", math.nan) for values in metrics.values()])
    if len(losses) != len(preference) or not (losses > 0).any():
        return math.nan
    ray = 1.0 / np.maximum(preference, 1e-6)
    cosine = losses @ ray / np.linalg.norm(losses) / np.linalg.norm(ray)
    return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))


def _scaled(values: NDArray[np.float64], main: Mapping[str, str], signs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with 0 for the best and 1 for the worst that a metric can be."""
    # Without bounds 0 is the best of all points, and 1 a tenth of their range beyond the worst.
    scaled = values.copy()
    for place, metric in enumerate(main.values()):
        column = signs[place] * values[:, place]
        bounds = _bounds(metric)
        low, high = column.min(), column.max()
        high += _BEYOND * (high - low) or 1.0
        if bounds is not None:
            low, high = sorted(signs[place] * bound for bound in bounds)
        scaled[:, place] = (column - low) / (high - low)
    return scaled


def _bounds(metric: str) -> tuple[float, float] | None:
    """Return the least and the most that a metric can be; None if it has no bounds."""
    info = known_metric(metric)
    if info is None:
        return None
    highest = 100.0 if info.unit == "%" else info.highest
    return None if highest is None else (info.lowest, highest)


def _balancer(record: RunRecord) -> Mapping[str, object]:
    balancer = record.spec.get("balancer")
    return balancer if isinstance(balancer, Mapping) else {}


def _row(record: RunRecord) -> tuple[str, str]:
    """Return the data set and the leaderboard row of a record."""
    return record.dataset, row_of(record.method, _balancer(record))


def _preference(record: RunRecord) -> Preference | None:
    """Return the preference of the run's balancer; None if it has none."""
    settings = innermost(_balancer(record))
    own, ray = settings.get("preference"), settings.get("ray")
    try:
        if isinstance(own, list | tuple) and own:
            return tuple(float(share) for share in own)
        return ray_of(record.method, len(record.main_metrics), ray) if isinstance(ray, str) and ray else None
    except (UserError, TypeError, ValueError):  # of a record that somebody else wrote
        return None
