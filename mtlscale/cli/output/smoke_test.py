"""The smoke test of `mtlscale run --fast`: whether every method works on every data set."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mtlscale.cli.options import console_of
from mtlscale.cli.output.grid import grid
from mtlscale.cli.output.json_events import JsonEvents
from mtlscale.cli.output.progress import sink_of

if TYPE_CHECKING:
    from rich.table import Table

    from mtlscale.config import Experiment
    from mtlscale.records import Home, RunRecord


def run_fast(
    spec: Experiment,
    home: Home,
    source: Path | None,
    address: str | None,
    *,
    download: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Run the smoke test and print its results; exit status 1 if something has failed."""
    from mtlscale.execution.rehearsal.smoke_test import rehearse, shortened

    console, started = console_of(quiet=json), time.perf_counter()
    with sink_of(console, shortened(spec), quiet=quiet, json=json) as sink:
        records = rehearse(spec, home=home, source=source, address=address, download=download, sinks=[sink])
    console.print(_table(records))

    failed = sum(record.status != "finished" for record in records)
    seconds = time.perf_counter() - started
    if not quiet:
        console.print(f"{len(records) - failed} of {len(records)} work, {seconds:.0f} s; nothing of it was kept")
    JsonEvents(json).emit(
        "done", experiment=spec.name, runs=len(records), failed=failed, seconds=round(seconds, 3), files={}
    )
    if failed:
        raise typer.Exit(1)


def _table(records: Sequence[RunRecord]) -> Table:
    from rich.text import Text

    rows = []
    for record in records:
        failure = Text.assemble((record.status, "red"), f": {record.error or ''}")
        result = Text("ok", "green") if record.status == "finished" else failure
        rows.append((record.dataset, record.method, result))
    return grid(("dataset", "method", "two steps"), rows)
