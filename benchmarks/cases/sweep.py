"""Trials per minute: batched trials beside Ray Tune, the same trials in one run, and whether all find the same.

    python benchmarks/run.py sweep --problem digits                   # hard parameter sharing, 10 tasks
    python benchmarks/run.py sweep --problem school --source DIR      # TOMATO-ex, 139 tasks
    python benchmarks/run.py sweep --problem digits --device cuda --trials 256 --only batched
    python benchmarks/run.py sweep --trials 1000 --epochs 1 --only actors planned    # what a trial through Tune costs

(a) Tune with a function, a new process per trial; (b) Tune with a class and reused actors; then this project's own:
(c) `actors`, one run after the other on warm actors; (d) `planned`, the same as trials of Tune, which is how a random
or a grid search runs; (e) `batched`, as many batches as workers, as trials of Tune. All have the same number of workers
with one CPU each, on a Ray that is up. Times are wall clock from the first trial's start to the last record, with what
a first trial has to import. Scores are compared trial by trial. Memory is the largest resident size of one worker.
(a) and (b) may be measured on the first trials alone (`--tune-trials`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Sheet, say, timed

from mtlscale.config import Experiment, ResourceSpec, Run, trials
from mtlscale.execution import ActorStart, Batched, Job, Options, execute_jobs
from mtlscale.execution.cluster import cluster
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.tuning.planned_search import execute_planned
from mtlscale.records import score
from mtlscale.records.events import RunEnded

PROBLEMS: dict[str, dict[str, Any]] = {
    "digits": {
        "datasets": ["digits"],
        "methods": ["equal"],
        "model": {"encoder": {"name": "mlp", "hidden": [64]}},
        "training": {"epochs": 40, "batch_size": 32},
        "search": {
            "space": {
                "training.lr": {"low": 1e-4, "high": 3e-2, "scale": "log"},
                "training.weight_decay": {"low": 1e-6, "high": 1e-2, "scale": "log"},
            }
        },
    },
    "school": {
        "datasets": ["school"],
        "methods": [{"name": "tomato_ex", "architecture": {"name": "tomato", "topics": 4, "top": 16}}],
        "model": {"encoder": {"name": "mlp", "hidden": [32]}},
        "training": {"epochs": 100, "batch_size": 512, "optimizer": "sgd", "schedule": "exponential"},
        "search": {
            "space": {"training.lr": {"low": 1e-3, "high": 1e-1, "scale": "log"}},
            "methods": {"tomato_ex": {"objective.strength": {"low": 1e-5, "high": 1e-1, "scale": "log"}}},
        },
    },
}

WAYS = ("function", "class", "actors", "planned", "batched")
Scores = dict[str, float]  # run_id -> validation score


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", choices=PROBLEMS, default="digits")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--tune-trials", type=int, default=8)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)


QUICK = {"trials": 4, "tune_trials": 1, "epochs": 2, "workers": 1}


def run(options: argparse.Namespace) -> None:
    home = options.home or Path(tempfile.mkdtemp())
    runs, data = _trials(options, home)
    gpu = 1.0 if options.device == "cuda" else 0.0
    workers = 1 if gpu else options.workers
    resources = ResourceSpec(gpus_per_worker=gpu)
    few = runs[: options.tune_trials]
    ways: dict[str, Callable[[], tuple[Scores, float]]] = {
        "function": lambda: _tune(few, data, workers, gpu, home, reuse=False),
        "class": lambda: _tune(few, data, workers, gpu, home, reuse=True),
        "actors": lambda: _jobs(runs, data, workers, resources, "actors"),
        "planned": lambda: _jobs(runs, data, workers, resources, "planned"),
        "batched": lambda: _jobs(runs, data, workers, resources, "batched"),
    }
    with cluster.session():
        found = {name: timed(way) for name, way in ways.items() if name in options.only}
    if options.home is None:
        shutil.rmtree(home)

    sheet = Sheet(options.problem, "executor", "trials", "seconds", "ms a trial", "trials/min", "MB")
    for name, (seconds, (scores, memory)) in found.items():
        each = seconds / len(scores)
        sheet.row(name, len(scores), f"{seconds:.1f}", round(1e3 * each), round(60 / each), round(memory))
    sheet.show()
    *others, last = found
    for name in others:
        values = found[last][1][0]
        off = max(abs(values[run_id] - value) for run_id, value in found[name][1][0].items())
        say(f"largest difference in the score of a trial, {last} against {name}: {off:.2g}", off=off)


def _trials(arguments: argparse.Namespace, home: Path) -> tuple[list[Run], Path]:
    content = {"name": "benchmark", "seeds": [0], **PROBLEMS[arguments.problem]}
    content["search"] = {**content["search"], "budget": arguments.trials}
    if arguments.epochs:
        content["training"] = {**content["training"], "epochs": arguments.epochs}
    experiment = Experiment.model_validate(content)
    experiment.validate_components()
    assert experiment.search is not None
    dataset = experiment.datasets[0]
    data = prepare(dataset.name, dataset.options, arguments.source, home)
    from mtlscale.data.readers.prepared import read_manifest

    (base,) = experiment.bases(dict.fromkeys(experiment.data(), read_manifest(data).fingerprint))
    return trials(experiment.search, base), data


def _jobs(runs: list[Run], data: Path, workers: int, resources: ResourceSpec, way: str) -> tuple[Scores, float]:
    from mtlscale.batched.eligibility import planning

    folder, options = Path(tempfile.mkdtemp()), Options(resources, models=False)
    jobs: list[Job | Batched] = [Job(run, data, folder / run.run_id) for run in runs]
    if way == "batched":
        parts = [part for group in planning.groups(runs) for part in planning.shares(group, -(-len(runs) // workers))]
        jobs = [Batched(tuple(Job(run, data, folder / run.run_id) for run in part)) for part in parts]

    if way == "actors":
        events = execute_jobs(jobs, workers, options, ActorStart(options, "benchmark"))
    else:
        events = execute_planned(jobs, workers, options, folder / "tune", None)
    records = [event.record for event in events if isinstance(event, RunEnded)]
    shutil.rmtree(folder)
    values = {record.run_id: score(record) for record in records}
    return {k: v[0] for k, v in values.items() if v is not None}, max(record.peak_memory_mb for record in records)


def _tune(runs: list[Run], data: Path, workers: int, gpu: float, home: Path, *, reuse: bool) -> tuple[Scores, float]:
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    from ray import tune

    def train_one(index: int) -> dict[str, Any]:
        from mtlscale.execution import read_data
        from mtlscale.execution.workers import worker
        from mtlscale.training import train

        worker.setup(1, [])
        record = train(runs[index], read_data(data), device="cuda" if gpu else "cpu")
        value = score(record)
        assert value is not None
        return {"run_id": record.run_id, "score": value[0], "memory": record.peak_memory_mb}

    def function(config: dict[str, Any]) -> None:
        tune.report(train_one(config["index"]))

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.index = config["index"]

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.index = new_config["index"]
            return True

        def step(self) -> dict[str, Any]:
            return {**train_one(self.index), "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Tune asks for one at the end of a trial; there is nothing to keep."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """A reused actor starts anew."""

    tuner = tune.Tuner(
        tune.with_resources(Trial if reuse else function, {"cpu": 1, "gpu": gpu}),
        param_space={"index": tune.grid_search(list(range(len(runs))))},
        tune_config=tune.TuneConfig(metric="score", mode="max", reuse_actors=reuse, max_concurrent_trials=workers),
        run_config=tune.RunConfig(name="class" if reuse else "function", storage_path=str(home / "tune"), verbose=0),
    )
    metrics = [result.metrics or {} for result in tuner.fit()]
    return {m["run_id"]: m["score"] for m in metrics}, max(m["memory"] for m in metrics)
