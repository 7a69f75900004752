"""The course of training as data frames for the figures: losses, validation, weights and traces by epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.records import Epoch, RunRecord
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.stats.statistics import half_width

# Cumulative numbers that reinforcement learning records; `rl.report.sample_efficiency` draws success over them.
ENVIRONMENT_STEPS, SIMULATION, LEARNING = "environment_steps", "simulation_seconds", "learning_seconds"
EpochReader = Callable[[str], list[Epoch]]  # run_id -> its epochs; none where they are not at hand
MOST_SEEDS = 10  # seeds of a method that curves are read from: reading epochs costs more than all other work


def no_epochs(run_id: str) -> list[Epoch]:
    """Read nothing: where records come without a place that has their epochs."""
    return []


def epoch_frame(records: Sequence[RunRecord], methods: Sequence[str]) -> pd.DataFrame:
    """Return one row per method, seed, epoch and task, of the first finished runs of each method.

    Columns: `train_loss`, `val` (the main metric) and `weight`, NaN where absent.
    """
    rows = []
    for record in _first_finished(records, methods):
        for position, epoch in zip(positions(record), record.epochs, strict=True):
            for task, metric in record.main_metrics.items():
                rows.append(
                    (
                        record.method,
                        record.seed,
                        position,
                        task,
                        epoch.train_loss.get(task, np.nan),
                        epoch.val.get(task, {}).get(metric, np.nan),
                        epoch.weights.get(task, np.nan),
                    )
                )

    names = ["method", "seed", "epoch", "task", "train_loss", "val", "weight"]
    return pd.DataFrame(rows, columns=names).astype({"train_loss": float, "val": float, "weight": float})


def with_epochs(
    records: Sequence[RunRecord], methods: Mapping[str, Sequence[str]], epochs: EpochReader
) -> Sequence[RunRecord]:
    """Read the epochs of the runs that curves are drawn from, unless the records have them.

    Args:
        records: The records of all data sets.
        methods: Data set label -> the methods with curves, of which the first finished runs are read.
        epochs: The reader of a run's epochs.
    """
    runs = by_dataset(newest(records))
    drawn = {
        record.run_id
        for name, dataset_methods in methods.items()
        for record in _first_finished(runs[name], dataset_methods)
        if not record.epochs
    }
    return [
        record.model_copy(update={"epochs": epochs(record.run_id)}) if record.run_id in drawn else record
        for record in records
    ]


def trace_frame(records: Sequence[RunRecord], trace: str) -> pd.DataFrame:
    """Return one row per method, seed and epoch of a number, `value`, that objectives or balancers recorded."""
    rows = [
        (record.method, record.seed, position, float(epoch.traces[trace]))
        for record in records
        for position, epoch in zip(positions(record), record.epochs, strict=True)
        if isinstance(epoch.traces.get(trace), int | float)
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "epoch", "value"])


def traced(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the numbers, not lists, that objectives or balancers recorded."""
    last_values = [last_traces(record) for record in records]
    names = dict.fromkeys(
        name for traces in last_values for name, value in traces.items() if isinstance(value, int | float)
    )
    return [name for name in names if name not in (ENVIRONMENT_STEPS, SIMULATION, LEARNING)]


def last_traces(record: RunRecord) -> dict[str, Any]:
    """Return each trace at the last epoch that has it; those of a search end with the search."""
    return {name: value for epoch in record.epochs for name, value in epoch.traces.items()}


def positions(record: RunRecord) -> list[int]:
    """Count the record's epochs over all phases, each of which begins with epoch 1.

    Epochs of a phase that another run has done count, but are not in the record.
    """
    phase_starts, start = {}, 0
    for phase in record.phases:
        phase_starts[phase.name] = start
        start += phase.epochs

    return [phase_starts.get(epoch.phase, start) + epoch.epoch for epoch in record.epochs]


def over_seeds(frame: pd.DataFrame, value: str, reduce: str = "mean") -> pd.DataFrame:
    """Return `mean` and half its 95 % interval `ci` over seeds, for each method and epoch, of the mean over tasks.

    `reduce` may be "var", for the variance over tasks itself (ddof 0): GetMTL's task variance where `value` is the
    training loss.
    """
    grouped = frame.dropna(subset=value).groupby(["method", "seed", "epoch"], sort=False)[value]
    of_run = grouped.mean() if reduce == "mean" else grouped.var(ddof=0)
    of_method = of_run.groupby(["method", "epoch"], sort=False).agg(["mean", "std", "count"]).reset_index()
    of_method["ci"] = half_width(of_method["std"], of_method["count"])
    return of_method[["method", "epoch", "mean", "ci"]].sort_values("epoch", kind="stable")


def varying_weights(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return method -> mean weights over seeds [epochs, tasks].

    Methods whose weights are the same in all epochs are left out.
    """
    result = {}
    for method, rows in frame.dropna(subset="weight").groupby("method", sort=False):
        tasks = list(dict.fromkeys(rows["task"]))
        weights = rows.pivot_table(index="epoch", columns="task", values="weight", aggfunc="mean")[tasks]
        if np.ptp(weights.to_numpy(), axis=0).max() > 1e-6:
            result[str(method)] = weights
    return result


def _first_finished(records: Sequence[RunRecord], methods: Sequence[str]) -> list[RunRecord]:
    first_runs: dict[str, list[RunRecord]] = {method: [] for method in methods}
    for record in records:
        if record.status == "finished" and record.method in first_runs and len(first_runs[record.method]) < MOST_SEEDS:
            first_runs[record.method].append(record)
    return [record for runs in first_runs.values() for record in runs]
