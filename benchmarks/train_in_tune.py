"""A search whose trials have two workers each: plain actors, as it is, against Ray Train below Ray Tune.

    python benchmarks/train_in_tune.py                          # four trials a side, each side twice, in turns
    python benchmarks/train_in_tune.py --epochs 400 --repeats 3

The same search (Optuna, trials one after the other, digits) through the same trainable and callbacks of Ray Tune. The
sides differ in what trains the trials:

    actors       `WorkerGroup`: warm actors in the trial's placement group, as `mtlscale sweep` runs them
    train        a `TorchTrainer` for every trial, as Ray's manual has it
    train, kept  one `TorchTrainer` for all trials that a place of Tune's takes, fed from a queue

Seconds of a trial beside those that it trains: of the first one, which starts everything, and of those that follow;
and what a trial that trains for 30 seconds then takes, over what it takes with `actors`, which should not exceed 1.05.
All sides must end with the same scores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SIDES = ("actors", "train", "train, kept")
WORKERS = 2
TARGET, USUAL = 1.05, 30.0  # seconds of a usual trial


class TrialQueue:
    """What stands between a trainable of Tune and the worker group of Ray Train that trains for it."""

    def __init__(self) -> None:
        self._jobs: deque[Any] = deque()
        self._events: deque[Any] = deque()
        self._changed = threading.Condition()

    def put(self, *jobs: Any) -> None:
        with self._changed:
            self._jobs += jobs
            self._changed.notify_all()

    def take(self, group: str) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs)
            return self._jobs.popleft()

    def report(self, group: str, event: Any) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def next(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._events)
            return self._events.popleft()

    def begin(self, group: str, *handles: Any) -> tuple[None, bool]:
        return None, True

    def place(self, group: str, handle: Any) -> None:
        pass

    def enter(self, group: str, location: Any) -> None:
        pass

    def complain(self, group: str, text: str) -> None:
        print(f"a worker of {group} died: {text}", file=sys.stderr, flush=True)


class TrainGroup:
    """The workers of a trial as a worker group of Ray Train, in place of `WorkerGroup`."""

    keep = False

    def __init__(self, options: Any, plugins: Any) -> None:
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        self._options, self._plugins, self._queue, self._number = options, plugins, None, 0
        if self.keep:
            self._start()

    def _start(self) -> None:
        import ray
        from ray.train import CheckpointConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        from mtlscale.execution.placement import needs
        from mtlscale.execution.workers.group import _SETTINGS, _run_worker
        from mtlscale.execution.workers.loopback import torch_config

        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        self._number += 1
        name = f"trial-{os.getpid()}-{self._number}"
        self._queue = ray.remote(num_cpus=0, max_concurrency=8)(TrialQueue).remote()
        config = {"queue": self._queue, "name": name, "plugins": self._plugins, "options": self._options}
        trainer = TorchTrainer(
            _run_worker,
            train_loop_config=config,
            torch_config=torch_config(False),
            scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker=needs(self._options.resources)),
            run_config=RunConfig(
                name=name,
                storage_path=tempfile.mkdtemp(prefix="train-in-tune-"),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        threading.Thread(target=trainer.fit, daemon=True).start()

    def begin(self, job: Any, options: Any, *, resumes: bool) -> None:
        if not self.keep:
            self._start()
        self._queue.put.remote(*([job] if self.keep else [job, None]))  # after None the group ends

    def step(self) -> list[Any]:
        import ray

        from mtlscale.execution.events import EpochEnded, RunEnded

        events: list[Any] = []
        while not events or not isinstance(events[-1], EpochEnded | RunEnded):
            events.append(ray.get(self._queue.next.remote()))
        return events

    def save(self, path: Path) -> None:
        """Nothing: no other trial adopts its state."""


class KeptTrainGroup(TrainGroup):
    keep = True


def measure(side: str, trials: int, epochs: int) -> None:
    """In a process of its own: the search, and when each trial ended, as JSON."""
    import ray

    from mtlscale.config import Experiment
    from mtlscale.data.readers.prepared import read_manifest
    from mtlscale.execution.cluster.cluster import session
    from mtlscale.execution.events import RunEnded
    from mtlscale.execution.planning.plan import Datasets
    from mtlscale.execution.preparing.prepare import prepare
    from mtlscale.execution.tuning import tune
    from mtlscale.execution.tuning.sweep import plan_sweep
    from mtlscale.execution.workers.jobs import Options
    from mtlscale.records import Home

    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        prepared = prepare("digits", {}, None, home.root, engine="local")
        experiment = Experiment.model_validate(
            {
                "name": "nested",
                "datasets": ["digits"],
                "floors": [],
                "methods": ["equal"],
                "training": {"epochs": epochs, "batch_size": 64},
                "resources": {"workers": WORKERS},
                "search": {
                    "budget": trials,
                    "algorithm": "optuna",
                    "space": {"training.lr": {"low": 1e-4, "high": 1e-1, "scale": "log"}},
                },
            }
        )
        (name,) = experiment.data()
        data = Datasets({name: prepared}, {name: read_manifest(prepared)})
        planned = plan_sweep(experiment, home, data)
        (base,), search = planned.bases, experiment.search
        assert search is not None
        if side != "actors":
            tune.WorkerGroup = KeptTrainGroup if side == "train, kept" else TrainGroup  # type: ignore[attr-defined,misc]
            tune.bundles = lambda options: [{"CPU": 0.01}]  # type: ignore[attr-defined] # Train's group has its own
        ray_cpus = WORKERS + 1
        ray.init(
            address="local", num_cpus=ray_cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
        )
        folders = home.experiment("nested")
        shared = tune.setup_of(
            base, search, prepared, planned.plan.manifests[base.data].suite, home.root / "runs",
            folders / "begun.jsonl", Options(experiment.resources),
        )  # fmt: skip
        with session():
            began, ends, scores, own = time.perf_counter(), [], [], []
            for _, event in tune.execute_tune(search, shared, (), trials, 1, folders / "tune-0"):
                if isinstance(event, RunEnded):
                    assert event.record.status == "finished", event.record.error
                    ends.append(time.perf_counter() - began)
                    own.append(event.record.seconds)
                    scores.append(event.record.metrics["val"])
        ray.shutdown()
        print(json.dumps({"ends": ends, "own": own, "scores": scores}))


def table_of(found: dict[str, list[dict[str, Any]]]) -> Table:
    """What a trial takes beside its training, of all searches of each side; the first trial starts everything."""
    first: dict[str, float] = {}
    later: dict[str, float] = {}
    for side, searches in found.items():
        beside = [
            [end - before - own for before, end, own in zip([0.0, *one["ends"]], one["ends"], one["own"], strict=False)]
            for one in searches
        ]
        first[side] = statistics.median(seconds[0] for seconds in beside)
        later[side] = statistics.median(one for seconds in beside for one in seconds[1:])

    table = Table("", "first trial", "later trial", f"a later trial of {USUAL:.0f} s, of `actors`")
    table.title = "seconds beside training, two workers a trial"
    for side in found:
        ratio = (USUAL + later[side]) / (USUAL + later["actors"])
        met = "" if side == "actors" else " (met)" if ratio <= TARGET else f" (target {TARGET}: MISSED)"
        table.add_row(side, f"{first[side]:.1f}", f"{later[side]:.1f}", f"{ratio:.2f}{met}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=300, help="of a trial, so that it takes about 30 seconds")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.trials, options.epochs)
        return 0

    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(options.repeats):
        for side in SIDES:
            mine = [sys.executable, __file__, "--trials", str(options.trials), "--epochs", str(options.epochs)]
            done = subprocess.run([*mine, "--measure", side], check=True, stdout=subprocess.PIPE, text=True)
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
            ends, own = found[side][-1]["ends"], found[side][-1]["own"]
            print(side, [f"{end:.1f}" for end in ends], [f"{one:.1f}" for one in own], file=sys.stderr, flush=True)

    Console(width=110).print(table_of(found))
    same = all(one["scores"] == found["actors"][0]["scores"] for side in SIDES for one in found[side])
    print(f"scores equal on all sides: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
