"""The command that prepares data sets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale.cli import completion
from mtlscale.cli.options import (
    DownloadOption,
    HomeOption,
    JsonOption,
    PluginOption,
    QuietOption,
    SetOption,
    SourceOption,
    StorageOption,
    console_of,
    home_of,
    load_plugins,
)
from mtlscale.cli.output.grid import grid
from mtlscale.cli.output.json_events import JsonEvents
from mtlscale.cli.output.preparation import PreparationBar
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.data import Manifest
    from mtlscale.records import Home, Storage

MAX_LISTED = 1000  # characters of a note that are shown
_SPLITS = ("train", "val", "test")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale prepare newsgroups --source data/20newsgroups")(prepare)


@dataclass(frozen=True)
class _DatasetRequest:
    """Data set to prepare."""

    dataset: str
    options: dict[str, Any]
    source: Path | str | None


def prepare(
    dataset: Annotated[
        str,
        typer.Argument(
            help="A name of `mtlscale list datasets`, or an experiment whose data sets are prepared",
            autocompletion=completion.data,
        ),
    ],
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the pipeline, e.g. length=128")
    ] = None,
    set_: SetOption = None,
    plugin: PluginOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out corrupt samples instead of stopping")] = False,
    download: DownloadOption = True,
    engine: Annotated[str, typer.Option(help="ray, local (this process), or auto: by the set, or its size")] = "auto",
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Turn raw files into Parquet shards and a manifest, once; a second call finds them."""
    from mtlscale.data.readers.prepared import read_manifest
    from mtlscale.data.remote import publish
    from mtlscale.execution.monitoring import log_of
    from mtlscale.execution.preparing.prepare import prepare as prepare_dataset

    if engine not in ("auto", "ray", "local"):
        raise UserError(f"--engine {engine}: choose auto, ray or local")
    load_plugins(plugin)
    datasets = list(_requests(dataset, source, option or [], set_ or []))
    results_home = home_of(home, storage)
    shared_storage = _reachable_storage(results_home)

    console, lines, start = console_of(quiet=quiet or json), JsonEvents(json), time.perf_counter()
    for entry in datasets:
        started = time.perf_counter()
        with PreparationBar(console, entry.dataset) as bar, log_of(f"prepare_{entry.dataset}", results_home):
            folder = prepare_dataset(
                entry.dataset,
                entry.options,
                entry.source,
                results_home.root,
                engine=engine,  # type: ignore[arg-type]
                skip_bad=skip_bad,
                download=download,
                progress=bar,
                storage=shared_storage,
            )
            if shared_storage is not None:
                publish(shared_storage, folder)
        manifest, seconds = read_manifest(folder), time.perf_counter() - started
        lines.prepared(entry.dataset, folder, manifest, seconds)
        _print_manifest(console, manifest)
        console.print(f"{folder}  ({seconds:.1f} s)", soft_wrap=True, highlight=False)
        if quiet and not json:
            print(folder)
    lines.emit("done", seconds=round(time.perf_counter() - start, 3), prepared=len(datasets))


def _reachable_storage(home: Home) -> Storage | None:
    from mtlscale.records import Storage

    if home.storage is None:
        return None
    storage = Storage(home.storage)
    storage.check()
    return storage


def _requests(name: str, source: Path | None, options: list[str], settings: list[str]) -> Iterator[_DatasetRequest]:
    """Yield the data set of this name, or those of an experiment."""
    from mtlscale.config import load_experiment, names, parse_override, shipped

    if name in names("datasets") or not (name in shipped() or Path(name).suffix in (".yaml", ".yml")):
        if settings:
            raise UserError(f"--set {settings[0]}: {name} is a data set; its options are --option KEY=VALUE")
        yield _DatasetRequest(name, dict(parse_override(text, "--option") for text in options), source)
        return

    if options:
        raise UserError(f"--option {options[0]}: {name} is an experiment; its settings are --set KEY=VALUE")
    for dataset, seed in load_experiment(name, tuple(settings)).data().values():
        yield _DatasetRequest(dataset.name, asdict(dataset.build(seed)), source or dataset.source)


def _print_manifest(console: Console, manifest: Manifest) -> None:
    title = f"{manifest.name} · {manifest.fingerprint[:12]}"
    rows = []
    for task in manifest.suite.tasks:
        counts = manifest.counts[task.name]
        rows.append((task.name, task.loss, task.outputs, *(counts.get(split, 0) for split in _SPLITS)))
    table = grid(("task", "loss", "outputs", *_SPLITS), rows, title=title, right=("outputs", *_SPLITS))
    total = (str(sum(c.get(split, 0) for c in manifest.counts.values())) for split in _SPLITS)
    table.add_section()
    table.add_row("all", "", "", *total)
    console.print(table)

    for key, value in manifest.notes.items():
        text = str(value)  # there may be thousands of features and of the values that scale them
        console.print(
            f"{key}: {text if len(text) <= MAX_LISTED else f'{text[:MAX_LISTED]}…'}", soft_wrap=True, markup=False
        )
