"""The compact table of every data set for a notebook: HTML without scripts, in the notebook's own style."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from mtlscale.report import layout
from mtlscale.report.grids import main_grid
from mtlscale.report.pages import fragment
from mtlscale.report.table import Table
from mtlscale.report.takeaway import takeaway


def in_a_notebook(tables: Iterable[Table]) -> str:
    """What `_repr_html_` returns."""
    parts = [(table.dataset, takeaway(table), main_grid(table, layout.columns(table))) for table in tables]
    return fragment("notebook.html", parts=parts)


def nothing(experiment: str) -> str:
    """The same where there is no run."""
    return str(Markup("<p>no runs of {} yet</p>").format(experiment))
