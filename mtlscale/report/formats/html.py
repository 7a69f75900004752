"""A report as one page that needs no other file, conclusions first, details folded below; and as part of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from mtlscale.report.cells.blocks import by_block, split
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.formats.pages import drawings, fragment, rendered
from mtlscale.report.report_section import LEARNED, OVERALL, TABLES, ReportSection

FEW_DATASETS = 3  # data sets at most, for their figures to be open
OPEN_FIGURES = 2  # open figures of each data set
_MEASURED = ("Everything measured of quality", "Task by task", "Cost")  # titles of the blocks of columns
_FOLDS = {"comparisons": "Beside published numbers", LEARNED: "What was learned of the networks"}  # else their titles
FEWEST_FILTERED = 4  # methods from which on a filter is worth its room
_OF_PAGE = ("facts", OVERALL, "failures", "provenance", "specs", "glossary")  # what has a place of its own


def html(sections: Sequence[ReportSection], name: str, methods: Sequence[str], description: str, live: str) -> str:
    """Return the HTML of the page.

    Args:
        sections: Its sections.
        name: The name of the experiment.
        methods: The methods that a filter offers.
        description: The experiment's sentence, above everything.
        live: The state of the results that the page shows, for a page that asks its server for news; else "".
    """
    by_key: dict[str, list[ReportSection]] = {key: [] for key in _OF_PAGE}
    by_dataset: dict[str, list[ReportSection]] = {part.dataset: [] for part in sections if part.key == TABLES}
    others: list[ReportSection] = []
    for section in sections:
        if section.dataset in by_dataset:
            by_dataset[section.dataset].append(section)
        else:
            by_key.get(section.key, others).append(section)

    open_figures = OPEN_FIGURES if len(by_dataset) <= FEW_DATASETS else 0
    of_datasets = [_of_dataset(parts, number, open_figures) for number, parts in enumerate(by_dataset.values())]
    studies = [
        {"id": f"data-{n}", "section": section, "drawings": drawings(f"figure-{n}", section.charts, wide=True)}
        for n, section in enumerate(others, len(of_datasets))
    ]
    overall = next(map(_overall, by_key[OVERALL]), None)

    return rendered(
        "experiment.html",
        title=f"{name} · mtlscale",
        name=name,
        description=description,
        chips=[text for section in by_key["facts"] for text in section.texts],
        overall=overall,
        sections=of_datasets,
        studies=studies,
        failures=next((section.tables[0] for section in by_key["failures"]), None),
        provenance={name: text for section in by_key["provenance"] for name, text in section.terms.items()},
        specs={section.title: section.terms for section in by_key["specs"]},
        words={term: text for section in by_key["glossary"] for term, text in section.terms.items()},
        drawings=[
            drawn for part in (*of_datasets, *([overall] if overall else []), *studies) for drawn in part["drawings"]
        ],
        methods=methods if len(methods) >= FEWEST_FILTERED else (),
        live=live,
    )


def in_a_notebook(sections: Iterable[ReportSection]) -> str:
    """Return the HTML of `_repr_html_`, without scripts: the takeaway and the short table of each data set."""
    return fragment("notebook.html", parts=[(section.title, section.summary, section.short) for section in sections])


def empty_html(experiment: str) -> str:
    """Return the HTML of an experiment without runs."""
    return str(Markup("<p>no runs of {} yet</p>").format(experiment))


def _of_dataset(parts: Sequence[ReportSection], number: int, open_figures: int) -> dict[str, Any]:
    [main] = (part for part in parts if part.key == TABLES)
    drawn = drawings(f"figure-{number}", (chart for part in parts for chart in part.charts))
    others: dict[str, list[Sheet]] = {}
    for part in parts:
        others.setdefault(_FOLDS.get(part.key, part.title), []).extend(part.tables if part is not main else ())

    [whole] = main.tables
    by_title = zip(_MEASURED, whole.blocks, by_block(whole.columns[1:]), strict=True)
    return {
        "id": f"data-{number}",
        "main": main,
        "first": drawn[:open_figures],
        "more": drawn[open_figures:],
        "drawings": drawn,
        "measured": [(title, split(whole, block, caption)) for title, caption, block in by_title],
        "others": list(others.items()),
    }


def _overall(section: ReportSection) -> dict[str, Any]:
    [sheet] = section.tables
    drawn = drawings("overall", (chart for chart in section.charts if chart.title))
    return {"sentence": sheet.text, "sheet": replace(sheet, title="", text=""), "drawings": drawn}
