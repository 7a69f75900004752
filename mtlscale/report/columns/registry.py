"""Registry of a leaderboard's columns: each file of this folder, or of a plugin, declares one column or one family."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mtlscale.config import UserError
from mtlscale.config.registry.components import load_installed
from mtlscale.config.registry.report_parts import load_folder, parts, register
from mtlscale.report.cells.number_format import decimals
from mtlscale.report.cells.sheet import Block, Column, number_column
from mtlscale.report.stats.frames import UNITS

if TYPE_CHECKING:
    from mtlscale.report.columns.frame import Frame
    from mtlscale.report.tables.table import Table

Compute = TypeVar("Compute", bound=Callable[..., Any])
Better = Literal["higher", "lower", "as the metric", "neither"]
MEASURES = 600  # place in files from which on columns are measures: before come scores over all tasks, tests, cost
OWN = 900  # place of columns that say none: behind the shipped ones
_TAKEN = ("dataset", "method", "seed", "status", "error", "run_id", "replicates")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What the report, its glossary, its manual and MLflow know of one column.

    Attributes:
        key: Its name in `Table.rows`, CSV and JSON.
        title: The header; "" for numbers that files have and tables do not show.
        explain: What a page says where the header is pointed at.
        better: Which direction is better; "as the metric" for means of the tasks' one main metric.
        header: The header on a given table, where it is not always `title`.
        help: The same for `explain`.
        digits: Digits after the point; None: as many as the largest value needs.
        sign: Whether positive numbers have a sign, as differences do.
        interval: Whether a mean over runs stands with its interval and is tested.
        block: The table that it stands in: quality, tasks or cost.
        detail: Whether a narrow terminal may leave it out.
        applies: On which tables it is shown, if it has values there.
        redrawn: `(table, column) -> Column`, for what cells show beside the number.
        shown: Place among the columns of its table.
        shown_on: The place on a given table, where it is not always `shown`.
        stored: Place in CSV and JSON.
        compact: Place in the short table of a page; None: not there.
        compact_title: The header there.
        compact_if: On which tables it is there.
        mlflow: The name of its mean in MLflow's rows; "" for none.
        term: The word that the glossary of a page defines; default: the title.
        define: The definition there; default: `explain`.
        manual: Its line in docs/leaderboard.md; neighbours with the same line share it.
        numbers: Its line among the columns of CSV there.
    """

    key: str
    title: str = ""
    explain: str = ""
    better: Better = "neither"
    header: Callable[[Table], str] | None = None
    help: Callable[[Table], str] | None = None
    digits: int | None = None
    sign: bool = False
    interval: bool = True
    block: Block = "quality"
    detail: bool | Callable[[Table], bool] = False
    applies: Callable[[Table], bool] | None = None
    redrawn: Callable[[Table, Column], Column] | None = None
    shown: int = OWN
    shown_on: Callable[[Table], int] | None = None
    stored: int = OWN
    compact: int | None = None
    compact_title: str | Callable[[Table], str] = ""
    compact_if: Callable[[Table], bool] | None = None
    mlflow: str | Callable[[Table], str] = ""
    term: str = ""
    define: str = ""
    manual: str = ""
    numbers: str = ""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Columns that are computed together.

    Attributes:
        definitions: Its columns; those of a changing number, such as one per task, have one that stands for all.
        compute: `(frame) -> values of finished runs` or `(table, frame) -> values of rows`, a series or a frame.
        of: Whether these are values of runs, whose mean and interval a row has, or of rows.
        draw: `(table) -> Column ...`, where cells are more than a number with its interval; each column has the name
            of its definition, or stands where the first one does.
        notes: `(table, frame) -> str ...`, what to know of them below the table.
        plugin: The file or package that it comes from; "" if it is shipped.
    """

    definitions: tuple[Definition, ...]
    compute: Callable[..., Any]
    of: Literal["runs", "rows"] = "runs"
    draw: Callable[[Table], Iterator[Column]] | None = None
    notes: Callable[[Table, Frame], Iterable[str]] | None = None
    plugin: str = ""

    def drawn(self, table: Table) -> Iterator[tuple[int, Column]]:
        """Yield the columns that a table may show, each with its place."""
        if self.draw is not None:
            places, first = (
                {definition.key: definition.shown for definition in self.definitions},
                self.definitions[0].shown,
            )
            yield from ((places.get(column.name, first), column) for column in self.draw(table))
            return
        for definition in self.definitions:
            if (
                definition.title
                and definition.key in table.rows
                and (definition.applies is None or definition.applies(table))
            ):
                table_part = definition.shown_on(table) if definition.shown_on else definition.shown
                column = _drawn(definition, table, self.of == "runs" and definition.interval)
                yield table_part, definition.redrawn(table, column) if definition.redrawn else column


def column(
    key: str, *, title: str = "", better: Better = "neither", explain: str = "", **more: Any
) -> Callable[[Compute], Compute]:
    """Register a function as a column: `(frame) -> Series` with a value for each finished run.

    Args:
        key: Its name in CSV and JSON, of letters, digits and underscores.
        title: The header.
        better: "higher", "lower", "as the metric" or "neither".
        explain: What the number is, in half a sentence.
        more: Other attributes of `Definition`; `of="rows"` for `(table, frame) -> Series` with a value for each row.

    Raises:
        UserError: If the key is no such name, or another column has it.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", key) or key in _TAKEN or key.endswith("_ci"):
        raise UserError(f"column {key!r}: its key should be a name of letters, digits and _ that nothing else has")
    settings = {name: more.pop(name) for name in ("of", "draw", "notes") if name in more}
    try:
        definition = Definition(key=key, title=title, better=better, explain=explain, **more)
    except TypeError as error:
        raise UserError(f"column {key}: {str(error).partition(') ')[2] or error}") from None
    return family(definition, **settings)


def family(*definitions: Definition, **settings: Any) -> Callable[[Compute], Compute]:
    """Register a function that computes several columns together, as a frame with a column for each definition."""

    def added(compute: Compute) -> Compute:
        new_family = Family(definitions=definitions, compute=compute, **settings)
        register("column", [definition.key for definition in definitions], new_family, compute.__module__)
        return compute

    return added


def families(plugins: Collection[str] = ()) -> list[Family]:
    """Return the shipped families, and those of installed packages and of plugin files with these names."""
    load_folder(__package__)
    load_installed()
    return [replace(part.content, plugin=part.plugin) for part in parts("column", plugins)]


def definitions(plugins: Collection[str] = ()) -> dict[str, Definition]:
    """Return the definitions of `families` by their keys, in the order of tables; those that none shows at the end."""
    every = (one for entry in families(plugins) for one in entry.definitions)
    return {one.key: one for one in sorted(every, key=lambda one: (not one.title, one.shown))}


def directions_beside(measured: Collection[str], plugins: Collection[str]) -> dict[str, bool]:
    """Return column -> whether higher is better, of those that stand beside the metrics of the tasks.

    Args:
        measured: The columns that some run has.
        plugins: As of `families`.
    """
    beside = sorted(
        (one for one in definitions(plugins).values() if one.stored >= MEASURES), key=lambda one: one.stored
    )
    return {one.key: one.better == "higher" for one in beside if one.key in measured or one.key == UNITS}


def measure(
    table: Table, key: str, header: str, *, sign: bool = False, digits: int | None = None, **settings: Any
) -> Column:
    """Return the column of a mean over runs with its interval, which is tested."""
    values = table.rows[key]
    places = (2 if sign else decimals(values)) if digits is None else digits
    form = f"{'+' if sign else ''}.{places}f"
    higher = table.higher(key) if values.notna().any() else None
    widths = table.rows[f"{key}_ci"]
    return number_column(header, values, form, widths, name=key, tested=True, higher=higher, **settings)


def number(
    table: Table, key: str, header: str, higher: bool | None, *, digits: int | None = None, **settings: Any
) -> Column:
    """Return the column of a number of rows."""
    values = table.rows[key]
    digits = decimals(values, figures=3, least=0) if digits is None else digits
    quality = settings.get("block") != "cost"  # fast methods need not be good
    return number_column(header, values, f",.{digits}f", name=key, higher=higher, emphasis=quality, **settings)


def _drawn(one: Definition, table: Table, has_interval: bool) -> Column:
    settings: dict[str, Any] = {
        "help": one.help(table) if one.help else one.explain,
        "block": one.block,
        "detail": one.detail(table) if callable(one.detail) else one.detail,
        "digits": one.digits,
    }
    header = one.header(table) if one.header else one.title
    if has_interval:
        return measure(table, one.key, header, sign=one.sign, **settings)
    return number(table, one.key, header, None if one.better == "neither" else table.higher(one.key), **settings)
