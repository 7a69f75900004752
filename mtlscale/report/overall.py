"""The overall leaderboard: what several data sets say together, as a table, a sentence and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.report.across import BETTER, ROPE, SAME, SURE, WORSE, Across, across
from mtlscale.report.table import Table
from mtlscale.report.texts import counted, names, points, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.colors import Looks
    from mtlscale.report.columns import Column


class Overall(Across):
    """`Across`, and how it is told."""

    @property
    def sentence(self) -> str:
        """The one to take away. Plain text: names are as the user gave them."""
        return "; ".join([_ranked(self), *_probable(self)]) + "."

    def columns(self) -> list[Column]:
        """Every column that has something to say, in order: quality, cost."""
        from mtlscale.report.overall_columns import columns

        return columns(self)

    def figures(self, shown: Looks | None = None) -> list[tuple[str, str, Figure]]:
        """(title, what it shows, figure) for a page. shown: how methods look there."""
        from mtlscale.report.overall_figures import figures

        return figures(self, shown)

    def pictures(self, shown: Looks | None = None) -> list[tuple[str, Drawing]]:
        """(file name without suffix, figure) for files. shown: how methods look in the others."""
        from mtlscale.report.overall_plots import pictures

        return pictures(self, shown)


def overall(tables: Mapping[str, Table], rope: float = ROPE) -> Overall | None:
    """None below two data sets. `rope`: half the region of practical equivalence, in points."""
    found = across(tables, rope)
    return None if found is None else Overall(**{field.name: getattr(found, field.name) for field in fields(found)})


def _ranked(of: Across) -> str:
    """Which method has the best mean rank, and which others the ranks do not tell from it."""
    means, test = of.ranks.mean(), of.friedman
    if means.empty:
        return f"No two methods finished on two of the {len(of.datasets)} data sets, so nothing is ranked"
    best = list(means.index[means == means.min()])
    over = f"Over {counted(test.datasets, 'data set')}"
    has = "has" if len(best) == 1 else "have"
    has = f"{names(best)} {has} the best mean rank ({means.min():.3g}, {counted(test.methods, 'method')})"
    if np.isnan(test.p):
        return f"{over}, too few for a test of ranks, {has}"
    if not test.rejects:
        return f"{over} {has}, but ranks differ no more than by chance (Friedman p = {test.p:.2g})"
    near = [
        method for method in means.index if method not in best and means[method] - means.min() < of.critical_difference
    ]
    told = "clear of all others"
    if near:
        told = "and ranks do not tell it from " + (
            "any other" if len(near) + len(best) == test.methods else names(near, 3)
        )
    least = f"ranks have to be {of.critical_difference:.3g} apart"
    return f"{over} {has}, {told} (Friedman p = {test.p:.2g}; {least})"


def _probable(of: Across) -> Iterator[str]:
    """What is all but certain against the reference, practically."""
    verdicts = of.rows["verdict"]
    judged = verdicts[verdicts != ""]
    parts = []
    for verdict, said in ((BETTER, "better than"), (SAME, "practically equivalent to"), (WORSE, "worse than")):
        if named := [str(method) for method in judged.index[judged == verdict]]:
            parts.append(f"{names(named, 3)} {'is' if len(named) == 1 else 'are'} {said} it")
    if parts:
        yield f"against {of.reference}, with P ≥ {SURE:g} and ±{points(of.rope)} as equivalent, {', '.join(parts)}"
    elif len(judged):
        chance = of.rows["better"]
        most = f"most likely better is {chance.idxmax()} (P = {chance.max():.2f})"
        yield f"with P ≥ {SURE:g} none is better than {of.reference}, worse or equivalent (±{points(of.rope)}); {most}"
    elif of.quality == "delta_i":
        most = of.rows["gain_datasets"].max()
        gains = of.rows["gain"][of.rows["gain_datasets"] == most]
        size = f"{signed(gains.max(), '+.2f')} %"
        yield f"{gains.idxmax()} has the highest mean Δ ({size}, {counted(int(most), 'data set')})"
