"""What a terminal shows first: a table of 80 columns and the conclusion for each data set, the definitions once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len

from mtlscale.report.cells.blocks import with_texts
from mtlscale.report.cells.number_format import counted, number_word
from mtlscale.report.cells.sheet import Column, Sheet
from mtlscale.report.report_section import FIRST, ReportSection
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sections.tables import caption, names_of
from mtlscale.report.stats.statistics import LEVEL, SAME
from mtlscale.report.tables.caveats import Failure, cause_of, resolution
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway

WIDTH = 80  # columns that the tables fit
CANNOT_TELL = "cannot tell"  # the verdict "not distinguishable" in as much room as there is
_MOST_FAILURES = 3  # methods whose failures are named
_MOST_NOTES = 3
_LONGEST_CAUSE = 120  # characters of a cause
_ID_LETTERS = 8  # of a run's id that tell it from others
_LONGEST_BASELINE = 16  # cells of its name in the definitions


@section("first_screen", order=0, formats=(FIRST,))
def first_screen(view: View) -> Iterator[ReportSection]:
    """Yield a table of 80 columns for each data set, what to know about it, and its conclusion."""
    for dataset, table in view.tables.items():
        legend = ""
        if notes := [note for note in table.notes if note not in resolution(table)]:
            hidden = len(notes) - _MOST_NOTES
            more = f"; {counted(hidden, 'more note')} with --wide" if hidden > 0 else ""
            legend = f"{'; '.join(notes[:_MOST_NOTES])}{more}."
        yield ReportSection(
            title=caption(table),
            dataset=dataset,
            tables=[Sheet(columns=[names_of(table), *_chosen(table, view.shown[dataset])], width=WIDTH)],
            failures=list(_failures(table)),
            legend=legend,
            summary=f"{takeaway(table)}\n",
        )


@section("definitions", order=10, formats=(FIRST,))
def of_columns(view: View) -> Iterator[ReportSection]:
    """Yield what the columns mean."""
    yield ReportSection(legend="\n".join(definitions(view.tables.values())))


def definitions(tables: Collection[Table]) -> tuple[str, str]:
    """Return what the columns mean, in two lines of 80 columns; the second names the page that explains them."""
    baselines = {table.baseline for table in tables if table.baseline is not None}
    known = len(baselines) == 1 and cell_len(min(baselines)) <= _LONGEST_BASELINE
    baseline = min(baselines) if known else "the baseline"
    by_items = any(table.over_items for table in tables)
    tests = (
        "vs: paired t-tests (p, Holm-corrected) and test items"
        if by_items
        else f"vs, p: paired t-tests, Holm-corrected, level {LEVEL}"
    )
    return (
        f"±: half the 95 % interval over seeds. Δ: mean gain over {baseline}, in %.",
        f"{tests}. See docs/leaderboard.md",
    )


def _chosen(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of score with its interval, Δ, verdict, p-value and runs."""
    named = {column.name: column for column in columns}
    chosen = _scores(table, named)
    if (verdicts := named.get("verdict")) is not None:
        chosen.append(with_texts(verdicts, [text.replace(SAME, CANNOT_TELL) for text in verdicts.texts]))
    chosen += [named[name] for name in ("p_holm",) if name in named]
    if (runs := named.get("finished")) is not None:
        chosen.append(with_texts(runs, [text.partition(",")[0] for text in runs.texts]))
    return chosen


def _scores(table: Table, named: dict[str, Column]) -> list[Column]:
    """Return the columns of the average, and of what rows are sorted by; the first has its interval."""
    order = table.order
    columns = ["average", order if table.relative else "delta_i"]
    if order not in columns:
        columns.append(order)
    shown = [named[name] for name in columns if name in named]
    for index, column in enumerate(shown):
        if index == 0:
            shown[0] = replace(column, header=column.header.removesuffix(" ± seeds"))
        else:
            shown[index] = with_texts(column, [text.partition(" ± ")[0] for text in column.texts])
    return shown


def _failures(table: Table) -> Iterator[Failure]:
    """Yield each method with runs that did not finish: how many, why, and how to see more."""
    by_method = table.failures.groupby("method", sort=False)
    for number, (method, failed) in enumerate(by_method):
        if number == _MOST_FAILURES:
            not_shown = by_method.ngroups - _MOST_FAILURES
            more = f"{number_word(not_shown)} more {'methods' if not_shown > 1 else 'method'} did not finish"
            yield Failure(f"{more}; --wide names all", "", "")
            return
        first = failed.iloc[0]
        lines = cause_of(first["error"]).strip().splitlines()
        cause = lines[0] if len(lines[0]) <= _LONGEST_CAUSE else f"{lines[0][:_LONGEST_CAUSE]}…"
        runs = f"{method}, {counted(len(failed), 'run')}" if len(failed) > 1 else f"{method}, seed {first['seed']}"
        yield Failure(runs, first["status"], f"{cause} (mtlscale show {first['run_id'][:_ID_LETTERS]})")
