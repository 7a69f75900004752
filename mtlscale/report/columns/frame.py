"""The runs of one data set as frames, from which columns are computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

import pandas as pd

from mtlscale.config import entering, suite_delta
from mtlscale.config.experiment.experiment import Floor
from mtlscale.records import RunRecord
from mtlscale.report.stats.frames import latest, method_of, metric_columns, newest, run_frame, value_frame
from mtlscale.report.stats.fronts import Fronts, fronts, is_ray
from mtlscale.report.stats.near_zero import Entry, near_zero

_FLOORS = frozenset(get_args(Floor))


def of_same_seed(values: pd.DataFrame, seeds: pd.Series[int], mask: pd.Series[bool]) -> pd.DataFrame:
    """Return for each run the values of the chosen method's run of the same seed.

    Where it has none, its mean over seeds stands for it.
    """
    of_seed = values[mask].set_index(seeds[mask])
    return of_seed.reindex(seeds).fillna(of_seed.mean()).set_axis(values.index)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The runs of one data set.

    Attributes:
        dataset: The label of the data set.
        all_records: Its records, older ones and those of all rays among them.
        baseline_name: The method that Δ is taken to, as the experiment names it.
        reference_name: The method that tests compare with, likewise.
        delta: The metrics that enter Δ, if the experiment says.
        planned_seeds: Method -> its planned seeds.
        plugins: The names of the plugin files whose columns are computed, too.
    """

    dataset: str
    all_records: Sequence[RunRecord]
    baseline_name: str = "stl"
    reference_name: str = "equal"
    delta: Sequence[str] = ()
    planned_seeds: Mapping[str, Collection[int]] = field(default_factory=dict)
    plugins: Collection[str] = ()

    @cached_property
    def latest(self) -> list[RunRecord]:
        """The newest record of each label and seed, those of all rays among them."""
        return latest(self.all_records)

    @cached_property
    def records(self) -> list[RunRecord]:
        """The newest record of each row and seed, failed and diverged ones among them."""
        return newest(self.all_records)

    @cached_property
    def finished(self) -> list[RunRecord]:
        """The records of finished runs, in the order of `runs`."""
        return [record for record in self.records if record.status == "finished"]

    @cached_property
    def split(self) -> str:
        """The split that runs are judged by."""
        return "test" if any(record.metrics.get("test") for record in self.finished) else "val"

    @cached_property
    def directions(self) -> dict[str, bool]:
        """Metric -> whether higher is better, from all records, as those of failed runs may know no directions."""
        return {
            metric: higher for record in reversed(self.records) for metric, higher in record.higher_is_better.items()
        }

    @cached_property
    def all_runs(self) -> pd.DataFrame:
        """Method, seed, status, error and cost of each run that has ended."""
        return run_frame(self.records)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The same of finished runs."""
        return self.all_runs[self.all_runs["status"] == "finished"].reset_index(drop=True)

    @cached_property
    def metrics(self) -> list[tuple[str, str]]:
        """Every measured (task, metric)."""
        return metric_columns(self.finished, self.split)

    @cached_property
    def main(self) -> dict[str, str]:
        """Task -> main metric, as measured, of the first record that declares any; failed runs may have none."""
        declared = next((record.main_metrics for record in [*self.finished, *self.records] if record.main_metrics), {})
        return {task: metric for task, metric in declared.items() if (task, metric) in self.metrics}

    @cached_property
    def values(self) -> pd.DataFrame:
        """The values [finished runs, (task, metric)] at the chosen epoch, NaN where a run has none."""
        return self.values_of(self.split)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Their means over seeds [methods, (task, metric)]."""
        return self.values.groupby(self.runs["method"], sort=False).mean()

    @cached_property
    def main_values(self) -> pd.DataFrame:
        """The main metrics [finished runs, tasks]."""
        return self.values[list(self.main.items())].set_axis(list(self.main), axis=1)

    def values_of(self, split: str) -> pd.DataFrame:
        """Return the values [finished runs, (task, metric)] on a split."""
        return value_frame([record.metrics.get(split, {}) for record in self.finished], self.metrics)

    def task_mean(self, values: pd.DataFrame) -> pd.Series[float]:
        """Average the main metrics of each run [runs] over tasks; tasks that no run has labels of don't count."""
        return values[list(self.main.items())].dropna(axis=1, how="all").mean(axis=1, skipna=False)

    @cached_property
    def baseline(self) -> str | None:
        """The row that Δ is taken to; None without a finished run of it."""
        return self.row_named(self.baseline_name)

    @cached_property
    def reference(self) -> str | None:
        """The row that tests compare with, likewise."""
        return self.row_named(self.reference_name)

    def row_named(self, name: str) -> str | None:
        """Return the label of finished runs that equals the name but for case, else that of the method so called."""
        labels = {record.method: method_of(record) for record in self.finished}
        same_labels = (label for label in labels if label.lower() == name.lower())
        of_method = (label for label, method in labels.items() if method.lower() == name.lower())
        return next(same_labels, next(of_method, None))

    @cached_property
    def references(self) -> pd.DataFrame | None:
        """The baseline's `values` of the same seed for each run; None without a baseline."""
        if self.baseline is None:
            return None
        return of_same_seed(self.values, self.runs["seed"], self.runs["method"] == self.baseline)

    @cached_property
    def entered(self) -> list[tuple[str, str]]:
        """The measured (task, metric) in Δ and η: those that the experiment names, else the pipeline, else all."""
        # A task for which the pipeline declares no metric enters with its main metric.
        if self.delta:
            return entering(self.delta, self.metrics)

        declared = suite_delta(str(self.records[0].spec.get("dataset", {}).get("name", "")))
        if not declared:
            return list(self.metrics)

        entered = entering(declared, self.metrics)
        named = {task for task, _ in entered}
        return [
            (task, metric)
            for task, metric in self.metrics
            if (task, metric) in entered or (task not in named and self.main.get(task) == metric)
        ]

    @cached_property
    def near_zero(self) -> tuple[Entry, ...]:
        """The (task, metric) of those whose baseline is near 0."""
        if self.baseline is None:
            return ()
        return near_zero(self.means, self.baseline, self.row_named("constant"), self.entered, self.directions)

    @cached_property
    def notes(self) -> list[str]:
        """What is left out: runs with other settings, and rays whose runs did not finish."""
        notes, lost = [], [record for record in self.latest if is_ray(record) and record.status != "finished"]
        if older := len({record.run_id for record in self.all_records} - {record.run_id for record in self.latest}):
            notes.append(f"{older} older run{'s' if older > 1 else ''} with other settings left out")
        if lost:
            rays = (f"{record.method}, seed {record.seed} ({record.status})" for record in lost)
            notes.append(f"rays without a point on their front: {', '.join(rays)}")
        return notes

    @cached_property
    def part(self) -> str:
        """The name of a part of test that is measured beside all of it; "" where there is none."""
        if len(set(self.main.values())) != 1:
            return ""
        return next(
            (name for record in self.finished for name in sorted(record.metrics) if name.startswith("test_")), ""
        )

    @cached_property
    def front(self) -> Fronts | None:
        """The fronts of rows with several solutions; None where there is none."""
        return fronts(self.latest, self.split, self.main, self.directions)

    @cached_property
    def floors(self) -> tuple[str, ...]:
        """The labels of the rows that train no network."""
        return tuple(dict.fromkeys(record.method for record in self.records if method_of(record).lower() in _FLOORS))

    @cached_property
    def counts(self) -> pd.DataFrame:
        """How many runs of each row finished, failed, diverged and are planned; rows with runs first."""
        all_runs = self.all_runs
        methods = pd.Index(list(dict.fromkeys((*all_runs["method"], *self.planned_seeds))), name="method")
        counts = pd.crosstab(all_runs["method"], all_runs["status"])
        counts = counts.reindex(index=methods, columns=["finished", "failed", "diverged"], fill_value=0)
        seeds = all_runs.groupby("method")["seed"].agg(set).to_dict()
        planned = self.planned_seeds
        counts["planned"] = [len(seeds.get(method, set()) | set(planned.get(method, ()))) for method in methods]
        return counts
