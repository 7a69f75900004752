"""What a terminal shows first: a table of 80 columns and the conclusion for each data set, the definitions once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len

from mtlscale.report.cells.grid import GAP, Grid
from mtlscale.report.cells.number_format import counted, number_word
from mtlscale.report.cells.sheet import Column, Sheet
from mtlscale.report.columns.shown import columns
from mtlscale.report.sheets.dataset import caption, names_of
from mtlscale.report.stats.statistics import LEVEL, SAME
from mtlscale.report.tables.caveats import resolution
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from mtlscale.report.tables.table import Table

WIDTH = 80  # columns that the tables fit
CANNOT_TELL = "cannot tell"  # the verdict "not distinguishable" in as much room as there is
_MOST_FAILURES = 3  # methods whose failures are named
_MOST_NOTES = 3
_LONGEST_CAUSE = 120  # characters of a cause
_ID_LETTERS = 8  # of a run's id that tell it from others
_LONGEST_BASELINE = 16  # cells of its name in the definitions


@dataclass(frozen=True)
class FirstScreen:
    """The table of a data set no wider than 80 columns, what to know about it, and its conclusion."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table, width = self.table, min(options.max_width, WIDTH)
        yield Text(caption(table), style="bold")
        yield from _grid(table, width).table(console, width)
        yield from _failures(table)
        if notes := [note for note in table.notes if note not in resolution(table)]:
            hidden = len(notes) - _MOST_NOTES
            more = f"; {counted(hidden, 'more note')} with --wide" if hidden > 0 else ""
            yield Text(f"{'; '.join(notes[:_MOST_NOTES])}{more}.", style="dim")
        yield Text(takeaway(table), style="bold")


def first_screen(tables: Collection[Table]) -> Iterator[RenderableType]:
    """Yield the tables of all data sets with their conclusions, and the definitions of all once."""
    from rich.text import Text

    for table in tables:
        yield FirstScreen(table)
        yield Text()
    for line in definitions(tables):
        yield Text(line, style="dim")


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


def _grid(table: Table, width: int) -> Grid:
    """Return the table of method, score with its interval, Δ, verdict, p-value and runs."""
    named = {column.name: column for column in columns(table)}
    chosen = _scores(table, named)
    if (verdicts := named.get("verdict")) is not None:
        chosen.append(_with_texts(verdicts, [text.replace(SAME, CANNOT_TELL) for text in verdicts.texts]))
    chosen += [named[name] for name in ("p_holm",) if name in named]
    if (runs := named.get("finished")) is not None:
        chosen.append(_with_texts(runs, [text.partition(",")[0] for text in runs.texts]))

    grid = Grid(Sheet(columns=[names_of(table), *chosen]))
    taken = grid.width(width) - grid.names_width(width)
    return replace(grid, longest_name=max(1, width - taken - GAP))


def _scores(table: Table, named: dict[str, Column]) -> list[Column]:
    """Return the columns of the average, and of what rows are sorted by; the first has its interval."""
    order = table.order
    wanted = ["average", order if table.relative else "delta_i"]
    if order not in wanted:
        wanted.append(order)
    shown = [named[name] for name in wanted if name in named]
    for index, column in enumerate(shown):
        if index == 0:
            shown[0] = replace(column, header=column.header.removesuffix(" ± seeds"))
        else:
            shown[index] = _with_texts(column, [text.partition(" ± ")[0] for text in column.texts])
    return shown


def _with_texts(column: Column, texts: Sequence[str]) -> Column:
    cells = [cell._replace(text=text) for cell, text in zip(column.cells, texts, strict=True)]
    return replace(column, cells=cells)


def _failures(table: Table) -> Iterator[RenderableType]:
    """Yield a line for each method with runs that did not finish: how many, why, and how to see more."""
    from rich.text import Text

    by_method = table.failures.groupby("method", sort=False)
    for number, (method, failed) in enumerate(by_method):
        if number == _MOST_FAILURES:
            left = by_method.ngroups - _MOST_FAILURES
            yield Text(
                f"{number_word(left)} more {'methods' if left > 1 else 'method'} did not finish; --wide names all"
            )
            return
        first = failed.iloc[0]
        lines = str(first["error"] or "").strip().splitlines() or ["no cause recorded"]
        cause = lines[0] if len(lines[0]) <= _LONGEST_CAUSE else f"{lines[0][:_LONGEST_CAUSE]}…"
        runs = f", {counted(len(failed), 'run')}" if len(failed) > 1 else f", seed {first['seed']}"
        yield Text.assemble(
            (f"{first['status']} ", "red"), f"{method}{runs}: {cause} (mtlscale show {first['run_id'][:_ID_LETTERS]})"
        )
