"""The command that looks at a user's file and writes the experiment file for it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, console_of, home_of
from mtlscale.cli.output.grid import grid
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.execution.preparing.inspection import SourceReport

_MOST_SHOWN = 60  # columns of the table
_STYLES = {"target": "bold green", "left out": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Example: mtlscale inspect wine.csv --targets grower,alcohol --write wine.yaml")(inspect)


def inspect(
    file: Annotated[
        Path, typer.Argument(help="A table (.csv, .tsv, .parquet, .arff, also .gz), a folder of pictures, or hf:NAME")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B:KIND",
            help="Target columns, also several times; a pattern such as 'T*', first:3 or last:14 takes some; kinds: "
            "class, regression, multilabel, else guessed",
        ),
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write an experiment file that `mtlscale run` takes")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="Option of the data set, such as header=false"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that --write names")] = False,
    home: HomeOption = None,
) -> None:
    """Say what a file would be as a data set: its inputs, targets, splits and suspicious columns."""
    from mtlscale.cli.output.starter_experiment import starter_experiment, starter_label
    from mtlscale.config import parse_override
    from mtlscale.execution.preparing.inspection import inspect_source

    if write is not None and write.suffix not in (".yaml", ".yml"):
        raise UserError(f"--write {write}: end its name with .yaml")
    if write is not None and write.exists() and not force:
        raise UserError(f"--write {write}: the file exists; choose another name or pass --force")
    options = dict(parse_override(text, "--option") for text in option or ())
    if "targets" in options:
        raise UserError("--option targets: name target columns by --targets")

    if file.suffix in (".yaml", ".yml"):
        raise UserError(f"{file} is an experiment file; `mtlscale run {file} --dry-run` looks at it")

    console = console_of()
    with console.status(f"reading {file}"):
        report = inspect_source(file, targets or (), options, home_of(home).root)
    _print_report(console, report, str(file))

    if write is None:
        options_text = [part for text in targets or () for part in ("--targets", text)]
        options_text += [part for text in option or () for part in ("--option", text)]
        command = shlex.join(
            ["mtlscale", "inspect", str(file), *options_text, "--write", f"{starter_label(report, str(file))}.yaml"]
        )
        console.print(f"\nto write the experiment file: {command}", soft_wrap=True, highlight=False, markup=False)
        return
    try:
        write.write_text(starter_experiment(report, str(file), write), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--write {write}: cannot be written ({error.strerror}); name another place") from None
    console.print(f"\n{write} is written; next: mtlscale run {write}", soft_wrap=True, highlight=False)


def _print_report(console: Console, report: SourceReport, name: str) -> None:
    from rich.text import Text

    # Targets first, then what was left out: a wide table has hundreds of inputs.
    order = {"target": 0, "left out": 1, "input": 3}
    columns = sorted(report.columns, key=lambda column: order.get(column.role, 2))
    rows = [
        (
            Text(column.role, _STYLES.get(column.role, "")),
            *(column.name, column.kind, f"{column.distinct:,}", column.empty or "", column.reason),
        )
        for column in columns[:_MOST_SHOWN]
    ]
    title = f"{name}: {report.rows:,} samples, as data set {report.dataset}"
    headers = ("taken as", "column", "kind", "different", "empty", "why")
    console.print(grid(headers, rows, title=title, right=("different", "empty")))
    if len(columns) > _MOST_SHOWN:
        console.print(f"and {len(columns) - _MOST_SHOWN} more columns", highlight=False)

    if report.splits:
        sizes = ", ".join(f"{split} {size:,}" for split, size in report.splits.items())
        console.print(f"splits: {sizes}", highlight=False)
    for warning in report.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True, highlight=False, markup=False)
