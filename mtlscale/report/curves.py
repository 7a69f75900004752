"""What happened during training, as data frames for the figures: losses, validation, weights and traces by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mtlscale.records import Ledger, RunRecord
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.statistics import half_width

# Cumulative numbers that learning by trying records; `mtlscale.report.trying` draws success over them.
ENVIRONMENT_STEPS, SIMULATION, LEARNING = "environment_steps", "simulation_seconds", "learning_seconds"
MOST_SEEDS = 10  # of a method that curves are read from: reading epochs costs more than all the rest


def epoch_frame(records: Sequence[RunRecord], methods: Sequence[str]) -> pd.DataFrame:
    """One row per method, seed, epoch and task: `train_loss`, `val` (the main metric) and `weight`, NaN where absent.

    Of the first finished runs of each method.
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
    records: Sequence[RunRecord], methods: Mapping[str, Sequence[str]], ledger: Ledger
) -> Sequence[RunRecord]:
    """Where the records were read without epochs, those that curves are drawn of with them: of each data set, the first
    finished runs of these methods."""
    if any(record.epochs for record in records):
        return records
    runs = by_dataset(newest(records))
    drawn = {record.run_id for name, some in methods.items() for record in _first_finished(runs[name], some)}
    found = {outcome.run_id: outcome for outcome in ledger.newest().values() if outcome.run_id in drawn}
    return [
        record.model_copy(update={"epochs": ledger.read(found[record.run_id]).epochs})
        if record.run_id in found
        else record
        for record in records
    ]


def trace_frame(records: Sequence[RunRecord], trace: str) -> pd.DataFrame:
    """One row per method, seed and epoch of a number that objectives or balancers recorded: `value`."""
    rows = [
        (record.method, record.seed, position, float(epoch.traces[trace]))
        for record in records
        for position, epoch in zip(positions(record), record.epochs, strict=True)
        if isinstance(epoch.traces.get(trace), int | float)
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "epoch", "value"])


def traced(records: Sequence[RunRecord]) -> list[str]:
    """Names of the numbers, not lists, that objectives or balancers recorded."""
    last = [last_traces(record) for record in records]
    names = dict.fromkeys(name for traces in last for name, v in traces.items() if isinstance(v, int | float))
    return [name for name in names if name not in (ENVIRONMENT_STEPS, SIMULATION, LEARNING)]


def last_traces(record: RunRecord) -> dict[str, Any]:
    """Each trace as the last epoch has it that has one: those of a search end with it."""
    return {name: value for epoch in record.epochs for name, value in epoch.traces.items()}


def positions(record: RunRecord) -> list[int]:
    """The place of each epoch among those of all phases, of which each begins with epoch 1; those of a phase that
    another run has done are counted and not there."""
    behind, start = {}, 0
    for phase in record.phases:
        behind[phase.name] = start
        start += phase.epochs
    return [behind.get(epoch.phase, start) + epoch.epoch for epoch in record.epochs]


def over_seeds(frame: pd.DataFrame, value: str, reduce: str = "mean") -> pd.DataFrame:
    """`mean` and half its 95 % interval `ci` over seeds for each method and epoch, of the tasks' mean or variance.

    The variance is the one over tasks itself (ddof 0), GetMTL's task variance where `value` is the training loss.
    """
    grouped = frame.dropna(subset=value).groupby(["method", "seed", "epoch"], sort=False)[value]
    of_run = grouped.mean() if reduce == "mean" else grouped.var(ddof=0)
    of_method = of_run.groupby(["method", "epoch"], sort=False).agg(["mean", "std", "count"]).reset_index()
    of_method["ci"] = half_width(of_method["std"], of_method["count"])
    return of_method[["method", "epoch", "mean", "ci"]].sort_values("epoch", kind="stable")


def varying_weights(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Method -> mean weights over seeds [epochs, tasks], of methods whose weights are not the same in all epochs."""
    result = {}
    for method, rows in frame.dropna(subset="weight").groupby("method", sort=False):
        tasks = list(dict.fromkeys(rows["task"]))
        weights = rows.pivot_table(index="epoch", columns="task", values="weight", aggfunc="mean")[tasks]
        if np.ptp(weights.to_numpy(), axis=0).max() > 1e-6:
            result[str(method)] = weights
    return result


def _first_finished(records: Sequence[RunRecord], methods: Sequence[str]) -> list[RunRecord]:
    chosen: dict[str, list[RunRecord]] = {method: [] for method in methods}
    for record in records:
        if record.status == "finished" and record.method in chosen and len(chosen[record.method]) < MOST_SEEDS:
            chosen[record.method].append(record)
    return [record for runs in chosen.values() for record in runs]
