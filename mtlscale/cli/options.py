"""Command-line arguments and options that commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli import completion

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.config import Experiment
    from mtlscale.records import Home, RunRecord

# `show_default` says what a default stands for: in brackets within the help it would be taken for markup.
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder for data, runs and reports", show_default="$MTLSCALE_HOME or ./outputs"),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        help="URL for what the nodes of a cluster without a common folder share, e.g. s3://bucket/mtlscale",
        show_default="$MTLSCALE_STORAGE, else --home",
    ),
]
SourceOption = Annotated[
    Path | None,
    typer.Option(
        "--source", help="The raw data: a folder, an archive, the URL of one (s3://…, https://…), or hf:NAME of the hub"
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. training.epochs=5")
]
AddressOption = Annotated[
    str | None, typer.Option(help="Ray cluster to join", show_default="$RAY_ADDRESS, else a local one")
]
DownloadOption = Annotated[bool, typer.Option(help="Fetch data where it is public and not given")]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait",
        help="Where another process runs this experiment: watch it and go on with what it leaves; else exit status 2",
    ),
]
PluginOption = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="A file with components of your own; an experiment file has `plugins` for them"),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="In a terminal: a line for every run that ends, as in a log")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors and the result")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object a line instead (docs/commands.md)")]
WideOption = Annotated[
    bool,
    typer.Option(
        "--wide", help="In a terminal: all columns and tables, definitions and files, not the first screen alone"
    ),
]
ExperimentArgument = Annotated[
    str,
    typer.Argument(help="A YAML file, or the name of a shipped experiment", autocompletion=completion.experiments),
]
RunArgument = Annotated[
    str, typer.Argument(help="The id of a run, or as much of it as no other has", autocompletion=completion.runs)
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="METHOD", help="Exactly this row, and others so named", autocompletion=completion.methods
    ),
]
DatasetOption = Annotated[
    list[str] | None, typer.Option("--dataset", metavar="DATASET", help="On this data set alone, and others so named")
]


def home_of(path: Path | None, storage: str | None = None) -> Home:
    """Return the home folder that --home and --storage name."""
    from mtlscale.records import Home

    return Home.at(path, storage)


def experiment_named(home: Home, text: str) -> str | None:
    """Return the experiment with runs in this home that a name or an experiment file means, or None."""
    from mtlscale.config import find_experiment, read_settings
    from mtlscale.records import experiments_with_runs

    name = text
    if Path(text).suffix in (".yaml", ".yml"):
        name = str(read_settings(find_experiment(text)).get("name", Path(text).stem))
    return name if name in experiments_with_runs(home) else None


def records_named(home: Home, text: str, name: str) -> tuple[RunRecord, ...]:
    """Return the records of an experiment's own runs.

    They are those of its file where `text` is one, else those that it had when it was last started; `UserError` if it
    is not known which these are.
    """
    from mtlscale.api.sources import own_experiment
    from mtlscale.config import UserError
    from mtlscale.execution.finding.own_board import own_board
    from mtlscale.execution.planning.status import board_at_start

    if Path(text).suffix not in (".yaml", ".yml"):
        return board_at_start(home, name).records
    board = own_board(own_experiment(text), home)
    if board.unsettled and not board.records:
        raise UserError(next(iter(board.unsettled.values())))
    return board.records


def console_of(*, quiet: bool = False, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error."""
    from rich.console import Console

    # In a file or a pipe tables get 120 columns; a terminal has its own width, or that of $COLUMNS.
    width_is_known = (sys.stderr if stderr else sys.stdout).isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if width_is_known else 120, quiet=quiet, stderr=stderr)


def load_plugins(paths: list[Path] | None) -> None:
    """Register the components of the user's files; raise `UserError` if one cannot be imported."""
    from mtlscale.config import load_plugin

    for path in paths or ():
        load_plugin(path)


def only(experiment: Experiment, methods: list[str] | None, datasets: list[str] | None = None) -> Experiment:
    """Return the experiment with exactly these rows and data sets; `UserError` names the nearest to an unknown one."""
    from mtlscale.config import UserError, nearest

    parts = {}
    for option, key, what, names in (
        ("--only", "methods", "method", methods),
        ("--dataset", "datasets", "data set", datasets),
    ):
        entries = getattr(experiment, key)
        labels = [entry.label for entry in entries]
        for name in names or ():
            if name not in labels:
                several = [part.strip() for part in name.split(",")]
                mend = " ".join(f"{option} {part}" for part in several) if set(several) <= set(labels) else ""
                hint = f"several are written {mend}" if mend else nearest(name, labels)
                raise UserError(f"{option} {name}: {experiment.name} has no such {what}; {hint}")
        if names:
            parts[key] = tuple(entry for entry in entries if entry.label in names)
    return experiment.model_copy(update=parts) if parts else experiment
