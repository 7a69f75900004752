"""Page of a search: the chosen settings of every method, and the trials they were chosen from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from mtlscale.report.charts.colors import LineStyles, line_styles
from mtlscale.report.charts.plotly_renderer import plot
from mtlscale.report.formats.glossary import SEARCH
from mtlscale.report.formats.pages import ColumnHeader, Drawing, Grid, TableCell, TableRow, drawing, rendered
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
        chart = budget_chart(trials, styles)
        drawn.append(drawing(f"budget-{number}", chart.title, chart.note, plot(chart), wide=True))

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


def _winners(dataset: str, order: Sequence[Searched], near: dict[str, list[str]]) -> Grid:
    heads = (
        ColumnHeader("method", "as the experiment names it", number=False),
        ColumnHeader("best validation", "score of the chosen trial on validation", "descending", "descending"),
        ColumnHeader("trials", "finished of all", "descending"),
        ColumnHeader("seconds", "of all trials together"),
        ColumnHeader("near a bound", "winners within a twentieth of their range from its end", number=False),
        ColumnHeader("chosen", "settings of the trial with the best score", number=False),
    )

    rows = []
    for search in order:
        high, seconds = _best(search), sum(record.seconds for record in search.trials)
        bound = "yes" if near[search.method] else "no"
        chosen = "" if search.winner is None else settings_text(search.winner.trial)

        cells = (
            TableCell("–", "") if math.isnan(high) else TableCell(f"{high:.4g}", f"{high:.10g}"),
            TableCell(f"{search.finished}/{len(search.trials)}", str(search.finished)),
            TableCell(f"{seconds:,.0f}", f"{seconds:.6g}"),
            TableCell(bound, bound, pill="warn" if bound == "yes" else ""),
            TableCell(chosen, chosen),
        )
        rows.append(TableRow(search.method, search.method, "", cells))

    return Grid("", f"{dataset}: what was chosen", heads, tuple(rows))


def _method(anchor: str, searched: Searched, near: Sequence[str]) -> dict[str, Any]:
    drawings: list[Drawing] = [
        drawing(
            f"search-{anchor}-{index}",
            chart.title,
            chart.note,
            plot(chart),
            wide=chart.title == "Slices" and len(searched.space) > 2,
        )
        for index, chart in enumerate(search_charts(searched))
    ]

    return {
        "title": searched.method,
        "count": f"{searched.finished} of {len(searched.trials)} trials",
        "sentence": searched.sentence(),
        "warnings": [f"{text} A wider range may hold a better one." for text in near],
        "drawings": drawings,
        "trials": _trials(searched),
    }


def _trials(searched: Searched) -> Grid:
    """Return the table of all trials, the best first."""
    heads = [ColumnHeader("trial"), ColumnHeader("score", "on validation; more is better", "descending", "descending")]
    heads += [
        ColumnHeader("status", number=False),
        ColumnHeader("seconds"),
        *(ColumnHeader(short(path)) for path in searched.space),
    ]
    rows = []

    order = sorted(
        range(len(searched.trials)),
        key=lambda at: -searched.scores[at] if searched.scores[at] == searched.scores[at] else math.inf,
    )

    for at in order:
        record, value = searched.trials[at], searched.scores[at]
        chosen = record is searched.winner
        cells = [
            TableCell("–", "")
            if math.isnan(value)
            else TableCell(f"{value:.4g}", f"{value:.10g}", "best" if chosen else "")
        ]

        cells += [TableCell(record.status, record.status), TableCell(f"{record.seconds:.1f}", f"{record.seconds:.6g}")]
        cells += [TableCell(plain(record.trial[path]), str(record.trial[path])) for path in searched.space]
        rows.append(TableRow("", str(at), "chosen" if chosen else "", tuple(cells)))

    return Grid("Trials", f"{searched.dataset}, {searched.method}: trials", tuple(heads), tuple(rows), page=10)
