"""Comparison of every pair of a table's methods, not with the reference alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, SCORE_NAMES, counted, decimals, signed
from mtlscale.report.cells.sheet import Column, Sheet, TableCell, method_column
from mtlscale.report.report_section import CSV, LATEX, MARKDOWN, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, LEVEL, WORSE, agreeing, holm, judged, t_test
from mtlscale.report.tables.table import Table

_MARKS = {BETTER: " ▲", WORSE: " ▼"}  # beside a difference that a test finds, for readers who see no colours
_TONES = {BETTER: "gain", WORSE: "loss"}


@section("pairs", order=15, formats=("terminal", MARKDOWN, LATEX, CSV))
def pairs(view: View) -> Iterator[ReportSection]:
    """Yield the tables where they are asked for."""
    if not view.pairwise:
        return
    sheets = {dataset: of_pairs(pairwise(table)) for dataset, table in view.tables.items()}
    if view.form == CSV:  # one table
        numbers = pd.concat({dataset: sheet.numbers for dataset, sheet in sheets.items()}, names=["dataset"])
        yield ReportSection(tables=[Sheet(columns=(), numbers=numbers.reset_index("dataset"))])
    else:
        yield ReportSection(tables=list(sheets.values()))


@dataclass(frozen=True, kw_only=True)
class Pairwise:
    """The tests of every pair of methods, in the order of the table.

    `pairs` has one row per ordered pair: `method`, `other`, `seeds` (that both have), `difference` (method − other,
    mean over these), `p` (of the paired t-test), `p_holm` (corrected over all pairs) and `verdict` on the method, for
    which test items must not speak against the test.
    """

    dataset: str
    order: str  # the column compared
    methods: tuple[str, ...]
    pairs: pd.DataFrame

    def matrix(self, column: str) -> pd.DataFrame:
        """Return a column of `pairs` as [methods, others]; missing on the diagonal."""
        wide = self.pairs.pivot(index="method", columns="other", values=column)
        return wide.reindex(index=list(self.methods), columns=list(self.methods))


def pairwise(table: Table) -> Pairwise:
    """Compare the methods with a finished run by the column that the table is sorted by.

    Mean ranks have no test.
    """
    methods = [str(method) for method in table.rows.index[table.rows[table.order].notna()]]
    first, second = np.nonzero(~np.eye(len(methods), dtype=bool))

    tested = table.order in table.runs
    if tested:
        scores, gains = (
            table.by_seed(values)[methods].to_numpy(dtype=float)
            for values in (table.runs[table.order], table.tested(table.order))
        )
        present = ~np.isnan(scores[:, first] - scores[:, second])
        seeds, p_values = present.sum(axis=0), t_test(gains[:, first] - gains[:, second])
        mean, gain = (
            np.where(present, of_seeds[:, first] - of_seeds[:, second], 0.0).sum(axis=0)
            / np.where(seeds > 0, seeds, np.nan)
            for of_seeds in (scores, gains)
        )
        agreed = agreeing(mean if table.higher(table.order) else -mean, gain)
        sides = pd.DataFrame({other: table.item_sides(table.order, other) for other in methods}).reindex(methods)
        items = sides.to_numpy(dtype=float)[first, second]
    else:
        ranks = table.rows.loc[methods, table.order].to_numpy(dtype=float)
        seeds, p_values, mean = np.zeros(len(first), int), np.full(len(first), np.nan), ranks[first] - ranks[second]

    first_named = first < second  # a pair is one test, whichever method is named first
    corrected = np.full((len(methods), len(methods)), np.nan)
    corrected[first[first_named], second[first_named]] = corrected[second[first_named], first[first_named]] = holm(
        p_values[first_named]
    )
    p_holm = corrected[first, second]

    pairs = pd.DataFrame(
        {
            "method": [methods[index] for index in first],
            "other": [methods[index] for index in second],
            "seeds": seeds,
            "difference": mean,
            "p": p_values,
            "p_holm": p_holm,
            "verdict": judged(agreed, p_holm, items) if tested else "",
        }
    )

    return Pairwise(dataset=table.dataset, order=table.order, methods=tuple(methods), pairs=pairs)


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
