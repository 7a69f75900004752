"""Page of a search: the chosen settings of every method, and the trials they were chosen from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from mtlscale.report.charts.colors import Looks, looks
from mtlscale.report.formats.glossary import SEARCH
from mtlscale.report.formats.pages import Cell, Drawing, Grid, Head, Row, drawing, rendered
from mtlscale.report.sweeps.search_study import Searched, plain, short, words
from mtlscale.report.sweeps.sweep_figures import budget_figure

FEWEST_FILTERED = 4


def page(name: str, searches: Sequence[Searched], trials: pd.DataFrame) -> str:
    """Return the HTML of the page, which needs no other file.

    Args:
        name: The experiment's name.
        searches: The search of each data set and method.
        trials: A row for each trial, as `Sweep.to_pandas` returns them.
    """
    methods = list(dict.fromkeys(search.method for search in searches))
    shown = looks(methods)

    sections = [
        _section(number, dataset, list(group), trials[trials["dataset"] == dataset], shown)
        for number, (dataset, group) in enumerate(groupby(searches, key=lambda one: one.dataset))
    ]

    count = sum(len(search.trials) for search in searches)
    finished = sum(search.finished for search in searches)

    return rendered(
        "sweep.html",
        title=f"{name} · search · mtlscale",
        name=name,
        chips=[
            f"{len(sections)} data set{'s' * (len(sections) != 1)}",
            f"{len(methods)} method{'s' * (len(methods) != 1)}",
            f"{finished} of {count} trials finished",
            f"{sum(record.seconds for search in searches for record in search.trials):,.0f} s in all",
        ],
        sections=sections,
        words=SEARCH,
        methods=methods if len(methods) >= FEWEST_FILTERED else (),
        drawings=[
            page_drawing
            for section in sections
            for page_drawing in (
                *section["first"],
                *(page_drawing for method in section["methods"] for page_drawing in method["drawings"]),
            )
        ],
    )


def _section(
    number: int, dataset: str, searches: Sequence[Searched], trials: pd.DataFrame, shown: Looks
) -> dict[str, Any]:
    order = sorted(searches, key=lambda one: -_best(one) if one.winner else math.inf)
    near = {search.method: search.near_bounds() for search in order}
    warned = [
        f"{method}: {' '.join(bounds)} A wider range may hold a better one."
        for method, bounds in near.items()
        if bounds
    ]

    drawn = (
        []
        if trials["score"].isna().all()
        else [
            drawing(
                f"budget-{number}",
                "What the budget buys",
                "The best validation score of the first 1, 2, … trials.",
                budget_figure(trials, shown),
                wide=True,
            )
        ]
    )

    return {
        "id": f"data-{number}",
        "title": dataset,
        "sentence": _sentence(order, warned),
        "warnings": warned,
        "main": _winners(dataset, order, near),
        "first": drawn,
        "methods": [_method(f"{number}-{index}", search, near[search.method]) for index, search in enumerate(order)],
    }


def _sentence(order: Sequence[Searched], warned: Sequence[str]) -> str:
    successful = [search for search in order if search.winner is not None]
    if not successful:
        return "No trial has finished."
    sentence = f"{successful[0].method} has the best validation score, {_best(successful[0]):.4g}"
    chosen = words(successful[0].winner.trial) if successful[0].winner else ""
    sentence += f", with {chosen}" if chosen else ""
    if warned:
        sentence += f"; {len(warned)} of {len(order)} winners lie near a bound of what was searched"
    if len(successful) < len(order):
        sentence += f"; {len(order) - len(successful)} of {len(order)} methods have no finished trial"
    return f"{sentence}."


def _best(one: Searched) -> float:
    return max((value for value in one.scores if not math.isnan(value)), default=math.nan)


def _winners(dataset: str, order: Sequence[Searched], near: dict[str, list[str]]) -> Grid:
    heads = (
        Head("method", "as the experiment names it", number=False),
        Head("best validation", "score of the chosen trial on validation", "descending", "descending"),
        Head("trials", "finished of all", "descending"),
        Head("seconds", "of all trials together"),
        Head("near a bound", "winners within a twentieth of their range from its end", number=False),
        Head("chosen", "settings of the trial with the best score", number=False),
    )

    rows = []
    for search in order:
        high, seconds = _best(search), sum(record.seconds for record in search.trials)
        bound = "yes" if near[search.method] else "no"
        chosen = "" if search.winner is None else words(search.winner.trial)

        cells = (
            Cell("–", "") if math.isnan(high) else Cell(f"{high:.4g}", f"{high:.10g}"),
            Cell(f"{search.finished}/{len(search.trials)}", str(search.finished)),
            Cell(f"{seconds:,.0f}", f"{seconds:.6g}"),
            Cell(bound, bound, pill="warn" if bound == "yes" else ""),
            Cell(chosen, chosen),
        )
        rows.append(Row(search.method, search.method, "", cells))

    return Grid("", f"{dataset}: what was chosen", heads, tuple(rows))


def _method(place: str, one: Searched, near: Sequence[str]) -> dict[str, Any]:
    drawings: list[Drawing] = [
        drawing(f"search-{place}-{index}", title, explanation, figure, wide=title == "Slices" and len(one.space) > 2)
        for index, (title, explanation, figure) in enumerate(one.figures())
    ]

    return {
        "title": one.method,
        "count": f"{one.finished} of {len(one.trials)} trials",
        "sentence": one.sentence(),
        "warnings": [f"{text} A wider range may hold a better one." for text in near],
        "drawings": drawings,
        "trials": _trials(one),
    }


def _trials(one: Searched) -> Grid:
    """Return the table of all trials, the best first."""
    heads = [Head("trial"), Head("score", "on validation; more is better", "descending", "descending")]
    heads += [Head("status", number=False), Head("seconds"), *(Head(short(path)) for path in one.space)]
    rows = []

    order = sorted(
        range(len(one.trials)), key=lambda at: -one.scores[at] if one.scores[at] == one.scores[at] else math.inf
    )

    for at in order:
        record, value = one.trials[at], one.scores[at]
        chosen = record is one.winner
        cells = [
            Cell("–", "") if math.isnan(value) else Cell(f"{value:.4g}", f"{value:.10g}", "best" if chosen else "")
        ]

        cells += [Cell(record.status, record.status), Cell(f"{record.seconds:.1f}", f"{record.seconds:.6g}")]
        cells += [Cell(plain(record.trial[path]), str(record.trial[path])) for path in one.space]
        rows.append(Row("", str(at), "chosen" if chosen else "", tuple(cells)))

    return Grid("Trials", f"{one.dataset}, {one.method}: trials", tuple(heads), tuple(rows), page=10)
