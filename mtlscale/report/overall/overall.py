"""Overall leaderboard: the joint result of several data sets as a table, a sentence and charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.report.formats.number_format import counted, names, points, signed
from mtlscale.report.overall.multi_dataset import BETTER, ROPE, SAME, SURE, WORSE, MultiDatasetResult, compare_datasets
from mtlscale.report.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.charts.colors import LineStyles
    from mtlscale.report.formats.sheet import Column


class Overall(MultiDatasetResult):
    """The comparison across data sets (`MultiDatasetResult`) with its sentence, columns and charts."""

    @property
    def sentence(self) -> str:
        """The takeaway sentence, as plain text: names are as the user gave them."""
        return "; ".join([_ranked(self), *_probable(self)]) + "."

    def columns(self) -> list[Column]:
        """Return every column that has values, in order: quality, cost."""
        from mtlscale.report.overall.columns import columns

        return columns(self)

    def figures(self, styles: LineStyles | None = None) -> list[tuple[str, str, Figure]]:
        """Return (title, explanation, figure) of each interactive chart for a page.

        Args:
            styles: The looks of the methods on that page.
        """
        from mtlscale.report.overall.plots import figures

        return figures(self, styles)

    def pictures(self, styles: LineStyles | None = None) -> list[tuple[str, Drawing]]:
        """Return (file name without suffix, figure) of each chart for files.

        Args:
            styles: The looks of the methods in the other files.
        """
        from mtlscale.report.overall.plots import pictures

        return pictures(self, styles)


def overall(tables: Mapping[str, Table], rope: float = ROPE) -> Overall | None:
    """Return the overall leaderboard; None below two data sets.

    Args:
        tables: Data set -> its table.
        rope: Half the region of practical equivalence, in points.
    """
    comparison = compare_datasets(tables, rope)
    return (
        None
        if comparison is None
        else Overall(**{field.name: getattr(comparison, field.name) for field in fields(comparison)})
    )


def _ranked(result: MultiDatasetResult) -> str:
    """Return which methods have the best mean rank, and which others the ranks do not tell from them."""
    means, test = result.ranks.mean(), result.friedman
    if means.empty:
        return f"No two methods finished on two of the {len(result.datasets)} data sets, so nothing is ranked"

    best = list(means.index[means == means.min()])
    over_datasets = f"Over {counted(test.datasets, 'data set')}"
    best_text = "has" if len(best) == 1 else "have"
    best_text = f"{names(best)} {best_text} the best mean rank ({means.min():.3g}, {counted(test.methods, 'method')})"

    if np.isnan(test.p):
        return f"{over_datasets}, too few for a test of ranks, {best_text}"
    if not test.rejects:
        return f"{over_datasets} {best_text}, but ranks differ no more than by chance (Friedman p = {test.p:.2g})"

    near_methods = [
        method
        for method in means.index
        if method not in best and means[method] - means.min() < result.critical_difference
    ]
    separation = "clear of all others"
    if near_methods:
        separation = "and ranks do not tell it from " + (
            "any other" if len(near_methods) + len(best) == test.methods else names(near_methods, 3)
        )

    distance_text = f"ranks have to be {result.critical_difference:.3g} apart"
    return f"{over_datasets} {best_text}, {separation} (Friedman p = {test.p:.2g}; {distance_text})"


def _probable(result: MultiDatasetResult) -> Iterator[str]:
    """Yield what is practically certain against the reference; without that, the likeliest or the best."""
    verdicts = result.rows["verdict"]
    judged = verdicts[verdicts != ""]

    parts = []
    for verdict, relation in ((BETTER, "better than"), (SAME, "practically equivalent to"), (WORSE, "worse than")):
        if methods := [str(method) for method in judged.index[judged == verdict]]:
            parts.append(f"{names(methods, 3)} {'is' if len(methods) == 1 else 'are'} {relation} it")

    if parts:
        rule = f"with P ≥ {SURE:g} and ±{points(result.rope)} as equivalent"
        yield f"against {result.reference}, {rule}, {', '.join(parts)}"
    elif len(judged):
        probabilities = result.rows["better"]
        most = f"most likely better is {probabilities.idxmax()} (P = {probabilities.max():.2f})"
        margin = f"±{points(result.rope)}"
        yield f"with P ≥ {SURE:g} none is better than {result.reference}, worse or equivalent ({margin}); {most}"
    elif result.quality == "delta_i":
        most = result.rows["gain_datasets"].max()
        gains = result.rows["gain"][result.rows["gain_datasets"] == most]
        size = f"{signed(gains.max(), '+.2f')} %"
        yield f"{gains.idxmax()} has the highest mean Δ ({size}, {counted(int(most), 'data set')})"
