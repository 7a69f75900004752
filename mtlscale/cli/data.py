"""The command that prepares data sets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SourceOption, StorageOption, console_of, home_of
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.data import Manifest

MOST = 1000  # characters of a note that are shown


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale prepare newsgroups --source data/20newsgroups")(prepare)


def prepare(
    dataset: Annotated[str, typer.Argument(help="A name of `mtlscale list datasets`")],
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the pipeline, e.g. length=128")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out corrupt samples instead of stopping")] = False,
    download: Annotated[bool, typer.Option(help="Fetch the files where they are public and not given")] = True,
    engine: Annotated[str, typer.Option(help="ray, local (this process), or auto: by the size of the source")] = "auto",
) -> None:
    """Turn raw files into Parquet shards and a manifest, once; a second call finds them."""
    from mtlscale.data.prepared import read_manifest
    from mtlscale.data.shared import publish
    from mtlscale.execution.prepare import prepare as prepare_dataset
    from mtlscale.records import Storage
    from mtlscale.spec import parse_override

    if engine not in ("auto", "ray", "local"):
        raise UserError(f"--engine {engine}: choose auto, ray or local")
    options = dict(parse_override(text, "--option") for text in option or ())
    place, started = home_of(home, storage), time.perf_counter()
    shared = None if place.storage is None else Storage(place.storage)
    if shared is not None:
        shared.check()
    console = console_of()
    with console.status(f"preparing {dataset}"):
        folder = prepare_dataset(
            dataset,
            options,
            source,
            place.root,
            engine=engine,  # type: ignore[arg-type]
            skip_bad=skip_bad,
            download=download,
            storage=shared,
        )
        if shared is not None:
            publish(shared, folder)
    manifest = read_manifest(folder)
    _print_manifest(console, manifest)
    console.print(f"{folder}  ({time.perf_counter() - started:.1f} s)", soft_wrap=True)


def _print_manifest(console: Console, manifest: Manifest) -> None:
    from rich.table import Table

    splits = ("train", "val", "test")
    table = Table("task", "loss", "outputs", *splits, title=f"{manifest.name} · {manifest.fingerprint[:12]}")
    for task in manifest.suite.tasks:
        counts = manifest.counts[task.name]
        table.add_row(task.name, task.loss, str(task.outputs), *(str(counts.get(split, 0)) for split in splits))
    total = (str(sum(c.get(split, 0) for c in manifest.counts.values())) for split in splits)
    table.add_section()
    table.add_row("all", "", "", *total)
    console.print(table)
    for key, value in manifest.notes.items():
        text = str(value)  # of features and what they are scaled by there may be thousands
        console.print(f"{key}: {text if len(text) <= MOST else f'{text[:MOST]}…'}", soft_wrap=True)
