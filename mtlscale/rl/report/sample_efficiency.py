"""Sample efficiency: success in environments against the steps taken there and the seconds spent.

It covers runs whose epochs record how many environment steps there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.records import Epoch, RunRecord
from mtlscale.report.cells.number_format import file_name
from mtlscale.report.cells.sheet import Sheet, text_sheet
from mtlscale.report.charts.chart import MOST_LINES
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.report_section import ReportSection
from mtlscale.report.sensitivity import Sensitivity
from mtlscale.report.stats.curves import ENVIRONMENT_STEPS, LEARNING, SIMULATION
from mtlscale.report.stats.frames import by_dataset, newest, phase_times

METRIC, MEASURED = "success", "success on validation, %"
MOST_TASKS = 24  # tasks with a panel
_LIMITS = (-3.0, 103.0)
_AXES = {"steps": "environment steps, all tasks", "seconds": "seconds of training, without evaluation"}

SuccessLines = dict[str, pd.DataFrame]  # method -> rows of `x`, `value`, `low`, `high`, by x


@dataclass(frozen=True)
class SampleEfficiency:
    """The success of runs on one data set by cost.

    Attributes:
        runs: A row per method, seed, evaluation and task, with `steps`, `seconds` and `success`.
        costs: A row per method, the mean over its seeds; seconds of `simulation` and `learning` may be NaN.
    """

    dataset: str
    runs: pd.DataFrame
    costs: pd.DataFrame

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(self.runs["task"]))


def sample_efficiencies(records: Sequence[RunRecord]) -> Iterator[SampleEfficiency]:
    """Yield a `SampleEfficiency` for each data set with finished runs whose epochs record environment steps."""
    for dataset, runs in by_dataset(newest(records)).items():
        finished = [(record, _recorded_steps(record)) for record in runs if record.status == "finished"]
        recorded = [(record, epochs) for record, epochs in finished if epochs]
        rows = [row for record, epochs in recorded for row in _success_rows(record, epochs)]
        if rows:
            frame = pd.DataFrame(rows, columns=["method", "seed", "task", "steps", "seconds", "success"])
            yield SampleEfficiency(dataset, frame, _costs(recorded))


def _recorded_steps(record: RunRecord) -> list[Epoch]:
    """Return the epochs of the last phase if they record steps: an earlier one, a search, tries another network."""
    last = record.epochs[-1].phase if record.epochs else ""
    epochs = [epoch for epoch in record.epochs if epoch.phase == last]
    return epochs if any(_number(epoch, ENVIRONMENT_STEPS) is not None for epoch in epochs) else []


def _success_rows(record: RunRecord, epochs: Sequence[Epoch]) -> Iterator[tuple[str, int, str, float, float, float]]:
    seconds = 0.0
    for epoch in epochs:
        seconds += epoch.seconds
        steps = _number(epoch, ENVIRONMENT_STEPS)
        for task, values in epoch.val.items():
            if steps is not None and np.isfinite(values.get(METRIC, np.nan)):
                yield record.method, record.seed, task, steps, seconds, values[METRIC]


def _costs(epochs_by_run: Sequence[tuple[RunRecord, Sequence[Epoch]]]) -> pd.DataFrame:
    rows, traces = [], (SIMULATION, LEARNING, ENVIRONMENT_STEPS)
    for (record, epochs), (seconds, _, _) in zip(
        epochs_by_run, phase_times([record for record, _ in epochs_by_run]), strict=True
    ):
        numbers = ((name, _number(epoch, name)) for epoch in epochs for name in traces)
        last_values = {name: value for name, value in numbers if value is not None}
        cumulative = [last_values.get(name, np.nan) for name in traces]
        updates = record.steps - sum(phase.steps for phase in record.phases if not phase.reused)
        rows.append((record.method, seconds, *cumulative, float(updates)))
    names = ["method", "seconds", "simulation", "learning", "steps", "updates"]
    return pd.DataFrame(rows, columns=names).groupby("method", sort=False).mean()


def _number(epoch: Epoch, trace: str) -> float | None:
    value = epoch.traces.get(trace)
    return float(value) if isinstance(value, int | float) else None


def success_lines(efficiency: SampleEfficiency, over: str, task: str | None = None) -> SuccessLines:
    """Return mean, least and most success over seeds, of a task or of the mean over tasks, over `steps` or `seconds`.

    Each seed is evaluated at steps of its own: between its evaluations a seed is on the line that joins them, after the
    last it stays as it is. A line begins where all seeds have begun.
    """
    rows = efficiency.runs if task is None else efficiency.runs[efficiency.runs["task"] == task]
    lines: SuccessLines = {}
    for method, method_rows in rows.groupby("method", sort=False):
        series = [seed.groupby(over)["success"].mean() for _, seed in method_rows.groupby("seed", sort=False)]

        start = max(float(curve.index[0]) for curve in series)
        x = np.unique(np.concatenate([curve.index.to_numpy(float) for curve in series]))
        x = x[x >= start]

        values = np.stack([np.interp(x, curve.index.to_numpy(float), curve.to_numpy(float)) for curve in series])
        columns = {"x": x, "value": values.mean(0), "low": values.min(0), "high": values.max(0)}
        lines[str(method)] = pd.DataFrame(columns)

    return lines


def cost_table(efficiency: SampleEfficiency) -> Sheet:
    """Return where the seconds of a run go, and how many steps they buy."""
    explanation = (
        "Mean over seeds; of a method with several phases the last. The rest is evaluation and whatever else. "
        "Environment steps, of all tasks together, for a second of simulation; gradient steps for a second of learning."
    )

    shares = ("simulation, %", "learning, %", "rest, %")
    header = ("method", "seconds", *shares, "environment steps per second", "gradient steps per second")

    rows = []
    for method, row in efficiency.costs.iterrows():
        parts = [row["simulation"], row["learning"]]
        parts.append(max(0.0, row["seconds"] - sum(parts)) if np.isfinite(sum(parts)) else np.nan)

        share_texts = [_text(_ratio(100.0 * part, row["seconds"]), 1) for part in parts]
        rates = [_ratio(row["steps"], row["simulation"]), _ratio(row["updates"], row["learning"])]
        rows.append((str(method), _text(row["seconds"], 0), *share_texts, *(_text(rate, 0) for rate in rates)))

    return text_sheet("Where the seconds go", explanation, header, tuple(rows))


def _ratio(part: float, total: float) -> float:
    return part / total if total > 0 else np.nan


def _text(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else "–"


def sentences(efficiency: SampleEfficiency) -> Iterator[str]:
    """Yield the final success of each method, mean over tasks and seeds."""
    seconds = success_lines(efficiency, "seconds")
    for method, rows in success_lines(efficiency, "steps").items():
        last, end = rows.iloc[-1], seconds[method]["x"].iloc[-1]
        seeds = efficiency.runs.loc[efficiency.runs["method"] == method, "seed"].nunique()
        seed_range = f", {last['low']:.1f} to {last['high']:.1f} over {seeds} seeds" if seeds > 1 else ""
        reached = f"{method}: {last['value']:.1f} % success on validation"
        yield f"{reached} after {last['x']:,.0f} environment steps, {end:,.0f} s of training{seed_range}."


def task_sentences(efficiency: SampleEfficiency, panels: Mapping[str, SuccessLines]) -> Iterator[str]:
    """Yield the final success of the methods on each task that has a panel."""
    for task, lines in panels.items():
        ends = [f"{method} {rows['value'].iloc[-1]:.1f} %" for method, rows in list(lines.items())[:MOST_LINES]]
        yield f"{task}: {', '.join(ends)}."
    if len(efficiency.tasks) > MOST_TASKS:
        yield f"{len(efficiency.tasks) - MOST_TASKS} more tasks are in the leaderboard alone."


def efficiency_studies(efficiency: SampleEfficiency, styles: LineStyles) -> Iterator[ReportSection]:
    """Yield the study of the mean over tasks, over steps and over seconds, and that of each task over steps."""
    over = {f"mean over tasks, by {cost}": title for cost, title in _AXES.items()}
    lines = {f"mean over tasks, by {cost}": success_lines(efficiency, cost) for cost in _AXES}
    yield Sensitivity(
        file=f"success_{file_name(efficiency.dataset)}",
        title=f"Success by environment steps and by seconds on {efficiency.dataset}",
        over=over,
        panels=lines,
        sentences=list(sentences(efficiency)),
        tables=[cost_table(efficiency)],
        measured=MEASURED,
        ticked=False,
        limits=_LIMITS,
    ).study(styles)

    if len(efficiency.tasks) > 1:
        panels = {task: success_lines(efficiency, "steps", task) for task in efficiency.tasks[:MOST_TASKS]}
        yield Sensitivity(
            file=f"success_{file_name(efficiency.dataset)}_tasks",
            title=f"Success of each task on {efficiency.dataset}",
            over=_AXES["steps"],
            panels=panels,
            sentences=list(task_sentences(efficiency, panels)),
            measured=MEASURED,
            ticked=False,
            limits=_LIMITS,
        ).study(styles)


def sample_efficiency_studies(records: Sequence[RunRecord], styles: LineStyles) -> Iterator[ReportSection]:
    """Yield the studies of success against environment steps and seconds."""
    for efficiency in sample_efficiencies(records):
        yield from efficiency_studies(efficiency, styles)
