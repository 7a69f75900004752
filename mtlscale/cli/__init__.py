"""The command line: thin, every command with an example in its help."""

from __future__ import annotations

import sys

import typer

from mtlscale.cli import cluster, data, diagnosis, doctor, listing, models, reports, runs
from mtlscale.spec import UserError

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="mtlscale: benchmark multi-task learning methods under one protocol.\n\n"
    "Start with [bold]mtlscale run quickstart[/bold].",
)

for commands in (listing, data, diagnosis, runs, reports, models, doctor, cluster):
    commands.register(app)


def main() -> None:
    """Entry point: a `UserError` is one line on standard error and exit status 2."""
    try:
        app()
    except UserError as error:
        print(f"mtlscale: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mtlscale: interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)
