"""Leaderboard of one data set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mtlscale.report.stats.fronts import Fronts
from mtlscale.report.stats.statistics import BETTER, WORSE, holm, judged, t_test

IDLE = "≈"  # beside the name of a method that never left equal weighting


@dataclass(frozen=True, kw_only=True)
class Table:
    """The leaderboard of one data set, best method first.

    `rows` has one row per method: means over the seeds of finished runs, `<column>_ci` half their 95 % interval, NaN
    below two seeds. `runs` has one row per finished run. A metric of a task is the column `<task>.<metric>`.
    """

    dataset: str
    split: str
    part: str  # a part of test, measured beside all of it: the split `test_…` in the column `part`, or ""
    main_metrics: dict[str, str]  # task -> its main metric
    delta: tuple[tuple[str, str], ...]  # the (task, metric) that enter Δ and η
    higher_is_better: dict[str, bool]
    baseline: str | None  # the method Δ is taken to, None without a finished run of it
    reference: str | None  # the method the tests compare with, likewise
    order: str  # the column that rows are sorted by and tests are made on: delta_i, delta_main, average or mean_rank
    rows: pd.DataFrame
    runs: pd.DataFrame
    failures: pd.DataFrame  # method, seed, status, error, run_id
    notes: tuple[str, ...]
    near_zero: tuple[tuple[str, str], ...] = ()  # entries of `delta` whose baseline is near 0
    domains: tuple[str, ...] = ()  # source and target of a transfer, else none
    untested: int = 0  # planned rows whose test has to wait for runs: the correction of tests counts them
    front: Fronts | None = None  # of the rows with several solutions, if there are any
    idle: tuple[str, ...] = ()  # methods that never left equal weighting, except equal weighting itself

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.main_metrics)

    @property
    def ascending(self) -> bool:
        """True if lower is better in the column that rows are sorted by."""
        return not self.higher(self.order)

    def higher(self, column: str) -> bool:
        """Return whether higher is better in a column of `rows`."""
        if column in ("average", "last", "part"):
            return self.higher_is_better[next(iter(self.main_metrics.values()))]
        if column in ("mean_rank", "relative_error", "total_error"):
            return False
        return self.higher_is_better.get(column.rpartition(".")[2], True)

    @property
    def relative(self) -> bool:
        """True if rows are sorted by a relative gain over the baseline."""
        return self.order in ("delta_i", "delta_main")

    @property
    def over_items(self) -> bool:
        """True if there are intervals over test items."""
        return bool(self.rows["average_items"].notna().any())

    def name(self, method: object) -> str:
        """Return the head of a method's row: its name, marked where it never left equal weighting."""
        return f"{method} {IDLE}" if method in self.idle else str(method)

    @property
    def entered(self) -> str:
        """The metrics that enter Δ and η, in words; with its tasks where a metric enters for some of them alone."""
        tasks: dict[str, list[str]] = {}
        for task, metric in self.delta:
            tasks.setdefault(metric, []).append(task)
        texts = []
        for metric, entering in tasks.items():
            everywhere = [task for task in self.tasks if f"{task}.{metric}" in self.runs]
            texts.append(metric if len(entering) == len(everywhere) else f"{metric} of {', '.join(entering)}")
        return ", ".join(texts)

    def only(self, rows: Collection[str]) -> Table:
        """Return the table with these rows alone; `runs` keeps those that they are compared with."""
        kept_methods = [method for method in self.rows.index if method in rows]
        compared = self.runs["method"].isin([*kept_methods, self.baseline, self.reference])
        failed = self.failures["method"].isin(kept_methods)

        return replace(
            self,
            rows=self.rows.loc[kept_methods],
            runs=self.runs[compared].reset_index(drop=True),
            failures=self.failures[failed].reset_index(drop=True),
            idle=tuple(method for method in self.idle if method in kept_methods),
        )

    def main_column(self, task: str) -> str:
        return f"{task}.{self.main_metrics[task]}"

    def signs(self, columns: Sequence[str], against: str | None) -> pd.DataFrame:
        """Return the signs [methods, columns] of tested differences to one method: 1 better, −1 worse, 0 neither.

        The tests are paired over seeds and corrected over all methods.
        """
        table_signs = pd.DataFrame(0, index=self.rows.index, columns=list(columns))
        columns = [column for column in columns if column in self.runs]  # single runs have no ranks
        if against is None or not columns:
            return table_signs

        scores = self.runs.pivot(index="seed", columns="method", values=list(columns))
        seeds, methods = len(scores), scores.columns.get_level_values("method").unique()
        values = scores.to_numpy(dtype=float).reshape(seeds, len(columns), len(methods))

        is_other = methods != against
        differences = values[:, :, is_other] - values[:, :, ~is_other]
        p_values = holm(t_test(differences), self.untested)
        total = np.where(np.isnan(differences), 0.0, differences).sum(axis=0)  # has the sign of the mean

        for index, column in enumerate(columns):
            verdicts = judged(total[index], p_values[index], self.higher(column))
            sign = pd.Series((verdicts == BETTER).astype(int) - (verdicts == WORSE), index=methods[is_other])
            table_signs[column] = sign.reindex(table_signs.index, fill_value=0)

        return table_signs

    def task_gains(self, against: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return gains [methods, tasks] in main metrics over one method, and the same scaled to [-1, 1].

        Positive is better. All are scaled by the largest gain where the tasks share a metric, else each task by its
        own; scaled gains are 0 where the seeds show no difference.
        """
        columns = [self.main_column(task) for task in self.tasks]
        directions = [1.0 if self.higher_is_better[metric] else -1.0 for metric in self.main_metrics.values()]
        gains = (self.rows[columns] - self.rows[columns].loc[against]) * directions
        sizes = gains.abs().max()
        if len(set(self.main_metrics.values())) == 1:
            sizes[:] = sizes.max()
        scaled = (gains / sizes.where(sizes > 0, 1.0)).where(self.signs(columns, against) != 0, 0.0)
        gains.columns = scaled.columns = pd.Index(self.tasks)
        return gains, scaled
