"""Comparison of every pair of a table's methods, not with the reference alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report.formats.layout import LeaderboardColumn
from mtlscale.report.formats.number_format import EMPTY, SCORE_NAMES, counted, decimals, signed
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, LEVEL, WORSE, holm, judged, t_test
from mtlscale.report.tables.table import Table

MARKS = {BETTER: " ▲", WORSE: " ▼"}  # beside a difference that a test finds, for readers who see no colours


@dataclass(frozen=True, kw_only=True)
class Pairwise:
    """The tests of every pair of methods, in the order of the table.

    `pairs` has one row per ordered pair: `method`, `other`, `seeds` (that both have), `difference` (method − other,
    mean over these), `p` (of the paired t-test), `p_holm` (corrected over all pairs) and `verdict` on the method.
    """

    dataset: str
    order: str  # the column compared
    description: str  # in words
    methods: tuple[str, ...]
    pairs: pd.DataFrame
    notes: tuple[str, ...]

    def matrix(self, column: str) -> pd.DataFrame:
        """Return a column of `pairs` as [methods, others]; missing on the diagonal."""
        wide = self.pairs.pivot(index="method", columns="other", values=column)
        return wide.reindex(index=list(self.methods), columns=list(self.methods))

    def columns(self) -> list[LeaderboardColumn]:
        """Return one column for each method to compare with: the difference, with ▲ or ▼ where it is real."""
        differences, verdicts = self.matrix("difference"), self.matrix("verdict")
        digits = 2 if self.order != "average" else decimals(self.pairs["difference"], figures=3)
        difference_columns = []
        for rival in self.methods:
            method_verdicts, values = verdicts[rival].tolist(), differences[rival]
            texts = [
                EMPTY if np.isnan(value) else f"{signed(value, f'+.{digits}f')}{MARKS.get(verdict, '')}"
                for value, verdict in zip(values, method_verdicts, strict=True)
            ]

            test_text = "paired t-tests, corrected over all pairs"
            help = f"difference of {self.description} to {rival}; ▲ better, ▼ worse by {test_text}"

            gains, losses = (
                frozenset(row for row, verdict in enumerate(method_verdicts) if verdict == sought)
                for sought in (BETTER, WORSE)
            )

            difference_columns.append(
                LeaderboardColumn(
                    block="quality",
                    header=f"− {rival}",
                    help=help,
                    texts=texts,
                    keys=values.tolist(),
                    gains=gains,
                    losses=losses,
                )
            )

        return difference_columns


def pairwise(table: Table) -> Pairwise:
    """Compare the methods with a finished run by the column that the table is sorted by.

    Mean ranks have no test.
    """
    methods = [str(method) for method in table.rows.index[table.rows[table.order].notna()]]
    first, second = np.nonzero(~np.eye(len(methods), dtype=bool))

    tested = table.order in table.runs
    if tested:
        scores = table.runs.pivot(index="seed", columns="method", values=table.order)[methods].to_numpy(dtype=float)
        differences = scores[:, first] - scores[:, second]
        present = ~np.isnan(differences)
        seeds, p_values = present.sum(axis=0), t_test(differences)
        mean = np.where(present, differences, 0.0).sum(axis=0) / np.where(seeds > 0, seeds, np.nan)
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
            "verdict": judged(mean, p_holm, table.higher(table.order)) if tested else "",
        }
    )

    return Pairwise(
        dataset=table.dataset,
        order=table.order,
        description=SCORE_NAMES[table.order],
        methods=tuple(methods),
        pairs=pairs,
        notes=tuple(_test_notes(table, pairs)),
    )


def _test_notes(table: Table, pairs: pd.DataFrame) -> list[str]:
    if table.order == "mean_rank":
        return ["no tests: a mean rank is no number of one seed"]
    tests = int(pairs["p"].notna().sum()) // 2
    score_name = SCORE_NAMES[table.order]
    notes = [f"paired t-tests of {score_name} on shared seeds, level {LEVEL}, Holm-corrected over {tests} pairs"]
    if few := len(pairs) // 2 - tests:
        notes.append(f"{counted(few, 'pair')} not tested: fewer than {FEWEST_SEEDS} seeds in common")
    return notes
