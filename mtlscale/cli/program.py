"""The program `mtlscale`: its commands, and mistakes in one line."""

from __future__ import annotations

import functools
import sys
from typing import Annotated

import typer

from mtlscale.cli import usage
from mtlscale.cli.commands import (
    cluster,
    data,
    diagnosis,
    doctor,
    inspection,
    listing,
    live_page,
    models,
    reports,
    runs,
    show,
    submissions,
)
from mtlscale.cli.output.streams import make_tolerant
from mtlscale.config import UserError
from mtlscale.config.places import without_tilde
from mtlscale.version import __version__

app = typer.Typer(
    name="mtlscale",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="mtlscale: benchmark multi-task learning methods under one protocol.\n\n"
    "Start with [bold]mtlscale run quickstart[/bold].",
)

for commands in (
    listing,
    inspection,
    data,
    diagnosis,
    runs,
    show,
    reports,
    live_page,
    models,
    submissions,
    doctor,
    cluster,
):
    commands.register(app)


def _version(requested: bool) -> None:
    if requested:
        print(f"mtlscale {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


# Made once in a process, and not by each call as `app()` does.
_command = functools.cache(typer.main.get_command)


def main() -> None:
    """Run the command line: a mistake is one line on standard error and exit status 2."""
    make_tolerant()
    try:
        arguments = sys.argv[1:]
        if arguments[:1] != ["submit"]:  # whose folders are the cluster's
            arguments = [without_tilde(argument) for argument in arguments]
        sys.exit(_command(app)(arguments, prog_name="mtlscale", standalone_mode=False) or 0)
    except UserError as error:
        print(f"mtlscale: {error}", file=sys.stderr)
        sys.exit(2)
    except usage.ClickException as error:
        usage.print_mistake(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print("mtlscale: interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)
