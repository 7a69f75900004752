"""Compact table of every data set for a notebook: HTML without scripts, in the notebook's own style."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from mtlscale.report.formats.pages import fragment
from mtlscale.report.sheets.page_tables import main_sheet
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway


def in_a_notebook(tables: Iterable[Table]) -> str:
    """Return the HTML of `_repr_html_`: the takeaway and the main table of each data set."""
    parts = [(table.dataset, takeaway(table), main_sheet(table)) for table in tables]
    return fragment("notebook.html", parts=parts)


def empty_html(experiment: str) -> str:
    """Return the HTML of an experiment without runs."""
    return str(Markup("<p>no runs of {} yet</p>").format(experiment))
