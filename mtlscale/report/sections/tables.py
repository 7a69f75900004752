"""The table of each data set: all of its columns, or those that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mtlscale.config import UserError, nearest
from mtlscale.report.cells.number_format import counted
from mtlscale.report.cells.sheet import PAGE, Column, Sheet, method_column
from mtlscale.report.columns.registry import definitions
from mtlscale.report.report_section import HTML, LATEX, MARKDOWN, NOTEBOOK, REPORT, TABLES, WIDE, ReportSection
from mtlscale.report.sections.rays import rays
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sections.run_ids import run_ids
from mtlscale.report.tables.caveats import colour_key, failures, legend
from mtlscale.report.tables.table import Table, unit_text
from mtlscale.report.tables.takeaway import takeaway

TASKS = "tasks"  # stands for the columns of all tasks
FEW_DATASETS = 3  # of a page whose tables show many rows
SMALL_PAGE = 10  # rows of a table that are shown at once where there are many data sets
_MOST_TASKS = 4  # tasks with a column in the short table, where their metrics have no mean


@section(TABLES, order=0, formats=(WIDE, MARKDOWN, REPORT, LATEX, HTML, NOTEBOOK))
def tables(view: View) -> Iterator[ReportSection]:
    """Yield a section for each data set; with chosen columns one for all of them."""
    if view.columns:
        unfinished = [failure for table in view.tables.values() for failure in failures(table)]
        yield ReportSection(tables=list(chosen(view)), failures=unfinished if view.form == LATEX else (), key="chosen")
        return

    page = PAGE if len(view.tables) <= FEW_DATASETS else SMALL_PAGE
    for dataset, table in view.tables.items():
        yield _section(table, view.shown[dataset], view.form, page)


def _section(table: Table, columns: Sequence[Column], form: str, page: int) -> ReportSection:
    conclusion, explanation, dataset = takeaway(table), legend(table), table.dataset
    sheet = Sheet(
        columns=[names_of(table), *columns],
        key=dataset,
        caption=caption(table),
        text=conclusion,
        legend=explanation,
        page=page,
        blocks=("Quality", f"By task: {table.split} {', '.join(dict.fromkeys(table.main_metrics.values()))}", "Cost"),
    )
    sheets = [sheet]
    if table.front is not None and form in (MARKDOWN, REPORT, LATEX):
        of_rays = rays(table, table.front)
        sheets.append(of_rays if form == LATEX else Sheet(columns=of_rays.columns))

    wide, in_text = form == WIDE, form in (MARKDOWN, REPORT)
    notes = f"{'; '.join(table.notes)}.\n" if table.notes else ""
    return ReportSection(
        title=dataset,
        dataset=dataset,
        summary="" if wide else conclusion,
        tables=sheets,
        short=short(table, columns, page),
        failures=failures(table),
        legend=notes if wide else f"{explanation} {colour_key(table)}" if form == HTML else explanation,
        folded=[run_ids(table)] if in_text else (),
    )


def names_of(table: Table) -> Column:
    """Return the column of a table's methods with their roles."""
    methods = table.rows.index
    roles = {table.baseline: "baseline", table.reference: "reference"}
    return method_column(methods, list(map(table.name, methods)), [roles.get(method, "") for method in methods])


def caption(table: Table) -> str:
    """Return a line that says what the table of a data set shows."""
    if not table.main_metrics:
        return f"No results on {table.dataset}"
    seeds = counted(int(table.rows["finished"].max()), "seed")
    over = f"{counted(len(table.tasks), 'task')}, {seeds}" if len(table.tasks) > 1 else seeds
    metrics = dict.fromkeys(table.main_metrics.values())
    measured = ", ".join(f"{metric}{unit_text(metric)}" for metric in metrics)
    return f"{table.split.capitalize()} {measured} on {table.dataset} ({over})"


def short(table: Table, columns: Sequence[Column], page: int = PAGE) -> Sheet:
    """Build the table that most people look for: how good methods are, whether that is real, and what it costs."""
    known_columns, placed = definitions(table.plugins), []
    for column in columns:
        definition = known_columns.get(column.name)
        if (
            definition is not None
            and definition.compact is not None
            and (definition.compact_if is None or definition.compact_if(table))
        ):
            title = definition.compact_title(table) if callable(definition.compact_title) else definition.compact_title
            placed.append((definition.compact, replace(column, header=title or column.header)))

    tasks = [column for column in columns if column.block == "tasks"]
    of_average = known_columns["average"].compact or 0
    if of_average not in [place for place, _ in placed] and len(tasks) <= _MOST_TASKS:
        placed += [(of_average, column) for column in tasks]
    shown = [column for _, column in sorted(placed, key=lambda pair: pair[0])]
    return Sheet(columns=[names_of(table), *shown], label=f"{table.dataset}: the methods compared", page=page)


def chosen(view: View) -> Iterator[Sheet]:
    """Yield a table for each data set, with the columns that are asked for in their order.

    These are headers such as `Δ %`, names such as `delta_i`, or `tasks` for those of all tasks.

    Raises:
        UserError: If no table has a column of that name.
    """
    available: Mapping[str, Sequence[Column]] = view.shown
    headers = list(dict.fromkeys(column.header for shown in available.values() for column in shown))
    for name in view.columns:
        if not any(_named(name, shown) for shown in available.values()):
            raise UserError(f"--columns {name}: no table has it; {nearest(name, [*headers, TASKS])}")

    for dataset, table in view.tables.items():
        picked = [column for name in view.columns for column in _named(name, available[dataset])]
        if picked:
            unique = list({column.header: column for column in picked}.values())
            yield Sheet(
                title=dataset,
                key=dataset,
                caption=caption(table),
                columns=[names_of(table), *unique],
                text=takeaway(table),
                legend=legend(table),
            )


def _named(name: str, available: Sequence[Column]) -> list[Column]:
    """Return the columns that a name means; a header counts without its unit and its interval, too."""
    wanted = name.strip().casefold()
    if wanted == TASKS:
        return [column for column in available if column.block == "tasks"]
    exact = [column for column in available if wanted in (column.header.casefold(), column.name.casefold())]
    return exact or [
        column for column in available if wanted == column.header.casefold().partition(" ±")[0].removesuffix(" %")
    ]
