"""The options that commands share, and what they stand for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.records import Home

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder for data, runs and reports [default: $MTLSCALE_HOME or ./outputs]")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        help="URL for what the nodes of a cluster without a common folder share, e.g. s3://bucket/mtlscale "
        "[default: $MTLSCALE_STORAGE, else --home]"
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
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait",
        help="Where another process runs this experiment: watch it and go on with what it leaves; else exit status 2",
    ),
]


def home_of(path: Path | None, storage: str | None = None) -> Home:
    from mtlscale.records import Home

    return Home.at(path, storage)


def console_of(*, stderr: bool = False) -> Console:
    from rich.console import Console

    # Into a file or a pipe tables get room; a terminal has the width it has.
    stream = sys.stderr if stderr else sys.stdout
    return Console(width=None if stream.isatty() else 120, stderr=stderr)
