"""The commands about one run: its summary, and its repetition."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale.cli import completion
from mtlscale.cli.options import (
    DownloadOption,
    HomeOption,
    PluginOption,
    RunArgument,
    SourceOption,
    console_of,
    experiment_named,
    home_of,
    load_plugins,
    records_named,
)
from mtlscale.cli.output.grid import grid
from mtlscale.cli.output.json_events import plain
from mtlscale.config import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from mtlscale.records import FoundRun, Home, RunRecord
    from mtlscale.records.reproduction import Reproduction

_MAX_LISTED = 20  # differences that are shown
_TRACEBACK_LINES = 12


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale show b9d3f4 --home outputs")(show)
    app.command(epilog="Example: mtlscale rerun b9d3f4 --home outputs")(rerun)


def show(
    run: Annotated[
        str,
        typer.Argument(
            help="The id of a run, or as much of it as no other has; or an experiment, to list its runs",
            autocompletion=completion.runs,
        ),
    ],
    home: HomeOption = None,
    plugin: PluginOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON")] = False,
    spec: Annotated[bool, typer.Option("--spec", help="Print every setting of the run as YAML")] = False,
) -> None:
    """Tell one run's story: what, where and when, what came of it, what it took and what it has left.

    Of an experiment, list its runs with their ids.
    """
    from mtlscale.execution.planning.status import read_plan
    from mtlscale.records import find_run

    load_plugins(plugin)
    results_home = home_of(home)
    if (name := experiment_named(results_home, run)) is not None:
        if spec:
            raise UserError(f"--spec: {name} is an experiment; give the id of one of its runs")
        marked = run != name or bool(read_plan(results_home, name))
        _list(results_home, name, records_named(results_home, run, name), marked=marked, json=json)
        return

    found_run = find_run(results_home, run)
    if spec:
        import yaml

        print(yaml.safe_dump(_record(found_run).spec, sort_keys=False, allow_unicode=True), end="")
    elif json:
        content = {} if found_run.record is None else found_run.record.model_dump(mode="json")
        if found_run.record is not None:
            content["epochs"] = [epoch.model_dump(mode="json") for epoch in found_run.record.epochs]
        locations = {
            "experiments": found_run.experiments,
            "folder": str(found_run.folder),
            "files": _files(found_run.folder),
        }
        summary = {"run_id": found_run.run_id, **content, **locations, "mlflow": _link(results_home, found_run.run_id)}
        print(json_text.dumps(plain(summary), ensure_ascii=False))
    else:
        _print_run(console_of(), results_home, found_run)


def _list(home: Home, name: str, own: Sequence[RunRecord], *, marked: bool, json: bool) -> None:
    """Print every run of an experiment with its id; `marked` says of each whether it is one of its own now."""
    from mtlscale.records import runs_of_experiment
    from mtlscale.report.cells.number_format import counted

    others = {record.run_id: record for record in runs_of_experiment(home, name)}
    own_by_id = {record.run_id: record for record in reversed(own)}  # of one under two labels, the first
    records = (others | own_by_id).values()
    fields = ("run_id", "dataset", "method", "seed", "status", "finished")
    rows = [{key: getattr(record, key) for key in fields} for record in records]
    for row in rows:
        row["settings"] = "" if not marked else "now" if row["run_id"] in own_by_id else "other"

    if json:
        print(json_text.dumps({"experiment": name, "runs": rows}, ensure_ascii=False))
        return

    console = console_of()
    headers = ("run", "data set", "method", "seed", "ended as", "at", "settings")
    ordered = sorted(rows, key=lambda row: (row["settings"], row["dataset"], row["method"], row["seed"]))
    table = grid(headers, [[row[key] for key in (*fields, "settings")] for row in ordered], right=("seed",))
    console.print(f"{name}: {counted(len(rows), 'run')} in {home.root}", soft_wrap=True, highlight=False, markup=False)
    console.print(table)


def _record(run: FoundRun) -> RunRecord:
    if run.record is None:
        raise UserError(f"run {run.run_id} has not come to an end; there is no record of it yet")
    return run.record


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _link(home: Home, run_id: str) -> str | None:
    from mtlscale.tracking.link import link

    return link(home.tracking_uri, run_id)


def _print_run(console: Console, home: Home, run: FoundRun) -> None:
    from mtlscale.cli.output import run_summary

    def line(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    record = run.record
    if record is None:
        line(f"run {run.run_id}: not ended yet")
    else:
        line(run_summary.title(record))
    if run.experiments:
        line(f"of {', '.join(run.experiments)}")

    if record is not None:
        for part in run_summary.summary_parts(record):
            if isinstance(part, str):
                line(part)
            else:
                console.print(part)

    files = _files(run.folder)
    if files:
        line(f"files in {run.folder}: {', '.join(files)}")
    if (run.folder / "error.txt").exists():
        line(f"traceback: {run.folder / 'error.txt'}, which ends with")
        text = (run.folder / "error.txt").read_text(encoding="utf-8", errors="replace")
        for part in text.splitlines()[-_TRACEBACK_LINES:]:
            line(f"  {part}")

    address = _link(home, run.run_id)
    if address is not None:
        line(f"MLflow: mlflow ui --backend-store-uri {home.tracking_uri}, then http://127.0.0.1:5000/{address}")


def rerun(
    run: RunArgument,
    home: HomeOption = None,
    source: SourceOption = None,
    plugin: PluginOption = None,
    download: DownloadOption = True,
    keep_model: Annotated[
        bool, typer.Option("--keep-model", help="Where all is the same, leave its model where `export` looks for it")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON")] = False,
) -> None:
    """Run a run again on the same data, and compare every metric with its record, which is left as it is.

    The same processor and versions give the same to the last digit. Others round differently: what moves less than
    seeds differ by is the same, too. Exit status 1 where a run is different. A repetition that is not the same to the
    last digit is kept below `reruns` of the home folder. Without --plugin, those of its experiment are taken, as long
    as their code is what the run was made with.
    """
    from mtlscale.cli.output.terminal import epochs_bar
    from mtlscale.execution.planning.noted_plugins import noted_plugins
    from mtlscale.execution.rehearsal.rerun import rerun as run_again
    from mtlscale.records import find_run, runs_of_experiment
    from mtlscale.records.reproduction import DIFFERENT

    results_home = home_of(home)
    found_run = find_run(results_home, run)
    record = _record(found_run)
    load_plugins(plugin or noted_plugins(results_home, found_run))
    console, notes = console_of(quiet=json), []

    def note(text: str) -> None:
        notes.append(text)
        console.print(f"[yellow]{text}[/yellow]", soft_wrap=True, highlight=False)

    with epochs_bar(console, disable=not console.is_terminal or json) as bar:
        task = bar.add_task(f"{record.dataset} · {record.method}", total=len(record.epochs) or None)
        try:
            comparison, folder = run_again(
                record,
                results_home,
                source=source,
                download=download,
                keep_model=keep_model,
                epoch=lambda _: bar.advance(task),
                note=note,
            )
        except KeyboardInterrupt:
            raise UserError("interrupted; the same command goes on from its checkpoint, if there is one") from None

    comparison = comparison.among(runs_of_experiment(results_home, record.experiment))
    if json:
        print(json_text.dumps(plain(_compared(comparison, folder, notes)), ensure_ascii=False))
    else:
        _compare(console, comparison, folder)
    if comparison.outcome == DIFFERENT:
        raise typer.Exit(1)


def _compared(reproduction: Reproduction, folder: Path | None, notes: list[str]) -> dict[str, Any]:
    return {
        "run": reproduction.before.run_id,
        "outcome": reproduction.outcome,
        "same": reproduction.same,
        "compared": reproduction.compared,
        "differences": [vars(difference) for difference in reproduction.differences],
        "chosen_epoch": reproduction.choice,
        "parts_at": reproduction.parts_at,
        "surroundings": reproduction.surroundings,
        "notes": notes,
        "seconds": reproduction.after.seconds,
        "folder": folder,
    }


def _compare(console: Console, reproduction: Reproduction, folder: Path | None) -> None:
    before, after = reproduction.before, reproduction.after
    run_name = f"{before.dataset} · {before.method} · seed {before.seed}"
    for line in reproduction.surroundings:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if reproduction.same:
        text = f"{run_name}: the same to the last digit, {reproduction.compared} metrics, {after.seconds:.1f} s"
        console.print(text, soft_wrap=True, highlight=False)
        return

    if before.status != after.status:
        console.print(f"{run_name}: {before.status}, now {after.status}: {after.error}", soft_wrap=True, markup=False)

    differences = reproduction.differences
    largest = sorted(differences, key=lambda one: -abs(one.after - one.before))
    headers = ("split", "task", "metric", "then", "now", "difference")
    rows = [
        (row.place, row.task, row.metric, f"{row.before:.8g}", f"{row.after:.8g}", f"{row.after - row.before:+.2g}")
        for row in largest[:_MAX_LISTED]
    ]
    title = f"{run_name}: {len(differences)} of {reproduction.compared} metrics differ"
    if differences:
        console.print(grid(headers, rows, title=title, right=headers[3:]))
    if len(differences) > _MAX_LISTED:
        console.print(f"and {len(differences) - _MAX_LISTED} more that differ less; --json has all")

    if reproduction.parts_at:
        console.print(f"training parts at {reproduction.parts_at}", highlight=False)
    console.print(f"{reproduction.outcome}: {reproduction.explanation}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"the repetition is in {folder}", soft_wrap=True, highlight=False, markup=False)
