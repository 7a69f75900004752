"""Leaderboard of one data set."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from mtlscale.metrics import known_metric
from mtlscale.report.cells.number_format import SCORE_NAMES, signed
from mtlscale.report.stats.fronts import Fronts
from mtlscale.report.stats.item_intervals import item_sides
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, WORSE, agreeing, holm, judged, t_test
from mtlscale.report.stats.ties import tied

LAST_STEP = "last step"  # in place of "last epoch" where a data set has domains
IDLE = "≈"  # beside the name of a method that never left equal weighting
# Columns of a score over all tasks at the chosen epoch: what test items show of the average holds for them.
_OVER_ITEMS = ("average", "delta_i", "delta_flat", "delta_main", "relative_error", "total_error")


def tested_name(column: str) -> str:
    """Return the name of the column of runs that tests of a column take in its place."""
    return f"{column}.tested"


def unit_text(metric: str) -> str:
    """Return " in " and the unit of a metric, or nothing where it has none."""
    known = known_metric(metric)
    return f" in {known.unit}" if known is not None and known.unit else ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The leaderboard of one data set, best method first.

    `rows` has one row per method: means over the seeds of finished runs, `<column>_ci` half their 95 % interval, NaN
    below three seeds. `runs` has one row per finished run. A metric of a task is the column `<task>.<metric>`.
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
    floors: tuple[str, ...] = ()  # methods that train no network
    hidden: int = 0  # rows that are left out, for they were not asked for
    test_items: int = 0  # of the task with the most; 0 where that is not recorded
    shared_seeds: int = 0  # the most that a method shares with the reference
    better: Mapping[str, str] = field(default_factory=dict)  # column -> which direction is better, but of metrics
    plugins: Collection[str] = ()  # the names of the plugin files that have columns of it
    detectable: tuple[float, float] = (math.nan, math.nan)  # least and most a network has to differ by; NaN: no test
    repeats: tuple[str, ...] = ()  # methods with the figures of the reference, or weights that never left its own

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.main_metrics)

    @property
    def ascending(self) -> bool:
        """True if lower is better in the column that rows are sorted by."""
        return not self.higher(self.order)

    def higher(self, column: str) -> bool:
        """Return whether higher is better in a column of `rows`."""
        better = self.better.get(column, "neither")
        if better == "as the metric":
            return self.higher_is_better[next(iter(self.main_metrics.values()))]
        if better != "neither":
            return better == "higher"
        return self.higher_is_better.get(column.rpartition(".")[2], True)

    @property
    def incomparable(self) -> str:
        """The reason why rows have no order, in words: one test item, or equal values alone; "" where they have one."""
        values = self.rows[self.order].dropna()
        if self.test_items == 1 and len(values):
            return "1 test item: nothing to compare"
        if len(values) > 1 and tied(values).nunique() == 1:
            value = f"{signed(values.iloc[0], '+.2f')} %" if self.relative else f"{values.iloc[0]:.4g}"
            return f"all {len(values)} methods are equal in {SCORE_NAMES[self.order]} ({value}): no order"
        return ""

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
    def shared_unit(self) -> str:
        """A text such as " of test accuracy in %" where all tasks share one main metric, else nothing."""
        metrics = list(dict.fromkeys(self.main_metrics.values()))
        return f" of {self.split} {metrics[0]}{unit_text(metrics[0])}" if len(metrics) == 1 else ""

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
        dropped = self.rows.drop(index=[*kept_methods, self.reference or ""], errors="ignore")
        dropped_tests = int((dropped["pairs"] >= FEWEST_SEEDS).sum())

        return replace(
            self,
            rows=self.rows.loc[kept_methods],
            runs=self.runs[compared].reset_index(drop=True),
            failures=self.failures[failed].reset_index(drop=True),
            idle=tuple(method for method in self.idle if method in kept_methods),
            repeats=tuple(method for method in self.repeats if method in kept_methods),
            untested=self.untested + dropped_tests,
            hidden=self.hidden + len(self.rows) - len(kept_methods),
        )

    def main_column(self, task: str) -> str:
        return f"{task}.{self.main_metrics[task]}"

    def in_logs(self, column: str) -> bool:
        """Return whether tests of a column take logarithms: of errors above 0, alone or among the metrics of a Δ."""
        if tested_name(column) in self.runs:
            return not np.allclose(self.runs[column], self.runs[tested_name(column)], equal_nan=True)
        return not self.higher(column) and not (self.runs[column] <= 0).any()

    def tested(self, column: str) -> pd.Series[float]:
        """Return what tests of a column compare in each run, more is better; in logs, 100 times the logarithm."""
        if tested_name(column) in self.runs:
            return self.runs[tested_name(column)]
        values = self.runs[column]
        if self.in_logs(column):
            return values.map(math.log) * -100.0
        return values if self.higher(column) else -values

    def by_seed(self, values: pd.Series[float]) -> pd.DataFrame:
        """Return values of runs as [seeds, methods]."""
        return self.runs[["seed", "method"]].assign(value=values).pivot(index="seed", columns="method", values="value")

    def item_sides(self, column: str, against: str) -> pd.Series[float]:
        """Return what test items show of each method in a column: 1 better, -1 worse, 0 neither, NaN where unknown."""
        methods = self.runs["method"].unique()
        if self.test_items == 1:
            return pd.Series(0.0, index=methods)
        if column in _OVER_ITEMS or (len(self.tasks) == 1 and column == self.main_column(self.tasks[0])):
            return item_sides(self.runs, against) * (1.0 if self.higher("average") else -1.0)
        return pd.Series(math.nan, index=methods)

    def signs(self, columns: Sequence[str], against: str | None) -> pd.DataFrame:
        """Return the signs [methods, columns] of tested differences to one method: 1 better, −1 worse, 0 neither.

        The tests are paired over seeds and corrected over all methods; test items must not speak against them.
        """
        table_signs = pd.DataFrame(0, index=self.rows.index, columns=list(columns))
        columns = [column for column in columns if column in self.runs]  # single runs have no ranks
        if against is None or not columns:
            return table_signs

        def differences(of_runs: dict[str, pd.Series[float]]) -> np.ndarray:
            """Return [seeds, columns, methods]."""
            frame = pd.concat([self.runs[["seed", "method"]], pd.DataFrame(of_runs)], axis=1)
            scores = frame.pivot(index="seed", columns="method")
            values = scores[list(of_runs)].to_numpy(dtype=float).reshape(len(scores), len(columns), len(methods))
            of_others: np.ndarray = values[:, :, is_other] - values[:, :, ~is_other]
            return of_others

        methods = pd.Index(sorted(self.runs["method"].unique()), name="method")
        is_other = methods != against
        shown = differences({column: self.runs[column] for column in columns})
        tested = differences({column: self.tested(column) for column in columns})
        p_values = holm(t_test(tested), self.untested)
        shown_totals, tested_totals = (np.where(np.isnan(d), 0.0, d).sum(axis=0) for d in (shown, tested))

        for index, column in enumerate(columns):
            direction = 1.0 if self.higher(column) else -1.0
            gains = agreeing(direction * shown_totals[index], tested_totals[index])
            items = self.item_sides(column, against).reindex(methods[is_other])
            verdicts = judged(gains, p_values[index], items)
            sign = pd.Series((verdicts == BETTER).astype(int) - (verdicts == WORSE), index=methods[is_other])
            table_signs[column] = sign.reindex(table_signs.index, fill_value=0)

        if against == self.reference and self.order in table_signs and "verdict" in self.rows:
            verdict = self.rows["verdict"]  # over all rows, shown or not
            table_signs[self.order] = (verdict == BETTER).astype(int) - (verdict == WORSE)
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
