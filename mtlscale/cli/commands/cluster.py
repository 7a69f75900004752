"""The commands for clusters: submit, status, logs, stop, sync."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import DatasetOption, OnlyOption, console_of, only
from mtlscale.cli.output.grid import grid
from mtlscale.cli.output.terminal import epochs_bar
from mtlscale.config import UserError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mtlscale.execution.cluster.submit import Jobs, JobState
    from mtlscale.execution.job_progress import JobProgress

AddressOption = Annotated[
    str | None,
    typer.Option(help="The cluster's job server", show_default="$RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265"),
]
JobArgument = Annotated[str, typer.Argument(help="The id that `mtlscale submit` printed")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale submit quickstart --address http://127.0.0.1:8265 --home /shared/mtlscale")(
        submit
    )
    app.command(epilog="Example: mtlscale status raysubmit_4LamXRuQpYdSMg7J --address http://127.0.0.1:8265")(status)
    app.command(epilog="Example: mtlscale logs raysubmit_4LamXRuQpYdSMg7J --follow")(logs)
    app.command(epilog="Example: mtlscale stop raysubmit_4LamXRuQpYdSMg7J")(stop)
    app.command(epilog="Example: mtlscale sync quickstart")(sync)


def submit(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    address: AddressOption = None,
    home: Annotated[
        str | None,
        typer.Option(
            help="Folder on the cluster that all its nodes see", show_default="$MTLSCALE_HOME there, else ~/mtlscale"
        ),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL for what nodes without a common folder share, e.g. s3://bucket/mtlscale")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Folder or archive with the raw data, on the cluster")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. training.epochs=5")
    ] = None,
    methods: OnlyOption = None,
    datasets: DatasetOption = None,
    include: Annotated[list[Path] | None, typer.Option(help="A further file or folder for the job's folder")] = None,
    with_code: Annotated[
        bool, typer.Option("--with-code", help="Ship this very mtlscale; else the cluster has one")
    ] = False,
    limit: Annotated[float, typer.Option(help="The largest package that is sent, in MiB")] = 100.0,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job and return its exit status")] = True,
) -> None:
    """Run an experiment as a job on a Ray cluster; what is finished there is not run again."""
    from mtlscale.config.places import storage_url
    from mtlscale.execution.cluster.job_bundle import bytes_in_words, check_secrets, pack
    from mtlscale.execution.cluster.submit import connect

    if home is not None and not home.startswith("/"):
        raise UserError(
            f"--home {home} would lie in the job's own folder, which Ray removes; name a full path on the cluster, as "
            "--home /shared/mtlscale"
        )

    check_secrets(storage, source)
    if storage:
        storage_url(storage, "--storage")
    package = pack(experiment, tuple(set_ or ()), include or (), with_code=with_code)
    package.check(limit)
    only(package.experiment, methods, datasets)
    if package.links:
        shown = ", ".join(map(str, package.links[:3])) + (", …" if len(package.links) > 3 else "")
        count = f"{len(package.links)} link{'' if len(package.links) == 1 else 's'}"
        print(f"mtlscale: {count} left out: {shown}; --include what they lead to", file=sys.stderr)

    jobs = connect(address)
    options = [("--home", home), ("--storage", storage), ("--source", source)]
    options += [*(("--only", name) for name in methods or ()), *(("--dataset", name) for name in datasets or ())]
    arguments = [part for name, value in options if value for part in (name, value)]
    job = jobs.submit(package, arguments, with_code=with_code)
    print(
        f"{job}: {package.experiment.name} at {jobs.url}, {len(package.sizes())} files, {bytes_in_words(package.size)}",
        flush=True,
    )

    if not wait:
        print(f"  mtlscale logs {job} --follow --address {jobs.url}")
        return
    _follow(jobs, job)


def _follow(jobs: Jobs, job: str) -> None:
    """Print the job's log with a bar of its progress, and leave with its exit status."""
    from mtlscale.execution.job_progress import JobProgress

    with _Bar() as bar:

        def line(text: str) -> None:
            progress = JobProgress.read(text)
            if progress is None:
                bar.print(text)
            else:
                bar.update(progress)

        try:
            state = jobs.follow(job, line)
        except KeyboardInterrupt:
            bar.print(f"{job} goes on; mtlscale logs {job} --follow --address {jobs.url}")
            raise typer.Exit(130) from None
    print(f"{job}: {_message(state)}", flush=True)
    if state.code == 127:
        print("the cluster has no mtlscale; install it there or submit --with-code")
    raise typer.Exit(state.code)


class _Bar:
    """Progress bar below the log on a terminal; elsewhere the log alone."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(soft_wrap=True)
        self._bar = epochs_bar(self._console, disable=not self._console.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def update(self, progress: JobProgress) -> None:
        if self._task is None:
            self._task = self._bar.add_task("", total=progress.of_epochs)
        description = f"{progress.runs}/{progress.of_runs} runs"
        self._bar.update(self._task, completed=progress.epochs, total=progress.of_epochs, description=description)


def _message(state: JobState) -> str:
    end_time = state.ended or time.time()
    duration = f" after {end_time - state.started:.0f} s" if state.started else ""
    code = "" if state.exit_code in (None, 0) else f", exit status {state.exit_code}"
    cause = f" ({state.message.splitlines()[0]})" if state.status == "FAILED" and state.message else ""
    return f"{state.status.lower()}{duration}{code}{cause}"


def status(
    job: Annotated[str | None, typer.Argument(help="The id of a job; without one, the experiments of --home")] = None,
    address: AddressOption = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder of the results", show_default="$MTLSCALE_HOME or ./outputs")
    ] = None,
) -> None:
    """Show a job's progress; all jobs with --address; without both, every experiment's runs done, left and failed."""
    if job is None and address is None:
        _print_experiments(home)
        return
    from mtlscale.execution.cluster.submit import connect
    from mtlscale.execution.job_progress import JobProgress

    jobs = connect(address)
    if job is None:
        rows = []
        for state in jobs.submitted():
            start_time = "" if state.started is None else datetime.fromtimestamp(state.started, UTC).strftime("%F %T")
            rows.append((state.job, _message(state), start_time, state.entrypoint))
        headers = ("job", "status", "started", "command")
        console_of().print(grid(headers, rows, title=f"jobs of {jobs.url}", whole=("job", "started")))
        return

    state = jobs.state(job)
    print(f"{job}: {_message(state)}\n  {state.entrypoint}")
    reports = [progress for line in jobs.logs(job).splitlines() if (progress := JobProgress.read(line))]

    if reports:
        print(f"  {reports[-1]}")


def _print_experiments(home: Path | None) -> None:
    from mtlscale.execution.planning.status import experiment_counts
    from mtlscale.records import Home

    results_home = Home.at(home)
    experiments = experiment_counts(results_home)
    if not experiments:
        raise UserError(f"no experiments in {results_home.root}; name their --home, or a job with its --address")

    numbers = ("runs", "done", "failed", "diverged", "left")
    rows = [(name, c.total, c.finished, c.failed, c.diverged, c.left, c.last) for name, c in experiments.items()]
    console_of().print(grid(("experiment", *numbers, "last"), rows, title=str(results_home.root), right=numbers))


def logs(
    job: JobArgument,
    address: AddressOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends; returns its exit status")
    ] = False,
) -> None:
    """Print the output of a job."""
    from mtlscale.execution.cluster.submit import connect

    jobs = connect(address)
    if follow:
        _follow(jobs, job)
    print(jobs.logs(job), end="")


def stop(job: JobArgument, address: AddressOption = None) -> None:
    """End a job in good order; its finished runs are kept, and submitting it again goes on."""
    from mtlscale.execution.cluster.submit import connect

    jobs = connect(address)
    stopped = jobs.stop(job)
    print(f"{job}: {'stopping' if stopped else _message(jobs.state(job))}")


def sync(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. tracking.uri=URI")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Folder of the results", show_default="$MTLSCALE_HOME or ./outputs")
    ] = None,
) -> None:
    """Write to MLflow what the ledger has and MLflow lacks, as after a time when no server answered.

    Brings the row of each method up to the leaderboard. Nothing is written twice. `--set tracking.uri=URI` writes to
    another MLflow, `--set tracking.detail=full` every metric.
    """
    from mtlscale.api.mlflow_rows import rows_of
    from mtlscale.config import load_experiment
    from mtlscale.execution.finding.own_board import own_board
    from mtlscale.records import Home
    from mtlscale.report.results import Results
    from mtlscale.tracking.sync import sync as synchronise

    spec = load_experiment(experiment, tuple(set_ or ()))
    results_home = Home.at(home)
    board = own_board(spec, results_home)
    results = Results(spec, board.records, results_home.experiment(spec.name), notes=board.unsettled)
    written, existing = synchronise(
        spec, results_home, lambda: rows_of(results), tell=lambda text: print(text, file=sys.stderr)
    )
    print(f"{written} runs written, {existing} were there already")
