"""What an adaptive search of ten thousand trials costs its driver, without training.

    python benchmarks/many_trials.py                     # ASHA over 10,000 random trials, about half an hour
    python benchmarks/many_trials.py --trials 2000

The search is the real one: Ray Tune with ASHA, this project's callbacks, journal and ledger. The trials are actors that
train nothing: their metrics are a function of the learning rate, the weight decay and the epoch. Every tenth of the
trials: CPU time of the driver per trial and its memory, which must not grow with the trials behind it. Then, in a fresh
process, what the same command costs when it finds all of them done.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

EPOCHS = 27
SPACE = {
    "training.lr": {"low": 1e-5, "high": 1.0, "scale": "log"},
    "training.weight_decay": {"low": 1e-8, "high": 1e-1, "scale": "log"},
}


class SimulatedGroup:
    """Worker of a trial that trains nothing, in place of `WorkerGroup`."""

    def __init__(self, options: Any, plugins: Any) -> None:
        self._epoch = 0

    def begin(self, job: Any, options: Any, *, resumes: bool) -> None:
        self._run, self._epoch = job.run, 0

    def step(self) -> list[Any]:
        import random

        import scale

        from mtlscale.execution.events import EpochEnded, RunEnded

        rng = random.Random(f"{self._run.run_id}{self._epoch}")
        self._epoch += 1
        if self._epoch > EPOCHS:
            record = scale.record_of(self._run, rng)
            for metrics in record.metrics["val"].values():
                metrics["loss"] = rng.random()
            return [RunEnded(self._run.run_id, record)]
        training = self._run.spec["training"]
        miss = abs(math.log10(training["lr"]) + 2) + 0.3 * abs(math.log10(training["weight_decay"]) + 4)
        epoch = scale.epoch_of(self._epoch, rng)
        for metrics in epoch.val.values():
            metrics["accuracy"] = 90 - 8 * miss - 20 / self._epoch + rng.random()
            metrics["loss"] = 10 - metrics["accuracy"] / 10
        return [EpochEnded(self._run.run_id, epoch)]

    def save(self, path: Path) -> None:
        """Nothing: no other trial adopts its state."""


def setting(home: Path, trials: int, algorithm: str) -> tuple[Any, Any, Any]:
    """The experiment, its data, and its home."""
    import scale

    from mtlscale.config import Experiment
    from mtlscale.records import Home

    experiment = Experiment.model_validate(
        {
            "name": "trials",
            "datasets": ["digits"],
            "floors": [],
            "methods": ["equal"],
            "training": {"epochs": EPOCHS},
            "search": {"budget": trials, "algorithm": algorithm, "scheduler": "asha", "space": SPACE},
        }
    )
    return experiment, scale.data_of(experiment, home), Home(home)


def search(home: Path, trials: int, slots: int, algorithm: str) -> None:
    """In a process of its own: print a line of JSON for every tenth of the trials."""
    import ray

    from mtlscale.execution.events import RunEnded
    from mtlscale.execution.tuning import tune
    from mtlscale.execution.tuning.sweep import plan_sweep
    from mtlscale.execution.workers.jobs import Options
    from mtlscale.records import Ledger

    experiment, data, place = setting(home, trials, algorithm)
    planned = plan_sweep(experiment, place, data)
    (base,), found = planned.bases, experiment.search
    assert found is not None
    tune.WorkerGroup = SimulatedGroup  # type: ignore[attr-defined,misc]
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ray.init(
        num_cpus=slots, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )  # fmt: skip
    suite, folder = planned.plan.manifests[base.data].suite, place.experiment("trials")
    shared = tune.setup_of(
        base, found, planned.plan.folders[base.data], suite, home / "runs", folder / "begun.jsonl",
        Options(experiment.resources),
    )  # fmt: skip
    ledger = Ledger(place.trials("trials", found.ledger))
    ended, epochs, began, cpu = 0, 0, time.perf_counter(), time.process_time()
    for _, event in tune.execute_tune(found, shared, (), trials, slots, folder / "tune-0"):
        epochs += 1
        if not isinstance(event, RunEnded):
            continue
        ledger.append(event.record)
        ended += 1
        if ended % max(1, trials // 10) == 0:
            now, spent = time.perf_counter(), time.process_time()
            part = max(1, trials // 10)
            print(json.dumps({
                "trials": ended, "cpu_ms": 1e3 * (spent - cpu) / part, "seconds": now - began, "events": epochs,
                "mb": memory(),
            }), flush=True)  # fmt: skip
            began, cpu = now, spent
    ray.shutdown()


def again(home: Path, trials: int, algorithm: str) -> None:
    """In a process of its own: the plan of a search whose trials are all done."""
    from mtlscale.execution.tuning.sweep import plan_sweep

    experiment, data, place = setting(home, trials, algorithm)
    cpu = time.process_time()
    planned = plan_sweep(experiment, place, data)
    spent = time.process_time() - cpu
    print(json.dumps({"complete": planned.complete, "cpu": spent, "mb": memory()}))


def memory() -> float:
    """The resident memory of this process now, in MB; at its peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=2, help="trials at once")
    parser.add_argument("--algorithm", default="random", help="random or optuna")
    parser.add_argument("--part", choices=("search", "again"), help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "search":
        search(options.home, options.trials, options.slots, options.algorithm)
        return 0
    if options.part == "again":
        again(options.home, options.trials, options.algorithm)
        return 0

    mine = [sys.executable, __file__, "--trials", str(options.trials), "--slots", str(options.slots)]
    mine += ["--algorithm", options.algorithm]
    table = Table("trials behind", "driver's CPU ms a trial", "ms a trial", "MB", title="a search with ASHA")
    with tempfile.TemporaryDirectory() as home:
        parts = subprocess.Popen([*mine, "--part", "search", "--home", home], stdout=subprocess.PIPE, text=True)
        assert parts.stdout is not None
        step, lines = max(1, options.trials // 10), []
        for line in parts.stdout:
            if line.startswith("{"):
                lines.append(json.loads(line))
                print(line.strip(), file=sys.stderr, flush=True)
        if parts.wait() != 0:
            return 1
        for one in lines:
            cost = (f"{one['cpu_ms']:.1f}", f"{1e3 * one['seconds'] / step:.0f}", f"{one['mb']:.0f}")
            table.add_row(f"{one['trials']:,}", *cost)
        done = subprocess.run([*mine, "--part", "again", "--home", home], check=True, stdout=subprocess.PIPE, text=True)
    console = Console(width=120)
    console.print(table)
    found = json.loads(done.stdout.splitlines()[-1])
    console.print(f"planned again, all of them done: {found['cpu']:.1f} s of CPU, {found['mb']:.0f} MB")
    return 0 if found["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
