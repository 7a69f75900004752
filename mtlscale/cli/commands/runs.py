"""The commands that run experiments and searches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import (
    AddressOption,
    DatasetOption,
    DownloadOption,
    ExperimentArgument,
    HomeOption,
    JsonOption,
    OnlyOption,
    QuietOption,
    SetOption,
    SourceOption,
    StorageOption,
    VerboseOption,
    WaitOption,
    WideOption,
    console_of,
    home_of,
    only,
)
from mtlscale.cli.output.json_events import JsonEvents
from mtlscale.cli.output.progress import sink_of
from mtlscale.cli.output.terminal import ALL_COLUMNS, print_results, shown_path
from mtlscale.config import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from mtlscale.config import Experiment
    from mtlscale.records import Home, RunRecord
    from mtlscale.report.results import Results
    from mtlscale.report.sweeps.sweeps import Sweep

DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what there is to do, what is done, and what it will take; prepare and start nothing"
    ),
]
FastOption = Annotated[
    bool,
    typer.Option("--fast", help="Does it work at all? Two steps of every run, one seed, in a folder that is removed"),
]


_LARGE_PLAN = 500  # runs or trials from which a dry run says at once what it reads


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale run quickstart --set seeds=[0] --set training.epochs=5")(run)
    app.command(epilog="Example: mtlscale sweep quickstart_sweep --set search.budget=8")(sweep)
    app.command(epilog="Example: mtlscale work quickstart --task 3")(work)


def run(
    experiment: ExperimentArgument,
    set_: SetOption = None,
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    address: AddressOption = None,
    methods: OnlyOption = None,
    datasets: DatasetOption = None,
    dry_run: DryRunOption = False,
    fast: FastOption = False,
    download: DownloadOption = True,
    wait: WaitOption = True,
    wide: WideOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Run an experiment, its search first; what is finished is not run again, what was cut off resumes.

    Ctrl-C, SIGTERM, and the notices of schedulers (SIGUSR1, SIGHUP) end it in good order; the same command resumes.
    """
    from mtlscale.api.running import run as run_experiment
    from mtlscale.config import defaults_file, find_experiment, load_experiment
    from mtlscale.report.cells.number_format import counted

    if fast and dry_run:
        raise UserError("--fast runs everything, --dry-run nothing; drop one of them")

    full_experiment = load_experiment(experiment, tuple(set_ or ()))
    spec, results_home = only(full_experiment, methods, datasets), home_of(home, storage)

    if (defaults := defaults_file(find_experiment(experiment))) and not quiet and not json:
        console_of().print(f"defaults of {defaults} lie below {experiment}", soft_wrap=True, highlight=False)
    if dry_run:
        _dry(spec, home, storage, source, address, json=json, quiet=quiet)
        return

    console, lines, started = console_of(quiet=json), JsonEvents(json), time.perf_counter()
    if fast:
        from mtlscale.cli.output.smoke_test import run_fast

        with _interruptible():
            run_fast(spec, results_home, source, address, download=download, quiet=quiet, json=json)
        return

    with _interruptible(), sink_of(console, spec, quiet=quiet, json=json, verbose=verbose) as sink:
        results = run_experiment(
            spec,
            home=results_home,
            source=source,
            address=address,
            download=download,
            sinks=[sink],
            wait=wait,
            whole=full_experiment if methods or datasets else None,
        )

    files = _print_outcome(console, results, results_home, wide=wide, quiet=quiet, json=json)
    seconds = time.perf_counter() - started
    if not quiet:
        console.print(f"{counted(len(results.records), 'run')}, {seconds:.0f} s")
    _report_end(lines, spec, results.records, seconds, files, "runs")


def work(
    experiment: ExperimentArgument,
    task: Annotated[
        int, typer.Option(min=0, envvar="SLURM_ARRAY_TASK_ID", help="The number of this task among those of the array")
    ] = 0,
    set_: SetOption = None,
    source: SourceOption = None,
    home: HomeOption = None,
    methods: OnlyOption = None,
    datasets: DatasetOption = None,
    download: DownloadOption = True,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train runs of an experiment in this process, without Ray, beside other tasks of a job array.

    Tasks divide the runs through the home folder. Afterwards `mtlscale run` prints the leaderboard.
    """
    from mtlscale.config import load_experiment
    from mtlscale.execution.array_task import work as train_runs
    from mtlscale.report.cells.number_format import counted

    spec = only(load_experiment(experiment, tuple(set_ or ())), methods, datasets)
    console, started = console_of(quiet=json), time.perf_counter()
    with _interruptible(), sink_of(console, spec, quiet=quiet, json=json) as sink:
        count = train_runs(spec, home_of(home), task, [sink], source=source, download=download)
    if not quiet and not json:
        seconds = time.perf_counter() - started
        console.print(
            f"task {task} has trained {counted(count, 'run')} in {seconds:.0f} s; `mtlscale run` compares them"
        )


def _print_outcome(
    console: Console, results: Results, home: Home, *, wide: bool, quiet: bool, json: bool
) -> dict[str, Path]:
    """Print the leaderboards and where their page is, with `wide` the search and MLflow, too; return the files."""
    files = results.write_report()  # written by now: this only finds it
    if json:
        return files
    if results.search is not None and not quiet:
        console.print(results.search.to_rich() if wide else _search_line(results.search))
    print_results(console, results, files, wide=wide)
    if wide:
        _print_mlflow(console, results, home)
    return files


def _search_line(search: Sweep) -> str:
    """Return how much a search has tried, and where its choices are."""
    trials = [record for records in search.trials.values() for record in records]
    finished = sum(record.status == "finished" for record in trials)
    page = search.folder / "sweep.html"
    where = f": {shown_path(page)}" if page.is_file() else ""
    return f"search: {finished} of {len(trials)} trials finished; what they chose{where}\n"


def _print_mlflow(console: Console, results: Results, home: Home) -> None:
    """Print where MLflow compares the methods: by itself it opens on another page."""
    from mtlscale.tracking.link import methods_link
    from mtlscale.tracking.service import uri_of

    tracking = results.experiment.tracking
    if not tracking.enabled or not results.records:
        return
    uri = uri_of(results.experiment, home)
    route = methods_link(uri, results.records[0].run_id)
    if route is not None:
        text = f"  MLflow: mlflow ui --backend-store-uri {uri}, then http://127.0.0.1:5000/{route}"
        console.print(text, soft_wrap=True, highlight=False, markup=False)


def sweep(
    experiment: ExperimentArgument,
    set_: SetOption = None,
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    address: AddressOption = None,
    methods: OnlyOption = None,
    datasets: DatasetOption = None,
    dry_run: DryRunOption = False,
    download: DownloadOption = True,
    wait: WaitOption = True,
    wide: WideOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Tune every method with the same budget; `mtlscale run` then trains the winners on fresh seeds."""
    from mtlscale.api.running import sweep as run_sweep
    from mtlscale.config import load_experiment

    spec = only(load_experiment(experiment, tuple(set_ or ())), methods, datasets)
    if spec.search is None:
        raise UserError(f"{experiment} has no `search`; write one, or start it with `mtlscale run {experiment}`")

    if dry_run:
        _dry(spec, home, storage, source, address, json=json, quiet=quiet)
        return

    console, lines, started = console_of(quiet=json), JsonEvents(json), time.perf_counter()
    results_home = home_of(home, storage)
    with _interruptible(), sink_of(console, spec, quiet=quiet, json=json, verbose=verbose) as sink:
        results = run_sweep(
            spec, home=results_home, source=source, address=address, download=download, sinks=[sink], wait=wait
        )

    console.print(results.to_rich())
    files = results.write_report()
    page = next((path for path in files.values() if path.suffix == ".html"), None)
    if page is not None and not wide:
        console.print(f"page: {shown_path(page)} ({ALL_COLUMNS})", soft_wrap=True, highlight=False, markup=False)
    for path in files.values() if wide else ():
        console.print(f"  {path}", soft_wrap=True, highlight=False)

    trials = [record for records in results.trials.values() for record in records]
    seconds = time.perf_counter() - started
    if not quiet:
        console.print(f"{len(trials)} trials, {seconds:.0f} s")
    _report_end(lines, spec, trials, seconds, files, "trials")


def is_large(spec: Experiment) -> bool:
    """Return whether planning an experiment takes long enough that something has to be said before."""
    each = len(spec.seeds) if spec.search is None else spec.search.budget
    return len(spec.datasets) * len(spec.methods) * each >= _LARGE_PLAN


def _dry(
    spec: Experiment,
    home: Path | None,
    storage: str | None,
    source: Path | None,
    address: str | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    from mtlscale.cli.output import dry_run
    from mtlscale.execution.rehearsal.dry_run import sketch
    from mtlscale.execution.rehearsal.forecast import forecasts
    from mtlscale.report.cells.number_format import listed

    results_home, console = home_of(home, storage), console_of(quiet=json)
    datasets = [dataset.label for dataset in spec.datasets]
    if not console.is_terminal and is_large(spec):
        console.print(f"{spec.name}: reading {listed(datasets)}", soft_wrap=True, highlight=False, markup=False)

    with (
        console.status(f"{spec.name}: reading {listed(datasets)}") as status,
        sketch(spec, home=results_home, source=source, address=address) as plan,
    ):
        status.update("reading the runs that are over")
        expected = forecasts(plan, results_home)
        status.stop()
        if json:
            JsonEvents().emit("plan", **dry_run.as_json(plan, expected))
        else:
            dry_run.show(console, plan, expected)


def _report_end(
    lines: JsonEvents, spec: Experiment, records: Sequence[RunRecord], seconds: float, files: dict[str, Path], noun: str
) -> None:
    """Report the last event; exit status 1 if something failed, or every run but the floors diverged."""
    from mtlscale.report.tables.protocols import is_floor

    failed = sum(record.status == "failed" for record in records)
    counts = {noun: len(records), "failed": failed}
    file_paths = {kind: str(path) for kind, path in files.items()}
    lines.emit("done", experiment=spec.name, **counts, seconds=round(seconds, 3), files=file_paths)
    diverged = [record.status == "diverged" for record in records if not is_floor(record)]
    if failed or (diverged and all(diverged)):
        raise typer.Exit(1)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn Ctrl-C and other signals into one line and an exit status of their own; Typer would leave without a word."""
    from mtlscale.execution.stopping import Interrupted

    try:
        yield
    except Interrupted as stop:
        print(f"mtlscale: {stop}", file=sys.stderr)
        raise typer.Exit(stop.status) from None
