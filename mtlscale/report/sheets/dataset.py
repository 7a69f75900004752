"""The tables of a leaderboard as texts: of each data set, of pairs of methods and of run ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, SCORE_NAMES, counted, decimals, signed
from mtlscale.report.cells.sheet import Column, Sheet, TableCell, method_column, number_column, text_column, text_sheet
from mtlscale.report.columns.shown import MOST_TASKS, by_block, columns
from mtlscale.report.stats.fronts import Fronts, preference_text
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, LEVEL, WORSE, half_width
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.table import unit_text
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.pairwise import Pairwise
    from mtlscale.report.tables.table import Table

_MARKS = {BETTER: " ▲", WORSE: " ▼"}  # beside a difference that a test finds, for readers who see no colours
_TONES = {BETTER: "gain", WORSE: "loss"}


def names_of(table: Table) -> Column:
    """Return the column of a table's methods with their roles."""
    methods = table.rows.index
    roles = {table.baseline: "baseline", table.reference: "reference"}
    return method_column(methods, list(map(table.name, methods)), [roles.get(method, "") for method in methods])


def sheets(table: Table, *, details: bool = True) -> list[Sheet]:
    """Return the tables of a data set: quality, beside it few tasks or below it many, and cost.

    Without `details` they lack the columns that few readers need.
    """
    quality, tasks, cost = by_block([column for column in columns(table) if details or not column.detail])
    if len(tasks) <= MOST_TASKS:
        quality, tasks = [*tasks, *quality], []

    names = names_of(table)
    parts = (
        (quality, table.dataset, caption(table), takeaway(table), legend(table)),
        (tasks, f"{table.dataset} tasks", f"Each task of {table.dataset}", f"{table.dataset}, by task.", ""),
        (cost, f"{table.dataset} cost", f"Cost on {table.dataset}", f"{table.dataset}: what the methods cost.", ""),
    )
    shown = [
        Sheet(columns=[names, *block], key=key, caption=about, text=text, legend=below)
        for block, key, about, text, below in parts
        if block
    ]
    return shown if table.front is None else [*shown, rays(table, table.front)]


def caption(table: Table) -> str:
    """Return a line that says what the table of a data set shows."""
    seeds = counted(int(table.rows["finished"].max()), "seed")
    over = f"{counted(len(table.tasks), 'task')}, {seeds}" if len(table.tasks) > 1 else seeds
    metrics = dict.fromkeys(table.main_metrics.values())
    measured = ", ".join(f"{metric}{unit_text(metric)}" for metric in metrics)
    return f"{table.split.capitalize()} {measured or 'results'} on {table.dataset} ({over})"


def rays(table: Table, front: Fronts) -> Sheet:
    """Return the networks of rows with several: the preference of each, and what it reaches."""
    points = front.points.groupby(["method", "ray"], sort=False)
    preferences = points["preference"].first()
    methods = preferences.index.get_level_values("method")
    columns = [
        method_column(methods),
        text_column("preference", list(map(preference_text, preferences))),
    ]
    for task, metric in front.objectives.items():
        means = points[task].mean()
        widths = half_width(points[task].std(), points[task].count())
        header = f"{task} {metric}"
        columns.append(number_column(header, means, f".{decimals(means)}f", pd.Series(widths, means.index)))
    columns.append(number_column("off ray °", points["off_ray"].mean(), ".1f"))
    found = [f"{good}/{all_seeds}" for good, all_seeds in zip(points["found"].sum(), points.size(), strict=True)]
    columns.append(text_column("on the front", found))
    return Sheet(
        title="Rays",
        key=f"{table.dataset} rays",
        caption=f"Networks of the rows with several on {table.dataset}",
        columns=columns,
        names=2,
        text=f"{table.dataset}: each network of the rows with several. Above, such a row has the numbers of its "
        "central ray.",
        legend="on the front: seeds for which no other network of the row is better in all tasks.",
        label=f"{table.dataset}: the rays",
    )


def of_pairs(pairwise: Pairwise) -> Sheet:
    """Return the table of every pair, with a column for each method to compare with."""
    score = SCORE_NAMES[pairwise.order]
    differences, verdicts = pairwise.matrix("difference"), pairwise.matrix("verdict")
    digits = 2 if pairwise.order != "average" else decimals(pairwise.pairs["difference"], figures=3)

    difference_columns = []
    for rival in pairwise.methods:
        cells = [
            TableCell(EMPTY, value)
            if np.isnan(value)
            else TableCell(signed(value, f"+.{digits}f") + _MARKS.get(verdict, ""), value, _TONES.get(verdict, ""))
            for value, verdict in zip(differences[rival], verdicts[rival], strict=True)
        ]
        help = f"difference of {score} to {rival}; ▲ better, ▼ worse by paired t-tests, corrected over all pairs"
        difference_columns.append(Column(header=f"− {rival}", help=help, cells=cells))

    return Sheet(
        title=f"{pairwise.dataset}: every pair",
        key=f"{pairwise.dataset} pairs",
        caption=f"Every pair of methods on {pairwise.dataset}",
        columns=[method_column(pairwise.methods), *difference_columns],
        numbers=pairwise.pairs,
        text=f"Difference of {score}: row − column; ▲ better, ▼ worse by paired t-tests.",
        notes=_test_notes(pairwise.order, score, pairwise.pairs),
    )


def _test_notes(order: str, score: str, pairs: pd.DataFrame) -> list[str]:
    if order == "mean_rank":
        return ["no tests: a mean rank is no number of one seed"]
    tests = int(pairs["p"].notna().sum()) // 2
    notes = [f"paired t-tests of {score} on shared seeds, level {LEVEL}, Holm-corrected over {tests} pairs"]
    if few := len(pairs) // 2 - tests:
        notes.append(f"{counted(few, 'pair')} not tested: fewer than {FEWEST_SEEDS} seeds in common")
    return notes


def run_ids(table: Table) -> Sheet:
    """Return the ids of runs, which `show`, `rerun` and `export` take, with a column for each seed."""
    ended = pd.concat([table.runs, table.failures])[["method", "seed", "run_id"]]
    ids = ended.pivot(index="method", columns="seed", values="run_id").fillna(EMPTY)
    rows = ids.reindex([method for method in table.rows.index if method in ids.index])
    header = ("method", *(f"seed {seed}" for seed in rows))
    explanation = "what `mtlscale show`, `rerun` and `export` take"
    return text_sheet("Ids of the runs", explanation, header, list(rows.itertuples(name=None)))
