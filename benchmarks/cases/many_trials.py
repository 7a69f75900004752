"""What an adaptive search of ten thousand trials costs its driver, without training.

    python benchmarks/run.py many_trials                     # ASHA over 10,000 random trials, about half an hour
    python benchmarks/run.py many_trials --trials 2000

The search is the real one: Ray Tune with ASHA, this project's callbacks, journal and ledger. The trials are actors that
train nothing: their metrics are a function of the learning rate, the weight decay and the epoch. Every tenth of the
trials: CPU time of the driver per trial and its memory, which must not grow with the trials behind it. Then, in a fresh
process, what the same command costs when it finds all of them done.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from cases import scale
from harness import Sheet, apart, local_ray, memory_line, say

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

        from mtlscale.records.events import EpochEnded, RunEnded

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


def search(home: Path, trials: int, slots: int, algorithm: str) -> Sheet:
    """In a process of its own: a row for every tenth of the trials."""
    from mtlscale.execution.tuning import tune, tune_trial
    from mtlscale.execution.tuning.sweep import plan_sweep
    from mtlscale.execution.tuning.tune_setup import setup_of
    from mtlscale.execution.workers.jobs import Options
    from mtlscale.records import Ledger
    from mtlscale.records.events import RunEnded

    experiment, data, place = setting(home, trials, algorithm)
    planned = plan_sweep(experiment, place, data)
    (base,), found = planned.bases, experiment.search
    assert found is not None
    tune_trial.WorkerGroup = SimulatedGroup  # type: ignore[attr-defined,misc]
    suite, folder = planned.plan.data.manifests[base.data].suite, place.experiment("trials")
    sheet = Sheet("a search with ASHA", "trials behind", "driver's CPU ms a trial", "ms a trial", "MB")
    with local_ray(slots):
        shared = setup_of(
            base, found, planned.plan.data.folders[base.data], suite, home / "runs", folder / "begun.jsonl",
            Options(experiment.resources),
        )  # fmt: skip
        ledger, part = Ledger(place.trials("trials", found.ledger)), max(1, trials // 10)
        ended, began, cpu = 0, time.perf_counter(), time.process_time()
        for event in tune.execute_tune(found, shared, (), trials, slots, folder / "tune-0"):
            if not isinstance(event, RunEnded):
                continue
            ledger.append(event.record)
            ended += 1
            if ended % part == 0:
                now, spent = time.perf_counter(), time.process_time()
                each = (1e3 * (spent - cpu) / part, 1e3 * (now - began) / part)
                sheet.row(ended, *each, round(memory_line("VmRSS") / 1e6))
                began, cpu = now, spent
    return sheet


def again(home: Path, trials: int, algorithm: str) -> tuple[bool, float, float]:
    """In a process of its own: whether all trials are done; CPU seconds of finding out, and its memory in MB."""
    from mtlscale.execution.tuning.sweep import plan_sweep

    experiment, data, place = setting(home, trials, algorithm)
    cpu = time.process_time()
    planned = plan_sweep(experiment, place, data)
    return planned.complete, time.process_time() - cpu, memory_line("VmRSS") / 1e6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=2, help="trials at once")
    parser.add_argument("--algorithm", default="random", help="random or optuna")


QUICK = {"trials": 10}


def run(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sheet: Sheet = apart(search, home, options.trials, options.slots, options.algorithm)
        sheet.show()
        complete, cpu, mb = apart(again, home, options.trials, options.algorithm)
    say(f"planned again, all of them done: {cpu:.1f} s of CPU, {mb:.0f} MB", complete=complete, cpu=cpu, mb=mb)
    return bool(complete)
