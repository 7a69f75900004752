"""Definitions of the terms in a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from mtlscale.report.columns.registry import definitions
from mtlscale.report.report_section import HTML, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.stats.statistics import FEWEST_SEEDS, LEVEL, OPEN
from mtlscale.report.tables.table import IDLE, Table

_TERMS = {
    "baseline": "The method that Δ and η are taken to, usually one network per task (stl).",
    "reference": "The method that tests compare the others with, usually equal weights.",
    "±": "Half the 95 % interval of a mean over seeds (Student's t). Where intervals overlap a difference may still be "
    "real, because tests pair the runs of a seed.",
    "better, worse, not distinguishable": "What a paired t-test over seeds says of a difference to the reference at "
    f"level {LEVEL}, after Holm's correction for all methods. Better and worse also need an interval over test items "
    "without 0, where there is one.",
    OPEN: f"Neither: seeds and test items do not agree, or fewer than {FEWEST_SEEDS} seeds leave nothing to test.",
    "diverged": "A run whose loss or parameters were no numbers any more. It counts in no mean.",
    "chosen epoch": "The epoch with the best validation score; test metrics are of it.",
    "Pareto front": "The methods that no other is at least as good as at no higher cost.",
    IDLE: "The method never left equal weighting: its weights stayed at 1/T.",
}


@section("glossary", order=930, formats=(HTML,))
def terms(view: View) -> Iterator[ReportSection]:
    """Yield the terms that a page uses."""
    heads = [(column.header, column.help) for columns in view.shown.values() for column in columns]
    yield ReportSection(terms=glossary(view.tables.values(), heads))


def glossary(tables: Iterable[Table], heads: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the terms that a page uses, with their definitions.

    Args:
        tables: The tables of the page.
        heads: The columns of its tables: (header, definition).
    """
    tables = list(tables)
    shown = dict(_TERMS)

    if not any(table.idle for table in tables):
        shown.pop(IDLE)

    heads = list(heads)
    headers = {header for header, _ in heads}
    plugins = {plugin for table in tables for plugin in table.plugins}
    for definition in definitions(plugins).values():
        term = definition.term or definition.title
        if definition.define and headers & {term, f"{term} %"}:
            shown[term] = definition.define

    # With many data sets, the columns of their tasks would make a long list.
    common = [head for head, count in Counter(heads).items() if 2 * count > len(tables)]
    for header, help in common:
        if help and header not in shown and header.removesuffix(" %") not in shown:
            shown.setdefault(header, f"{help[0].upper()}{help[1:]}.")
    return shown
