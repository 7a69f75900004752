"""Run records as data frames: one row per run, one column per task and metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from mtlscale.config import method_name
from mtlscale.metrics import FIGURES, NETWORK, in_units
from mtlscale.records import Metrics, RunRecord
from mtlscale.report.stats.fronts import folded


def newest(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the last record of each data set, row and seed.

    Older records of runs that were changed and run again are left out; of a method's rays the central one stands for
    all, under the method's label.
    """
    return folded(latest(records))


def latest(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the last record of each data set, label and seed, those of all rays among them."""
    return list({(record.dataset, record.method, record.seed): record for record in records}.values())


def method_of(record: RunRecord) -> str:
    """Return the name of a run's method, whatever label it has."""
    parts = {part: record.spec.get(part) or {} for part in ("architecture", "balancer", "objective")}
    architecture, balancer = (str(parts[part].get("name", "")) for part in ("architecture", "balancer"))
    return method_name(architecture or "hps", balancer or "equal", parts["objective"].get("name"))


def by_dataset(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group the records by data set label, in order of first appearance."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(record.dataset, []).append(record)
    return groups


UNITS = "in_units"  # ends the columns of errors in the units of the data


def units_column(task: str, metric: str) -> str:
    """Return the name of the column of a task's error in the units of the data."""
    return f"{task}.{metric}.{UNITS}"


def units_frame(finished: Sequence[RunRecord], values: pd.DataFrame, main: Mapping[str, str]) -> pd.DataFrame:
    """Return each run's main errors of standardised targets in the units of the data, a column per task.

    Args:
        finished: The records of the runs.
        values: Run x `<task>.<metric>`.
        main: Task -> main metric.
    """
    frame = {}
    for task, metric in main.items():
        deviations = pd.Series([record.deviations.get(task, np.nan) for record in finished], values.index, dtype=float)
        if in_units(metric) and deviations.notna().all() and len(deviations):
            frame[units_column(task, metric)] = values[f"{task}.{metric}"] * deviations
    return pd.DataFrame(frame, index=values.index)


def run_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return what each run cost and how it ended; counters are columns named `counter.<name>`."""
    fields = ("method", "seed", "status", "error", "run_id", "seconds", "peak_memory_mb", "parameters")
    frame = pd.DataFrame([[getattr(record, field) for field in fields] for record in records], columns=list(fields))

    times = phase_times(records)
    frame["seconds"] = [seconds for seconds, _, _ in times]
    frame["phase_seconds"] = [phases for _, phases, _ in times]
    frame["total_seconds"] = frame["seconds"] + frame["phase_seconds"].fillna(0.0)
    frame["phases_shared"] = [shared for _, _, shared in times]

    frame["shared_parameters"] = [record.shared_parameters for record in records]
    frame["samples_per_second"] = [record.samples_per_second or np.nan for record in records]
    frame["step_seconds"] = [record.train_seconds / record.steps if record.steps else np.nan for record in records]

    for name in dict.fromkeys(name for record in records for name in record.counters):
        frame[f"counter.{name}"] = [record.counters.get(name, 0) for record in records]

    return frame


def figure_frame(records: Sequence[RunRecord], split: str) -> pd.DataFrame:
    """Return [runs, figures] what evaluations measured on that split and of the network.

    NaN stands where a run did not measure one.
    """
    measured = [{**record.figures.get(NETWORK, {}), **record.figures.get(split, {})} for record in records]
    names = [name for name in FIGURES if any(name in figures for figures in measured)]
    return pd.DataFrame(
        [[figures.get(name, np.nan) for name in names] for figures in measured], columns=names, dtype=float
    )


def phase_times(records: Sequence[RunRecord]) -> list[tuple[float, float, bool]]:
    """Return for each run the seconds of its last phase, of those before, and whether another run shares one of those.

    The seconds before are NaN where there is no earlier phase. A phase that is shared counts in each of the runs as it
    cost once, whoever did it.
    """
    users = Counter(phase.phase_id for record in records for phase in record.phases)

    times = []
    for record in records:
        last_seconds = record.seconds - sum(phase.seconds for phase in record.phases if not phase.reused)
        before = sum(phase.seconds for phase in record.phases) if record.phases else np.nan
        shared = any(phase.reused or users[phase.phase_id] > 1 for phase in record.phases)
        times.append((max(0.0, last_seconds), before, shared))

    return times


def metric_columns(records: Sequence[RunRecord], split: str) -> list[tuple[str, str]]:
    """Return every (task, metric) with a known direction that any of the records has on that split.

    The loss that a run records beside its metrics is left out, as it would count in Δ and η.
    """
    columns = dict.fromkeys(
        (task, metric)
        for record in records
        for task, values in record.metrics.get(split, {}).items()
        for metric in values
        if metric in record.higher_is_better and metric != "loss"
    )
    return list(columns)


def value_frame(metrics: Sequence[Metrics], columns: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return the values [runs, (task, metric)], NaN where a run has none or one that is not finite."""
    no_metrics: dict[str, float] = {}
    rows = [[run.get(task, no_metrics).get(metric, np.nan) for task, metric in columns] for run in metrics]
    values = np.array(rows, dtype=float).reshape(len(metrics), len(columns))
    values[~np.isfinite(values)] = np.nan
    return pd.DataFrame(values, columns=pd.MultiIndex.from_tuples(columns, names=["task", "metric"]))
