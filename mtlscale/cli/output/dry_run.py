"""The output of a dry run: runs or trials, their states, and what they will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mtlscale.cli.output.grid import grid
from mtlscale.config import space_of
from mtlscale.data.quality_warnings import left_out
from mtlscale.execution.planning.reader_report import reading
from mtlscale.execution.rehearsal.forecast import counts_of_trials
from mtlscale.execution.tuning.sweep import SweepPlan
from mtlscale.report.cells.number_format import counted

if TYPE_CHECKING:
    from rich.console import Console

    from mtlscale.config import Run
    from mtlscale.execution.planning.plan import Plan
    from mtlscale.execution.rehearsal.dry_run import DryRun
    from mtlscale.execution.rehearsal.forecast import Forecast, Forecasts
    from mtlscale.records import Wanted

Counts = tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]  # of a search's trials, and of those done

_STATES = ("done", "resume", "retry", "new")


def show(console: Console, sketch: DryRun, forecasts: Forecasts) -> None:
    """Print a dry run on a terminal."""
    if sketch.experiment.search is None:
        _runs(console, sketch)
    else:
        _trials(console, sketch)
    for line in left_out(sketch.experiment):
        console.print(line, highlight=False)
    for dataset, reason in sketch.why.items():
        console.print(f"{dataset}: {reason}; ids, sizes and steps are unknown until it is prepared", highlight=False)
    for line in sketch.remarks:
        console.print(line, highlight=False)
    if sketch.lacking:
        console.print(f"it cannot run here: {sketch.lacking}", style="yellow", highlight=False)
    _forecasts(console, forecasts)


def as_json(sketch: DryRun, forecasts: Forecasts) -> dict[str, Any]:
    """Return a dry run as JSON, for programs."""
    experiment, plan = sketch.experiment, sketch.plan_on_data
    content: dict[str, Any] = {"experiment": experiment.name}

    if isinstance(plan, SweepPlan) or (plan is None and experiment.search is not None):
        bases = [*(plan.bases if plan is not None else ()), *sketch.unknown]
        counts = counts_of_trials(plan) if plan is not None else None
        content["searches"] = [_search(sketch, base, counts) for base in bases]
        content["execution"] = [] if plan is None else plan.explain()
    else:
        content["runs"] = [] if plan is None else [_run(planned_run, plan) for planned_run in plan.board.wanted]
        content["runs"] += map(_unknown, sketch.unknown)

    if sketch.plan is not None:
        content["samples"] = {name: manifest.counts for name, manifest in sketch.plan.data.manifests.items()}
        content["reading"] = dict(reading(sketch.plan))
    content["unknown"] = dict(sketch.why)
    content["remarks"] = list(sketch.remarks)
    content["lacking"] = sketch.lacking
    content["estimates"] = [vars(row) for row in forecasts.rows]
    return content | {"seconds": forecasts.seconds, "complete": forecasts.complete, "slots": forecasts.slots}


def _run(wanted: Wanted, plan: Plan) -> dict[str, Any]:
    assert wanted.run is not None  # a plan has all of a run
    return {
        **_labels(wanted.run),
        "run": wanted.run_id,
        "steps": plan.steps(wanted.run),
        "state": plan.board.state(wanted),
        "like": wanted.same_as,
    }


def _unknown(run: Run) -> dict[str, Any]:
    return {**_labels(run), "run": None, "steps": None, "state": "unknown", "like": ""}


def _labels(run: Run) -> dict[str, Any]:
    return {"dataset": run.dataset, "method": run.method, "seed": run.seed, "epochs": run.epochs}


def _search(sketch: DryRun, base: Run, counts: Counts | None) -> dict[str, Any]:
    search = sketch.experiment.search
    assert search is not None
    trials, done_count = search.budget, 0
    if counts is not None and base.dataset not in sketch.why:
        planned, done = counts
        done_count = done[base.dataset, base.method]
        trials = trials if search.adaptive else planned[base.dataset, base.method]

    names = list(space_of(search, base))
    return {"dataset": base.dataset, "method": base.method, "trials": trials, "done": done_count, "searched": names}


def _runs(console: Console, sketch: DryRun) -> None:
    plan = sketch.plan
    headers = ("dataset", "method", "seed", "run", "epochs", "steps", "state")
    rows: list[tuple[object, ...]] = []
    for row in [] if plan is None else [_run(planned, plan) for planned in plan.board.wanted]:
        state = f"same as {row['like']}" if row["state"] == "same" else row["state"]
        steps = f"{row['steps']:,}"
        rows.append((row["dataset"], row["method"], row["seed"], row["run"], row["epochs"], steps, state))
    rows += [(run.dataset, run.method, run.seed, "?", run.epochs, "?", "?") for run in sketch.unknown]
    console.print(grid(headers, rows, title=sketch.experiment.name, right=("seed", "epochs", "steps")))

    states = [] if plan is None else [plan.board.state(planned) for planned in plan.board.wanted]
    counts = [f"{states.count(state)} {state}" for state in _STATES if state in states]
    counts += [f"{len(sketch.unknown)} unknown"] if sketch.unknown else []

    resources = sketch.experiment.resources
    total = len(sketch.unknown) + (0 if plan is None else len(plan.board.distinct))
    console.print(
        f"{counted(total, 'run')}: {', '.join(counts)}; each on {resources.workers} × "
        f"({resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU)",
        soft_wrap=True,
    )

    for line in () if plan is None else _sizes(plan):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _sizes(plan: Plan) -> Iterator[str]:
    for name, manifest in plan.data.manifests.items():
        counts = [manifest.counts[task.name] for task in manifest.suite.tasks]
        totals = (
            f"{sum(split_counts.get(split, 0) for split_counts in counts):,} {split}"
            for split in ("train", "val", "test")
        )
        tasks = f"{len(counts)} task{'s' * (len(counts) > 1)}"
        yield f"{name}: {tasks}, labels {', '.join(totals)}"
    for name, text in reading(plan):
        yield f"{name}: {text}"


def _trials(console: Console, sketch: DryRun) -> None:
    """Print the trials of a search: how many of each method, over what, and how they are executed."""
    headers, rows = ("dataset", "method", "trials", "done", "searched"), []
    plan = sketch.plan_on_data
    counts = counts_of_trials(plan) if isinstance(plan, SweepPlan) else None
    for base in [*(plan.bases if isinstance(plan, SweepPlan) else ()), *sketch.unknown]:
        search = _search(sketch, base, counts)
        names = ", ".join(path.rpartition(".")[2] for path in search["searched"])
        rows.append((base.dataset, base.method, search["trials"], search["done"], names))
    console.print(grid(headers, rows, title=sketch.experiment.name, right=("trials", "done")))

    for line in plan.explain() if isinstance(plan, SweepPlan) else ():
        console.print(line, soft_wrap=True, highlight=False, markup=False)


# -- what it will take -------------------------------------------------------------------------------------------------


def _forecasts(console: Console, forecasts: Forecasts) -> None:
    if not forecasts.rows:
        return
    if all(row.seconds is None and row.megabytes is None for row in forecasts.rows):
        console.print("time and memory: no estimate, as no runs like these are over in this home folder")
        return

    searched = any(row.winners for row in forecasts.rows)
    headers = ("dataset", "method", "trials + runs" if searched else "runs", "parameters", "each", "memory", "from")
    rows = []
    reasons: dict[str, int] = {}
    for row in forecasts.rows:
        count = f"{row.runs} + {row.winners}" if row.winners else row.runs
        cells = (row.dataset, row.method, count, _number(row.parameters), _time(row.seconds), _memory(row.megabytes))
        rows.append((*cells, reasons.setdefault(_from(row), len(reasons) + 1) if _from(row) else ""))
    console.print(grid(headers, rows, title="what is still to do will take about", right=headers[2:]))
    for reason, number in reasons.items():
        console.print(f"{number}  {reason}", highlight=False, markup=False)

    bound = "about" if forecasts.complete else "more than"
    total = f"{bound} {_time(forecasts.seconds)} with Ray's start and the report, {forecasts.slots} at a time here"
    if forecasts.batched:
        total += f"; less, since {forecasts.batched} of them are trained together"
    console.print(f"all together: {'unknown' if forecasts.seconds is None else total}", highlight=False)


def _from(row: Forecast) -> str:
    if row.time_from == row.memory_from:
        return row.time_from
    parts = (("time", row.time_from), ("memory", row.memory_from))
    return "; ".join(f"{quantity}: {text}" for quantity, text in parts if text)


def _number(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def _memory(megabytes: float | None) -> str:
    if megabytes is None:
        return "?"
    return f"{megabytes / 1024:.1f} GiB" if megabytes >= 1024 else f"{megabytes:.0f} MiB"
