"""The commands that compare what has been run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SetOption, console_of, home_of
from mtlscale.cli.terminal import print_results
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from mtlscale.report.results import Results


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale leaderboard quickstart --format markdown")(leaderboard)
    app.command(epilog="Example: mtlscale report quickstart")(report)


def leaderboard(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    format: Annotated[str, typer.Option("--format", help="table, markdown or csv")] = "table",
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Compare the methods of an experiment on the runs there are."""
    results = _results(experiment, set_, home, epochs=format == "table")
    board = results.leaderboard()
    if format == "markdown":
        print(board.to_markdown())
    elif format == "csv":
        print(board.to_csv(), end="")
    elif format == "table":
        print_results(console_of(), results, results.write_report())
    else:
        raise UserError(f"--format {format}: choose table, markdown or csv")


def report(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Write the page, tables and pictures of the runs there are, and say where they are."""
    for path in _results(experiment, set_, home).write_report().values():
        print(path)


def _results(experiment: str, set_: list[str] | None, home: Path | None, *, epochs: bool = True) -> Results:
    """The finished runs of an experiment; `UserError` where there are none."""
    from mtlscale.execution.plan import records_of
    from mtlscale.report.results import Results
    from mtlscale.spec import load_experiment

    spec = load_experiment(experiment, tuple(set_ or ()))
    place = home_of(home)
    records = records_of(spec, place, epochs=epochs)
    if not records:
        raise UserError(
            f"no runs of {spec.name} in {place.root}; start them with `mtlscale run {experiment}` or name their --home"
        )
    return Results(spec, records, place.experiment(spec.name))
