"""The command line: thin, every command with an example in its help."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtlscale import cluster_cli
from mtlscale.components import UserError
from mtlscale.terminal import epochs_bar

if TYPE_CHECKING:
    from mtlscale.execution.plan import Plan
    from mtlscale.execution.sweep import SweepPlan
    from mtlscale.experiment import Experiment, Run
    from mtlscale.ledger import Epoch, RunRecord
    from mtlscale.results import Results

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="mtlscale: benchmark multi-task learning methods under one protocol.\n\n"
    "Start with [bold]mtlscale run quickstart[/bold].",
)

_TELL_SECONDS = 1.0  # between two lines of progress

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
SourceOption = Annotated[Path | None, typer.Option("--source", help="Folder or archive with the raw data")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. training.epochs=5")
]


def _home(path: Path | None, storage: str | None = None) -> Any:
    from mtlscale.home import Home

    return Home.at(path, storage)


def _console() -> Any:
    from rich.console import Console

    # Into a file or a pipe tables get room; a terminal has the width it has.
    return Console(width=None if sys.stdout.isatty() else 120)


@app.command("list", epilog="Example: mtlscale list balancers")
def list_(
    what: Annotated[
        str, typer.Argument(help="methods, balancers, architectures, objectives, encoders, datasets or experiments")
    ] = "methods",
) -> None:
    """Show what an experiment file can name: what it needs, what it costs, its knobs and their ranges."""
    from rich.table import Table

    from mtlscale import components
    from mtlscale.experiment import load_experiment, shipped

    console = _console()
    if what == "experiments":
        table = Table("experiment", "what it is", title="shipped experiments")
        for name in shipped():
            table.add_row(name, load_experiment(name).description)
        console.print(table)
        return
    kinds = {"methods": ("architectures", "balancers", "objectives")}.get(what, (what,))
    if kinds[0] not in components.PACKAGES:
        choices = ["methods", "experiments", *components.PACKAGES]
        raise UserError(f"mtlscale list {what}: {components.nearest(what, choices)}")
    for kind in kinds:
        table = Table("name", "what it is", title=kind, title_justify="left")
        balancers = kind == "balancers"
        if balancers:
            table.add_column("needs")
            table.add_column("cost of a step")
        table.add_column("source")
        table.add_column("knobs: default, range, search")
        for name in components.names(kind):
            cls = components.component(kind, name)
            knobs = "\n".join(
                f"[bold]{key}[/bold]={default!r} {spec.range()}".rstrip().replace(" [", " \\[")
                + (f" search {'…'.join(str(v) for v in spec.search)}" if spec.search else "")
                for key, (default, spec) in cls.knobs().items()
            )
            extra = [cls.needs, cls.cost] if balancers else []
            table.add_row(name, cls.summary(), *extra, cls.source, knobs)
        console.print(table)


@app.command(epilog="Example: mtlscale prepare newsgroups --source data/20newsgroups")
def prepare(
    dataset: Annotated[str, typer.Argument(help="A name of `mtlscale list datasets`")],
    source: SourceOption = None,
    home: HomeOption = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the pipeline, e.g. length=128")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out corrupt samples instead of stopping")] = False,
    download: Annotated[bool, typer.Option(help="Fetch the files where they are public and not given")] = True,
    engine: Annotated[str, typer.Option(help="ray, local (this process), or auto: by the size of the source")] = "auto",
) -> None:
    """Turn raw files into Parquet shards and a manifest, once; a second call finds them."""
    from mtlscale.data.prepared import read_manifest
    from mtlscale.execution.prepare import prepare as prepare_dataset
    from mtlscale.experiment import parse_override

    if engine not in ("auto", "ray", "local"):
        raise UserError(f"--engine {engine}: choose auto, ray or local")
    options = dict(parse_override(text, "--option") for text in option or ())
    started = time.perf_counter()
    console = _console()
    with console.status(f"preparing {dataset}"):
        folder = prepare_dataset(
            dataset,
            options,
            source,
            _home(home).root,
            engine=engine,  # type: ignore[arg-type]
            skip_bad=skip_bad,
            download=download,
        )
    manifest = read_manifest(folder)
    _print_manifest(console, manifest)
    console.print(f"{folder}  ({time.perf_counter() - started:.1f} s)", soft_wrap=True)


def _print_manifest(console: Any, manifest: Any) -> None:
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
        console.print(f"{key}: {value}", soft_wrap=True)


@app.command(epilog="Example: mtlscale run quickstart --set seeds=[0] --set training.epochs=5")
def run(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    set_: SetOption = None,
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join [default: $RAY_ADDRESS, else a local one]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and what is done already; start none")
    ] = False,
    download: Annotated[bool, typer.Option(help="Fetch data where it is public and not given")] = True,
) -> None:
    """Run an experiment, its search first; what is finished is not run again, what was cut off resumes."""
    from mtlscale.execution.runner import plan as make_plan
    from mtlscale.execution.runner import run as run_experiment
    from mtlscale.experiment import load_experiment

    spec = load_experiment(experiment, tuple(set_ or ()))
    console = _console()
    if dry_run:
        the_plan: Any = make_plan(spec, home=_home(home, storage), source=source, download=download)
        show = _print_plan if spec.search is None else _print_sweep_plan
        show(console, the_plan)
        return
    started = time.perf_counter()
    with _Progress(console, spec) as observer:
        results = run_experiment(
            spec, home=_home(home, storage), source=source, address=address, download=download, observer=observer
        )
    if results.search is not None:
        console.print(results.search.to_rich())
    _print_results(console, results, results.write_report())  # written by now: this only finds it
    console.print(f"{len(results.records)} runs, {time.perf_counter() - started:.0f} s")
    if any(record.status == "failed" for record in results.records):
        raise typer.Exit(1)


@app.command(epilog="Example: mtlscale sweep quickstart_sweep --set search.budget=8")
def sweep(
    experiment: Annotated[str, typer.Argument(help="A YAML file with `search`, or the name of a shipped experiment")],
    set_: SetOption = None,
    source: SourceOption = None,
    home: HomeOption = None,
    storage: StorageOption = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join [default: $RAY_ADDRESS, else a local one]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the trials and how they would be run; start none")
    ] = False,
    download: Annotated[bool, typer.Option(help="Fetch data where it is public and not given")] = True,
) -> None:
    """Tune every method with the same budget; `mtlscale run` then trains the winners on fresh seeds."""
    from mtlscale.execution.runner import plan as make_plan
    from mtlscale.execution.runner import sweep as run_sweep
    from mtlscale.experiment import load_experiment

    spec = load_experiment(experiment, tuple(set_ or ()))
    if spec.search is None:
        raise UserError(f"{experiment} has no `search`; write one, or start it with `mtlscale run {experiment}`")
    console = _console()
    if dry_run:
        _print_sweep_plan(console, make_plan(spec, home=_home(home, storage), source=source, download=download))
        return
    started = time.perf_counter()
    place = _home(home, storage)
    with _Progress(console, spec) as observer:
        found = run_sweep(spec, home=place, source=source, address=address, download=download, observer=observer)
    console.print(found.to_rich())
    for path in found.write_report().values():
        console.print(f"  {path}", soft_wrap=True, highlight=False)
    trials = [record for records in found.trials.values() for record in records]
    console.print(f"{len(trials)} trials, {time.perf_counter() - started:.0f} s")
    if any(record.status == "failed" for record in trials):
        raise typer.Exit(1)


def _print_sweep_plan(console: Any, plan: Any) -> None:
    """The trials of a search: how many of each method, over what, and how they are executed."""
    from rich.table import Table

    from mtlscale.search import space_of

    table = Table("dataset", "method", "trials", "done", "searched", title=plan.plan.experiment.name)
    for base in plan.bases:
        trials = plan.of(base)
        done = sum(planned.state == "done" for planned in trials)
        budget = plan.search.budget if plan.search.adaptive else len(trials)
        names = ", ".join(path.rpartition(".")[2] for path in space_of(plan.search, base))
        table.add_row(base.dataset, base.method, str(budget), str(done), names)
    console.print(table)
    for line in plan.explain():
        console.print(line, soft_wrap=True, highlight=False)


def _print_plan(console: Any, plan: Plan) -> None:
    from rich.table import Table

    table = Table("dataset", "method", "seed", "run", "epochs", "steps", "state", title=plan.experiment.name)
    for planned in plan.runs:
        run = planned.run
        table.add_row(
            run.dataset,
            run.method,
            str(run.seed),
            run.run_id,
            str(run.training.epochs),
            str(plan.steps(run)),
            planned.state,
        )
    console.print(table)
    states = [planned.state for planned in plan.runs]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("done", "resume", "retry", "new") if s in states)
    resources = plan.experiment.resources
    console.print(
        f"{len(plan.runs)} runs: {counts}; each on {resources.workers} × "
        f"({resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU)"
    )


class _Progress:
    """One bar over the epochs of all runs, with the time left, and a line for every run that ends."""

    def __init__(self, console: Any, experiment: Experiment) -> None:
        self._console = console
        self._bar = epochs_bar(console)
        self._name = experiment.name
        self._task: Any = None
        self._left: dict[str, int] = {}
        self._done = self._runs = 0
        self._told = float("-inf")
        self._what = "runs"

    def __enter__(self) -> _Progress:
        self._status = self._console.status("preparing data")
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._bar.stop()

    def prepared(self, dataset: str, folder: Path) -> None:
        self._status.update("starting Ray")

    def searching(self, plan: SweepPlan, slots: int) -> None:
        """Trials pass too quickly for a line each: one for every new best of a method."""
        self._status.stop()
        done = len(plan.records())
        if done:
            self._console.print(f"{done} of {plan.total} trials are done already")
        for line in plan.explain():
            self._console.print(line, soft_wrap=True, highlight=False)
        self._best: dict[tuple[str, str], Any] = {}
        for record in plan.records().values():
            self._is_best(record, plan.score(record))
        epochs = {(base.dataset, base.method): base.training.epochs for base in plan.bases}
        self._left = {p.run.run_id: p.run.training.epochs for p in plan.plan.todo}
        self._done, self._runs, self._what = done, plan.total, "trials"
        new = plan.total - done - len(self._left)
        total = sum(self._left.values()) + new * (sum(epochs.values()) // len(epochs))
        self._task = self._bar.add_task(self._label(), total=total)
        self._bar.start()

    def _is_best(self, record: RunRecord, score: Any) -> bool:
        key = (record.dataset, record.method)
        if score is None or (key in self._best and score <= self._best[key]):
            return False
        self._best[key] = score
        return True

    def advanced(self, run: Run, epoch: int) -> None:
        self._advance(run, run.training.epochs - epoch)

    def trial(self, run: Run, record: RunRecord, score: Any) -> None:
        from mtlscale.report.sweeps import words

        self._done += 1
        self._advance(run, 0)
        name = f"  {run.dataset} · {run.method}"
        if record.status == "failed":
            self._console.print(f"{name}  [red]failed[/red] with {words(run.trial)}: {record.error}", highlight=False)
        elif self._is_best(record, score):
            self._console.print(f"{name}  best so far {score[0]:8.4g}  {words(run.trial)}", highlight=False)

    def planned(self, plan: Plan, slots: int) -> None:
        self._status.stop()
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._done, self._what = 0, "runs"
        done = len(plan.runs) - len(plan.todo)
        if done:
            self._console.print(f"{done} of {len(plan.runs)} runs are done already")
        if not plan.todo:
            return
        self._left = {p.run.run_id: p.run.training.epochs for p in plan.todo}
        self._runs = len(plan.todo)
        self._console.print(f"{self._name}: {self._runs} runs, {slots} at a time")
        self._task = self._bar.add_task(self._label(), total=sum(self._left.values()))
        self._bar.start()

    def _label(self) -> str:
        return f"{self._name} {self._done}/{self._runs} {self._what}"

    def _advance(self, run: Run, left: int) -> None:
        before = self._left.get(run.run_id, run.training.epochs)
        self._left[run.run_id] = left
        self._bar.update(self._task, advance=max(0, before - left), description=self._label())
        self._tell()

    def _tell(self) -> None:
        """In a job, the bar as a line for whoever follows its log."""
        now = time.monotonic()
        if os.environ.get("MTLSCALE_PROGRESS") == "lines" and now - self._told >= _TELL_SECONDS:
            from mtlscale.progress import Progress

            self._told = now
            task = self._bar.tasks[-1]
            print(Progress(int(task.completed), int(task.total or 0), self._done, self._runs), flush=True)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        self._advance(run, run.training.epochs - epoch.epoch)

    def finished(self, run: Run, record: RunRecord) -> None:
        self._done += 1
        self._advance(run, 0)
        if record.status == "finished":
            tasks = record.metrics["test"]
            mean = sum(tasks[t][m] for t, m in record.main_metrics.items()) / len(tasks)
            text = f"{mean:8.2f}  {record.seconds:6.1f} s"
        else:
            text = f"[red]{record.status}[/red]: {record.error}"
        self._console.print(f"  {run.dataset} · {run.method} · seed {run.seed}  {text}", highlight=False)

    def note(self, text: str) -> None:
        self._console.print(f"[yellow]{text}[/yellow]", soft_wrap=True)


def _print_results(console: Any, results: Results, files: dict[str, Path]) -> None:
    console.print(results.leaderboard().to_rich())
    for path in dict.fromkeys(file if file.parent == results.folder else file.parent for file in files.values()):
        console.print(f"  {path}", soft_wrap=True, highlight=False)


@app.command(epilog="Example: mtlscale leaderboard quickstart --format markdown")
def leaderboard(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    format: Annotated[str, typer.Option("--format", help="table, markdown or csv")] = "table",
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Compare the methods of an experiment on the runs there are."""
    results = _results(experiment, set_, home, epochs=format == "table")
    board = results.leaderboard()
    if format == "markdown":
        print(board.to_markdown())
    elif format == "csv":
        print(board.to_csv(), end="")
    elif format == "table":
        _print_results(_console(), results, results.write_report())
    else:
        raise UserError(f"--format {format}: choose table, markdown or csv")


@app.command(epilog="Example: mtlscale report quickstart")
def report(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment")],
    set_: SetOption = None,
    home: HomeOption = None,
) -> None:
    """Write the page, tables and pictures of the runs there are, and say where they are."""
    for path in _results(experiment, set_, home).write_report().values():
        print(path)


def _results(experiment: str, set_: list[str] | None, home: Path | None, *, epochs: bool = True) -> Results:
    """The finished runs of an experiment; `UserError` where there are none."""
    from mtlscale.execution.plan import records_of
    from mtlscale.experiment import load_experiment
    from mtlscale.results import Results

    spec = load_experiment(experiment, tuple(set_ or ()))
    place = _home(home)
    records = records_of(spec, place, epochs=epochs)
    if not records:
        raise UserError(
            f"no runs of {spec.name} in {place.root}; start them with `mtlscale run {experiment}` or name their --home"
        )
    return Results(spec, records, place.experiment(spec.name))


@app.command(epilog="Example: mtlscale doctor --address 127.0.0.1:6379")
def doctor(
    home: HomeOption = None,
    address: Annotated[str | None, typer.Option(help="Also try this Ray cluster")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="Also try this MLflow server")] = None,
) -> None:
    """Check what mtlscale needs on this machine, and say how to mend what is missing."""
    from rich.table import Table

    from mtlscale.doctor import examine

    table = Table("", "what", "found", "mend", title="mtlscale doctor")
    signs = {"ok": "[green]✓[/green]", "note": "[yellow]·[/yellow]", "bad": "[red]✗[/red]"}
    findings = examine(_home(home), address, tracking_uri)
    for finding in findings:
        table.add_row(signs[finding.level], finding.what, finding.found, finding.mend)
    _console().print(table)
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


cluster_cli.register(app)


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


if __name__ == "__main__":
    main()
