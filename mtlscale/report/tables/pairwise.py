"""Comparison of every pair of a table's methods, not with the reference alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report.stats.statistics import agreeing, holm, judged, t_test
from mtlscale.report.tables.table import Table


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
