"""The commands that run experiments and searches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import HomeOption, SetOption, SourceOption, StorageOption, WaitOption, console_of, home_of
from mtlscale.cli.progress import ExperimentBar
from mtlscale.cli.terminal import print_results
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.execution.plan import Plan
    from mtlscale.execution.sweep import SweepPlan


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(epilog="Example: mtlscale run quickstart --set seeds=[0] --set training.epochs=5")(run)
    app.command(epilog="Example: mtlscale sweep quickstart_sweep --set search.budget=8")(sweep)


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
    wait: WaitOption = True,
) -> None:
    """Run an experiment, its search first; what is finished is not run again, what was cut off resumes.

    Ctrl-C and SIGTERM end it in good order, and the same command resumes.
    """
    from mtlscale.execution.runner import plan as make_plan
    from mtlscale.execution.runner import run as run_experiment
    from mtlscale.spec import load_experiment

    spec = load_experiment(experiment, tuple(set_ or ()))
    console = console_of()
    if dry_run:
        _print(console, make_plan(spec, home=home_of(home, storage), source=source, address=address, download=download))
        return
    started = time.perf_counter()
    place = home_of(home, storage)
    with _interruptible(), ExperimentBar(console, spec) as observer:
        results = run_experiment(
            spec, home=place, source=source, address=address, download=download, observer=observer, wait=wait
        )
    if results.search is not None:
        console.print(results.search.to_rich())
    print_results(console, results, results.write_report())  # written by now: this only finds it
    console.print(f"{len(results.records)} runs, {time.perf_counter() - started:.0f} s")
    if any(record.status == "failed" for record in results.records):
        raise typer.Exit(1)


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
    wait: WaitOption = True,
) -> None:
    """Tune every method with the same budget; `mtlscale run` then trains the winners on fresh seeds."""
    from mtlscale.execution.runner import plan as make_plan
    from mtlscale.execution.runner import sweep as run_sweep
    from mtlscale.spec import load_experiment

    spec = load_experiment(experiment, tuple(set_ or ()))
    if spec.search is None:
        raise UserError(f"{experiment} has no `search`; write one, or start it with `mtlscale run {experiment}`")
    console = console_of()
    if dry_run:
        _print(console, make_plan(spec, home=home_of(home, storage), source=source, address=address, download=download))
        return
    started = time.perf_counter()
    place = home_of(home, storage)
    with _interruptible(), ExperimentBar(console, spec) as observer:
        found = run_sweep(
            spec, home=place, source=source, address=address, download=download, observer=observer, wait=wait
        )
    console.print(found.to_rich())
    for path in found.write_report().values():
        console.print(f"  {path}", soft_wrap=True, highlight=False)
    trials = [record for records in found.trials.values() for record in records]
    console.print(f"{len(trials)} trials, {time.perf_counter() - started:.0f} s")
    if any(record.status == "failed" for record in trials):
        raise typer.Exit(1)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM as one line and an exit status of their own; Typer would leave without a word."""
    from mtlscale.execution.stopping import Interrupted

    try:
        yield
    except Interrupted as stop:
        print(f"mtlscale: {stop}", file=sys.stderr)
        raise typer.Exit(stop.status) from None


def _print(console: Console, plan: Plan | SweepPlan) -> None:
    from mtlscale.execution.plan import Plan

    if isinstance(plan, Plan):
        _print_plan(console, plan)
    else:
        _print_sweep_plan(console, plan)


def _print_sweep_plan(console: Console, plan: SweepPlan) -> None:
    """The trials of a search: how many of each method, over what, and how they are executed."""
    from rich.table import Table

    from mtlscale.spec import space_of

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


def _print_plan(console: Console, plan: Plan) -> None:
    from rich.table import Table

    from mtlscale.execution.reading import reading

    table = Table("dataset", "method", "seed", "run", "epochs", "steps", "state", title=plan.experiment.name)
    for planned in plan.runs:
        run = planned.run
        table.add_row(
            run.dataset,
            run.method,
            str(run.seed),
            run.run_id,
            str(run.epochs),
            str(plan.steps(run)),
            f"same as {planned.like}" if planned.state == "same" else planned.state,
        )
    console.print(table)
    states = [planned.state for planned in plan.runs]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("done", "resume", "retry", "new") if s in states)
    resources = plan.experiment.resources
    console.print(
        f"{plan.distinct} runs: {counts}; each on {resources.workers} × "
        f"({resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU)"
    )
    for name, text in reading(plan):
        console.print(f"{name}: {text}", soft_wrap=True, highlight=False)
