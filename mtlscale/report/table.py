"""What a leaderboard says about one data set."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Table:
    """The leaderboard of one data set, best method first.

    `rows` has one row per method: means over the seeds of finished runs, `<column>_ci` half their 95 % interval, NaN
    below two seeds. `runs` has one row per finished run. A metric of a task is the column `<task>.<metric>`.
    """

    dataset: str
    split: str
    main_metrics: dict[str, str]  # task -> its main metric
    delta: tuple[tuple[str, str], ...]  # the (task, metric) that enter Δ and η
    higher_is_better: dict[str, bool]
    baseline: str | None  # the method Δ is taken to, None without a finished run of it
    reference: str | None  # the method the tests compare with, likewise
    order: str  # the column that rows are sorted by and tests are made on: delta_i, average or mean_rank
    rows: pd.DataFrame
    runs: pd.DataFrame
    failures: pd.DataFrame  # method, seed, status, error, run_id
    notes: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.main_metrics)

    @property
    def ascending(self) -> bool:
        """Whether lower is better in the column that rows are sorted by."""
        if self.order == "average":
            return not self.higher_is_better[next(iter(self.main_metrics.values()))]
        return self.order == "mean_rank"

    @property
    def entered(self) -> str:
        """What enters Δ and η in words, metric by metric; with its tasks where others that report it do not."""
        tasks: dict[str, list[str]] = {}
        for task, metric in self.delta:
            tasks.setdefault(metric, []).append(task)
        told = []
        for metric, entering in tasks.items():
            everywhere = [task for task in self.tasks if f"{task}.{metric}" in self.runs]
            told.append(metric if len(entering) == len(everywhere) else f"{metric} of {', '.join(entering)}")
        return ", ".join(told)

    def main_column(self, task: str) -> str:
        return f"{task}.{self.main_metrics[task]}"

    def task_gains(self, against: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """[methods, tasks] difference of main metrics to those of a method, positive is better, and the same scaled to
        [-1, 1]: all by the largest where the tasks share a metric, else each task by its own."""
        columns = [self.main_column(task) for task in self.tasks]
        signs = [1.0 if self.higher_is_better[metric] else -1.0 for metric in self.main_metrics.values()]
        gains = (self.rows[columns] - self.rows[columns].loc[against]) * signs
        sizes = gains.abs().max()
        if len(set(self.main_metrics.values())) == 1:
            sizes[:] = sizes.max()
        gains.columns = sizes.index = pd.Index(self.tasks)
        return gains, gains / sizes.where(sizes > 0, 1.0)
