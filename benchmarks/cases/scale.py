"""The driver's share of a very large experiment: planning, events, ledger, leaderboard, MLflow, without training.

    python benchmarks/run.py scale                            # 100,000 runs on 1,000 workers, simulated
    python benchmarks/run.py scale --runs 10000 --mlflow-runs 500

Real planner, ledger, leaderboard and MLflow writer (SQLite); the workers are simulated: each takes the next run, tells
its epochs and its record, and 1,000 of them overlap. Every part runs in a process of its own, whose largest resident
size is its memory. MLflow is written for the first `--mlflow-runs` alone, in two halves, whose costs show whether the
cost per run grows. Targets are held against CPU time, which other work on the machine does not lengthen; the last part
alone runs in real time.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Sheet, apart, say

DATASETS, SEEDS, EPOCHS = 10, 20, 5
TARGETS: dict[str, dict[str, float]] = {  # part -> what it may take at 100,000 runs
    "plan": {"cpu": 30, "mb": 1536},
    "plan again, all done": {"cpu": 30, "mb": 1536},
    "events and ledger": {"cpu_ms": 5},
    "status": {"cpu": 20},
    "leaderboard": {"cpu": 20},
    "MLflow, at a run's end": {"cpu_ms": 100},
    "MLflow, followed": {"cpu_ms": 400},
    "at the workers' pace": {"lag": 1},
}
UNITS = {"cpu": "CPU s", "mb": "MB", "cpu_ms": "CPU ms a run", "lag": "s behind"}


def experiment_of(runs: int) -> Any:
    """`runs` runs: 10 data sets × methods × 20 seeds; methods differ in their learning rate."""
    from mtlscale.config import Experiment

    methods = max(2, runs // (DATASETS * SEEDS))
    rates = [
        {"label": f"m{n}", "balancer": "mgda", "training": {"lr": 1e-3 * (1 + n / methods)}} for n in range(methods)
    ]
    return Experiment.model_validate(
        {
            "name": "scale",
            "datasets": [{"name": "digits", "label": f"digits{n}"} for n in range(DATASETS)],
            "floors": [],
            "methods": [{"label": "stl", "architecture": "stl"}, {"label": "equal"}, *rates[2:]],
            "seeds": list(range(SEEDS)),
            "training": {"epochs": EPOCHS},
        }
    )


def data_of(experiment: Any, home: Path) -> Any:
    """Ten names for the same prepared digits."""
    from mtlscale.data.readers.prepared import read_manifest
    from mtlscale.execution.planning.plan import Datasets
    from mtlscale.execution.preparing.prepare import prepare

    folder = prepare("digits", {}, None, home, engine="local")
    manifest = read_manifest(folder)
    names = list(experiment.data())
    manifests = {name: manifest.model_copy(update={"fingerprint": f"{manifest.fingerprint}{name}"}) for name in names}
    return Datasets(dict.fromkeys(names, folder), manifests)


def plan(home: Path, runs: int) -> dict[str, Any]:
    from mtlscale.execution.planning.plan import make_plan
    from mtlscale.records import Home

    experiment, place = experiment_of(runs), Home(home)
    data = data_of(experiment, home)
    started = time.perf_counter()
    ledger = place.ledger(experiment.name)
    found = make_plan(experiment, experiment.runs(data.fingerprints), ledger, place, data)
    seconds = time.perf_counter() - started
    wanted = len(found.board.wanted)
    return {"seconds": seconds, "runs": wanted, "done": wanted - len(found.board.missing)}


def events(planned: Any, workers: int) -> Iterator[Any]:
    """What that many workers tell: a run's epochs, then its record, interleaved by simulated time."""
    return (event for _, event in timed_events(planned, workers))


def timed_events(planned: Any, workers: int) -> Iterator[tuple[float, Any]]:
    """The same with the moment; an epoch takes a second on average."""
    from mtlscale.records.events import EpochEnded, RunEnded

    rng = random.Random(0)
    queue = iter([one.run for one in planned.board.wanted])
    heap: list[tuple[float, int, Any, int]] = []
    for number in range(workers):
        run = next(queue, None)
        if run is not None:
            heapq.heappush(heap, (rng.expovariate(1), number, run, 1))
    while heap:
        now, number, run, epoch = heapq.heappop(heap)
        if epoch <= EPOCHS:
            yield now, EpochEnded(run.run_id, epoch_of(epoch, rng))
            heapq.heappush(heap, (now + rng.expovariate(1), number, run, epoch + 1))
            continue
        yield now, RunEnded(run.run_id, record_of(run, rng))
        if (following := next(queue, None)) is not None:
            heapq.heappush(heap, (now + rng.expovariate(1), number, following, 1))


def _tasks() -> list[str]:
    return [f"digit{n}" for n in range(10)]


def epoch_of(number: int, rng: random.Random) -> Any:
    from mtlscale.records import Epoch

    losses = {task: rng.random() for task in _tasks()}
    val = {task: {"accuracy": 50 + 40 * rng.random()} for task in _tasks()}
    return Epoch.model_construct(epoch=number, train_loss=losses, val=val, seconds=0.1, weights=dict(losses), traces={})


def record_of(run: Any, rng: random.Random) -> Any:
    from mtlscale.records import RunRecord

    metrics = {task: {"accuracy": 50 + 40 * rng.random()} for task in _tasks()}
    return RunRecord.model_construct(
        run_id=run.run_id,
        experiment=run.experiment,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        trial=run.trial,
        status="finished",
        spec=run.spec,
        fingerprint=run.fingerprint,
        higher_is_better={"accuracy": True},
        main_metrics=dict.fromkeys(_tasks(), "accuracy"),
        metrics={"train": metrics, "val": metrics, "test": metrics},
        last={"test": metrics},
        chosen_epoch=EPOCHS,
        epochs=[epoch_of(number, rng) for number in range(1, EPOCHS + 1)],
        seconds=1.0,
        train_seconds=1.0,
        steps=100,
        samples=10_000,
        finished="2026-01-01T00:00:00+00:00",
    )


def record(home: Path, runs: int, workers: int) -> dict[str, Any]:
    """Everything the driver does with an event but MLflow, whose writer has a thread of its own."""
    from mtlscale.execution.following import follow
    from mtlscale.execution.monitoring import Log
    from mtlscale.execution.planning.plan import make_plan
    from mtlscale.execution.sinks import Sinks
    from mtlscale.records import Home
    from mtlscale.records.events import Closed

    experiment, place = experiment_of(runs), Home(home)
    data = data_of(experiment, home)
    planned = make_plan(experiment, experiment.runs(data.fingerprints), place.ledger("scale"), place, data)
    made, count = {"seconds": 0.0, "busy": 0.0}, itertools.count()

    def coming() -> Iterator[Any]:
        """The events; making one is the workers' work, not the driver's."""
        came = events(planned, workers)
        while True:
            began, cpu = time.perf_counter(), time.process_time()
            event = next(came, None)
            made["seconds"] += time.perf_counter() - began
            made["busy"] += time.process_time() - cpu
            if event is None:
                return
            next(count)
            yield event

    runs, sinks = len(planned.todo), Sinks(Log("scale", place))
    began, cpu = time.perf_counter(), time.process_time()
    follow(coming(), planned.board, place, sinks, lambda: None)
    spent, busy = time.perf_counter() - began - made["seconds"], time.process_time() - cpu - made["busy"]
    sinks.take(Closed("FINISHED"))
    size = place.ledger("scale").stat().st_size
    return {"seconds": spent, "busy": busy, "runs": runs, "events": next(count), "ledger_mb": size / 2**20}


def status(home: Path, runs: int) -> dict[str, Any]:
    """What `mtlscale status` counts."""
    from mtlscale.execution.planning.status import experiment_counts
    from mtlscale.records import Home

    started = time.perf_counter()
    counts = experiment_counts(Home(home))["scale"]
    return {"seconds": time.perf_counter() - started, "runs": counts.total}


def leaderboard(home: Path, runs: int) -> dict[str, Any]:
    from mtlscale.execution.finding.own_board import own_board
    from mtlscale.records import Home
    from mtlscale.report.results import Results

    place = Home(home)
    experiment = experiment_of(runs)
    fingerprints = data_of(experiment, home).fingerprints
    started = time.perf_counter()
    records = own_board(experiment, place, fingerprints).records  # as `mtlscale leaderboard --format markdown` does
    read = time.perf_counter() - started
    board = Results(experiment, records, place.experiment("scale")).leaderboard()
    text = board.to_markdown()
    return {"seconds": time.perf_counter() - started, "runs": len(records), "reading": read, "characters": len(text)}


def mlflow(home: Path, runs: int, followed: bool) -> dict[str, Any]:
    """A run's whole cost in MLflow, its record's file among it. `followed`: begun, then each epoch, then the end."""
    from mtlscale.records import Home, write_atomically
    from mtlscale.tracking import Writer

    name = "followed" if followed else "at-end"
    experiment, place = experiment_of(100 * DATASETS * SEEDS), Home(home / name)
    data, rng = data_of(experiment, home / name), random.Random(0)
    writer = Writer(experiment, place)
    writer.connect()
    halves, busy = [0.0, 0.0], 0.0
    todo = list(itertools.islice(experiment.runs(data.fingerprints), runs))
    for number, run in enumerate(todo):
        content = record_of(run, rng)
        write_atomically(place.run(run.run_id) / "record.json", content.model_dump_json().encode())
        followed_epochs = content.epochs if followed else []
        began, cpu = time.perf_counter(), time.process_time()
        for epoch in followed_epochs:
            writer.write(run, [epoch])
        writer.write(run, record=content)
        halves[2 * number // runs] += time.perf_counter() - began
        busy += time.process_time() - cpu
    per_run = [1e3 * seconds / (runs / 2) for seconds in halves]
    return {
        "seconds": sum(halves),
        "runs": runs,
        "busy": busy,
        "first_half_ms": per_run[0],
        "second_half_ms": per_run[1],
    }


def pace(home: Path, workers: int, seconds: float) -> dict[str, Any]:
    """Events as they come from workers with an epoch a second each, in real time, MLflow's writer beside it."""
    from mtlscale.execution.following import follow
    from mtlscale.execution.monitoring import Log
    from mtlscale.execution.planning.plan import make_plan
    from mtlscale.execution.sinks import Sinks
    from mtlscale.records import Home
    from mtlscale.tracking import Tracker

    place = Home(home / "pace")
    experiment = experiment_of(round(4 * workers * seconds / EPOCHS))
    data = data_of(experiment, place.root)
    planned = make_plan(experiment, experiment.runs(data.fingerprints), place.ledger("scale"), place, data)
    tracker = Tracker(experiment, place)
    came = timed_events(planned, workers)
    ready = list(itertools.takewhile(lambda event: event[0] <= seconds, came))  # made before: it is the workers' work
    tracker._connected.result()  # MLflow makes its tables
    began, lag = time.perf_counter(), 0.0

    def coming() -> Iterator[Any]:
        """Each event at its moment; the next is asked for when the driver is done with it."""
        nonlocal lag
        for moment, event in ready:
            time.sleep(max(0.0, began + moment - time.perf_counter()))
            yield event
            lag = max(lag, time.perf_counter() - began - moment)

    own = time.thread_time()
    follow(coming(), planned.board, place, Sinks(Log("scale", place), tracker), lambda: None)
    last, own = time.perf_counter() - began - seconds, time.thread_time() - own
    ended = sum(hasattr(event, "record") for _, event in ready)
    left, closing = tracker.left, time.perf_counter()
    error = tracker.close("FINISHED")
    return {
        "seconds": seconds + max(0.0, last),
        "runs": ended,
        "events": len(ready),
        "events_per_second": len(ready) / (seconds + max(0.0, last)),
        "events_per_cpu_second": len(ready) / own,
        "lag": max(0.0, last),
        "largest_lag": lag,
        "mlflow_left": left,
        "mlflow_catches_up_s": time.perf_counter() - closing,
        "mlflow_error": error,
    }


def measured(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """In a process of its own: a part, with its CPU time and its memory."""
    before = time.process_time()
    result = work(*arguments)
    cpu = result.pop("busy", time.process_time() - before)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**result, "mb": memory, "cpu": cpu, "cpu_ms": 1e3 * cpu / max(1, result["runs"])}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--mlflow-runs", type=int, default=200)
    parser.add_argument("--pace-seconds", type=float, default=20.0, help="of the part in real time")
    parser.add_argument("--folder", type=Path, help="keep the files here")


QUICK = {"runs": 1000, "workers": 50, "mlflow_runs": 4, "pace_seconds": 3.0}


def run(options: argparse.Namespace) -> bool:
    home = options.folder or Path(tempfile.mkdtemp(prefix="mtlscale-"))
    columns = ("part", "runs", "seconds", "CPU s", "CPU ms a run", "MB", "target", "")
    sheet, paced, good = Sheet("the driver's cost", *columns), dict[str, Any](), True
    try:
        for name, work, arguments in (
            ("plan", plan, (home, options.runs)),
            ("events and ledger", record, (home, options.runs, options.workers)),
            ("plan again, all done", plan, (home, options.runs)),
            ("status", status, (home, options.runs)),
            ("leaderboard", leaderboard, (home, options.runs)),
            ("MLflow, at a run's end", mlflow, (home, options.mlflow_runs, False)),
            ("MLflow, followed", mlflow, (home, options.mlflow_runs, True)),
            ("at the workers' pace", pace, (home, options.workers, options.pace_seconds)),
        ):
            paced = part = apart(measured, work, *arguments)
            told = ", ".join(f"≤ {most:g} {UNITS[what]}" for what, most in TARGETS[name].items())
            met = all(part[what] <= most for what, most in TARGETS[name].items())
            good &= met
            numbers = (part["runs"], part["seconds"], part["cpu"], part["cpu_ms"], part["mb"])
            sheet.row(name, *numbers, told, "met" if met else "MISSED")
    finally:
        if options.folder is None:
            shutil.rmtree(home, ignore_errors=True)
    sheet.show()
    say(
        f"{options.workers:,} workers with an epoch a second: {paced['events_per_second']:,.0f} events a second taken "
        f"(and {paced['events_per_cpu_second']:,.0f} in a second of CPU time), {paced['lag']:.2f} s behind at the end, "
        f"{paced['largest_lag']:.2f} s at worst; MLflow then lacked {paced['mlflow_left']:,} of {paced['runs']:,} runs "
        f"and had them {paced['mlflow_catches_up_s']:.0f} s later",
        **paced,
    )
    return good
