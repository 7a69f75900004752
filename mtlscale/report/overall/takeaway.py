"""The takeaway sentence of the table across data sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mtlscale.report.cells.number_format import counted, names, points, signed
from mtlscale.report.overall.multi_dataset import BETTER, SAME, SURE, WORSE, Overall
from mtlscale.report.stats.ties import tied


def sentence(result: Overall) -> str:
    """Return the takeaway sentence, as plain text: names are as the user gave them."""
    text = "; ".join([*_floors(result), _ranked(result), *_probable(result)])
    return f"{text[0].upper()}{text[1:]}."


def _floors(result: Overall) -> Iterator[str]:
    """Yield what has to be said first where no network ranks above a floor."""
    means = tied(result.ranks.mean())
    floors, networks = (means[means.index.isin(result.floors) == floor] for floor in (True, False))
    if len(floors) and len(networks) and not (networks < floors.min()).any():
        relation = "every network ranks below" if (networks > floors.min()).all() else "no network ranks above"
        yield f"{relation} the {floors.idxmin()} floor: train longer or tune before comparing"


def _ranked(result: Overall) -> str:
    """Return which methods have the best mean rank, and which others the ranks do not tell from them."""
    means, test = tied(result.ranks.mean()), result.friedman
    if means.empty:
        return f"no two methods finished on two of the {len(result.datasets)} data sets, so nothing is ranked"

    best = list(means.index[means == means.min()])
    over_datasets = f"over {counted(test.datasets, 'data set')}"
    best_text = "has" if len(best) == 1 else "have"
    shown = [f"{method} (a floor)" if method in result.floors else str(method) for method in best]
    best_text = f"{names(shown)} {best_text} the best mean rank ({means.min():.3g}, {counted(test.methods, 'method')})"

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


def _probable(result: Overall) -> Iterator[str]:
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
        kind = " (a floor)" if gains.idxmax() in result.floors else ""
        yield f"{gains.idxmax()}{kind} has the highest mean Δ ({size}, {counted(int(most), 'data set')})"
