"""Page of a search: the chosen settings of every method, and the trials they were chosen from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from mtlscale.report.cells.number_format import EMPTY
from mtlscale.report.cells.sheet import Column, Sheet, TableCell, method_column, text_column
from mtlscale.report.charts.colors import LineStyles, line_styles
from mtlscale.report.formats.glossary import SEARCH
from mtlscale.report.formats.pages import Drawing, rendered
from mtlscale.report.sweeps.search_charts import search_charts
from mtlscale.report.sweeps.search_study import Searched, plain, settings_text, short
from mtlscale.report.sweeps.sweep_figures import budget_chart

FEWEST_FILTERED = 4


def page(name: str, searches: Sequence[Searched], trials: pd.DataFrame) -> str:
    """Return the HTML of the page, which needs no other file.

    Args:
        name: The experiment's name.
        searches: The search of each data set and method.
        trials: A row for each trial, as `Sweep.to_pandas` returns them.
    """
    methods = list(dict.fromkeys(search.method for search in searches))
    shown = line_styles(methods)

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
    number: int, dataset: str, searches: Sequence[Searched], trials: pd.DataFrame, styles: LineStyles
) -> dict[str, Any]:
    order = sorted(searches, key=lambda one: -_best(one) if one.winner else math.inf)
    near = {search.method: search.near_bounds() for search in order}
    warned = [
        f"{method}: {' '.join(bounds)} A wider range may hold a better one."
        for method, bounds in near.items()
        if bounds
    ]

    drawn = []
    if trials["score"].notna().any():
        drawn.append(Drawing(f"budget-{number}", budget_chart(trials, styles), wide=True))

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
    chosen = settings_text(successful[0].winner.trial) if successful[0].winner else ""
    sentence += f", with {chosen}" if chosen else ""
    if warned:
        sentence += f"; {len(warned)} of {len(order)} winners lie near a bound of what was searched"
    if len(successful) < len(order):
        sentence += f"; {len(order) - len(successful)} of {len(order)} methods have no finished trial"
    return f"{sentence}."


def _best(searched: Searched) -> float:
    return max((value for value in searched.scores if not math.isnan(value)), default=math.nan)


def _winners(dataset: str, order: Sequence[Searched], near: dict[str, list[str]]) -> Sheet:
    counts = [TableCell(f"{search.finished}/{len(search.trials)}", float(search.finished)) for search in order]
    sums = (sum(record.seconds for record in search.trials) for search in order)
    seconds = [TableCell(f"{total:,.0f}", total) for total in sums]
    bounds = [
        TableCell("yes", "yes", badge="warn") if near[search.method] else TableCell("no", "no") for search in order
    ]
    chosen = ["" if search.winner is None else settings_text(search.winner.trial) for search in order]
    columns = [
        method_column([search.method for search in order]),
        _scores("best validation", "score of the chosen trial on validation", map(_best, order)),
        Column(header="trials", help="finished of all", cells=counts, higher=True),
        Column(header="seconds", help="of all trials together", cells=seconds),
        Column(header="near a bound", help="winners within a twentieth of their range from its end", cells=bounds),
        text_column("chosen", chosen, help="settings of the trial with the best score"),
    ]
    return Sheet(columns=columns, label=f"{dataset}: what was chosen")


def _scores(header: str, help: str, values: Iterable[float]) -> Column:
    cells = [TableCell(EMPTY if math.isnan(value) else f"{value:.4g}", value) for value in values]
    return Column(header=header, help=help, cells=cells, higher=True, sorts=True)


def _method(anchor: str, searched: Searched, near: Sequence[str]) -> dict[str, Any]:
    return {
        "title": searched.method,
        "count": f"{searched.finished} of {len(searched.trials)} trials",
        "sentence": searched.sentence(),
        "warnings": [f"{text} A wider range may hold a better one." for text in near],
        "drawings": [
            Drawing(f"search-{anchor}-{index}", chart, wide=chart.title == "Slices" and len(searched.space) > 2)
            for index, chart in enumerate(search_charts(searched))
        ],
        "trials": _trials(searched),
    }


def _trials(searched: Searched) -> Sheet:
    """Return the table of all trials, the best first."""
    order = sorted(range(len(searched.trials)), key=lambda at: (math.isnan(searched.scores[at]), -searched.scores[at]))
    records = [searched.trials[at] for at in order]
    numbers = [TableCell(str(at), "", badge="chosen" * (searched.trials[at] is searched.winner)) for at in order]
    columns = [
        Column(header="trial", cells=numbers),
        _scores("score", "on validation; more is better", (searched.scores[at] for at in order)),
        text_column("status", [record.status for record in records]),
        Column(header="seconds", cells=[TableCell(f"{record.seconds:.1f}", record.seconds) for record in records]),
    ]
    for path in searched.space:
        values = [record.trial[path] for record in records]
        columns.append(Column(header=short(path), cells=[TableCell(plain(value), str(value)) for value in values]))
    return Sheet(columns=columns, title="Trials", label=f"{searched.dataset}, {searched.method}: trials", page=10)
