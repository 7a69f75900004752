"""All methods of a table against all others, not against the reference alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report.layout import Column
from mtlscale.report.statistics import BETTER, FEWEST_SEEDS, LEVEL, WORSE, holm, judged, t_test
from mtlscale.report.table import Table
from mtlscale.report.texts import EMPTY, SCORE_NAMES, counted, decimals, signed

MARKS = {BETTER: " ▲", WORSE: " ▼"}  # beside a difference that a test finds, for those who see no colours


@dataclass(frozen=True, kw_only=True)
class Pairwise:
    """Every pair of methods, in the order of the table.

    `pairs` has one row per ordered pair: `method`, `other`, `seeds` (that both have), `difference` (method − other,
    mean over these), `p` (of the paired t-test), `p_holm` (corrected over all pairs) and `verdict` on the method.
    """

    dataset: str
    order: str  # the column compared
    what: str  # in words
    methods: tuple[str, ...]
    pairs: pd.DataFrame
    notes: tuple[str, ...]

    def matrix(self, column: str) -> pd.DataFrame:
        """[methods, others] of a column of `pairs`; missing on the diagonal."""
        wide = self.pairs.pivot(index="method", columns="other", values=column)
        return wide.reindex(index=list(self.methods), columns=list(self.methods))

    def columns(self) -> list[Column]:
        """One column for each other method: the difference, with ▲ or ▼ where it is real."""
        differences, verdicts = self.matrix("difference"), self.matrix("verdict")
        digits = 2 if self.order != "average" else decimals(self.pairs["difference"], figures=3)
        found = []
        for other in self.methods:
            judged, values = verdicts[other].tolist(), differences[other]
            texts = [
                EMPTY if np.isnan(value) else f"{signed(value, f'+.{digits}f')}{MARKS.get(verdict, '')}"
                for value, verdict in zip(values, judged, strict=True)
            ]
            help = (
                f"difference of {self.what} to {other}; ▲ better, ▼ worse by paired t-tests, corrected over all pairs"
            )
            gains, losses = (
                frozenset(place for place, verdict in enumerate(judged) if verdict == sought)
                for sought in (BETTER, WORSE)
            )
            found.append(
                Column(
                    block="quality",
                    header=f"− {other}",
                    help=help,
                    texts=texts,
                    keys=values.tolist(),
                    gains=gains,
                    losses=losses,
                )
            )
        return found


def pairwise(table: Table) -> Pairwise:
    """Of the methods with a finished run, by the column that the table is sorted by; by mean ranks there is no test."""
    methods = [str(method) for method in table.rows.index[table.rows[table.order].notna()]]
    first, second = np.nonzero(~np.eye(len(methods), dtype=bool))
    tested = table.order in table.runs
    if tested:
        scores = table.runs.pivot(index="seed", columns="method", values=table.order)[methods].to_numpy(dtype=float)
        differences = scores[:, first] - scores[:, second]
        there = ~np.isnan(differences)
        seeds, p_values = there.sum(axis=0), t_test(differences)
        mean = np.where(there, differences, 0.0).sum(axis=0) / np.where(seeds > 0, seeds, np.nan)
    else:
        ranks = table.rows.loc[methods, table.order].to_numpy(dtype=float)
        seeds, p_values, mean = np.zeros(len(first), int), np.full(len(first), np.nan), ranks[first] - ranks[second]
    once = first < second  # a pair is one test, whichever method is named first
    corrected = np.full((len(methods), len(methods)), np.nan)
    corrected[first[once], second[once]] = corrected[second[once], first[once]] = holm(p_values[once])
    p_holm = corrected[first, second]
    pairs = pd.DataFrame(
        {
            "method": [methods[place] for place in first],
            "other": [methods[place] for place in second],
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
        what=SCORE_NAMES[table.order],
        methods=tuple(methods),
        pairs=pairs,
        notes=tuple(_notes(table, pairs)),
    )


def _notes(table: Table, pairs: pd.DataFrame) -> list[str]:
    if table.order == "mean_rank":
        return ["no tests: a mean rank is no number of one seed"]
    tests = int(pairs["p"].notna().sum()) // 2
    what = SCORE_NAMES[table.order]
    notes = [f"paired t-tests of {what} on shared seeds, level {LEVEL}, Holm-corrected over {tests} pairs"]
    if few := len(pairs) // 2 - tests:
        notes.append(f"{counted(few, 'pair')} not tested: fewer than {FEWEST_SEEDS} seeds in common")
    return notes
