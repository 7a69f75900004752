"""Validation scores of runs, and the choice of the best run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from mtlscale.records.record import Epoch, RunRecord

Score = tuple[float, float]  # larger is better; the second number breaks ties
# Scores that differ by less, relatively or near zero, are equal, on whatever processor they were computed.
ROUNDING, NEAR_ZERO = 1e-9, 1e-12


def beats(score: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether a score is larger, by its first entry that differs by more than rounding.

    Whoever keeps the first of equals by this never lets the last bit of a sum choose.
    """
    for value, known in zip(score, other, strict=True):
        if not math.isclose(value, known, rel_tol=ROUNDING, abs_tol=NEAR_ZERO):
            return value > known
    return False


def score(record: RunRecord, metric: str | None = None) -> Score | None:
    """Return the validation score of a run at its chosen epoch; None if the run did not finish.

    The mean over tasks of the metric (default: each task's main one, or minus the loss if the loss chooses the epoch).
    If the main metrics differ in kind, it is the mean of their logarithms: differences are relative gains, and no unit
    dominates. Metrics that can be negative count from their least possible value, a correlation r as 1 + r.
    """
    if record.status != "finished":
        return None
    if metric is None and record.spec["training"]["selection"] == "loss":
        metric = "loss"

    return score_of(record.metrics["val"], record.main_metrics, record.higher_is_better, metric, record.lowest)


def score_of(
    val: Mapping[str, Mapping[str, float]],
    main_metrics: Mapping[str, str],
    higher_is_better: Mapping[str, bool],
    metric: str | None = None,
    lowest: Mapping[str, float] | None = None,
) -> Score:
    """Return the score of validation metrics: task -> metric -> value."""
    chosen = {task: metric or main for task, main in main_metrics.items()}
    signs = {task: 1.0 if higher_is_better[name] else -1.0 for task, name in chosen.items()}
    values = {task: val[task][name] for task, name in chosen.items()}

    if len(set(chosen.values())) > 1:
        least = {task: (lowest or {}).get(name, 0.0) for task, name in chosen.items()}
        values = {task: math.log(max(value - least[task], 1e-12)) for task, value in values.items()}

    mean = sum(signs[task] * value for task, value in values.items()) / len(values)
    loss = sum(metrics["loss"] for metrics in val.values()) / len(val)
    return (mean if math.isfinite(mean) else -math.inf, -loss if math.isfinite(loss) else -math.inf)


def best_so_far(
    epochs: Iterable[Epoch],
    main: Mapping[str, str],
    higher: Mapping[str, bool],
    metric: str | None,
    lowest: Mapping[str, float] | None = None,
) -> Epoch | None:
    """Return the best evaluated epoch, the first of equals; None if none was evaluated."""
    chosen, highest = None, None
    for epoch in epochs:
        value = score_of(epoch.val, main, higher, metric, lowest) if epoch.val else None
        if value is not None and (highest is None or beats(value, highest)):
            chosen, highest = epoch, value
    return chosen


def best(records: Iterable[RunRecord], metric: str | None = None) -> RunRecord | None:
    """Return the best finished record; the first of equals."""
    winner, highest = None, None
    for record in records:
        value = score(record, metric)
        if value is not None and (highest is None or beats(value, highest)):
            winner, highest = record, value
    return winner
