"""Forecast of the time and memory of runs that are still to be done.

It comes from similar runs that are over, else from a few steps that are tried, else there is none; the source is always
named.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import Run, changed, from_plugin
from mtlscale.data.readers.reader_selection import bound, needed
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.planning.check import parameters
from mtlscale.execution.planning.reader_report import processes_per_node
from mtlscale.execution.rehearsal.dry_run import DryRun
from mtlscale.execution.tuning.sweep import SweepPlan
from mtlscale.execution.workers.jobs import Batched
from mtlscale.records import Home, Ledger, RunRecord

if TYPE_CHECKING:
    from mtlscale.data import PreparedData
    from mtlscale.execution.planning.plan import Plan

START_SECONDS = 12.0  # of a local Ray with its first workers
REPORT_SECONDS = 4.0  # of the report and MLflow's last words
PROBE_SECONDS = 8.0  # for all methods together, once all is imported
_LARGEST = 256 << 20  # bytes of a ledger that is read for this
_TRIED = 1 << 30  # bytes of data that are read to try a few steps
_TIMED_SECONDS = 0.3  # seconds that are timed of a method
_STATES = {
    "adam": 2,
    "adamw": 2,
    "sgd": 1,
    "nesterov": 1,
    "muon": 2,
    "lion": 1,
}  # numbers an optimiser keeps for each parameter
_FORWARD = 1 / 3  # the time of evaluating a batch, as a share of a step's
_NO_SIZE = ("split", "label_noise", "seed", "search_seed")
_SHAPE = ("batch_size", "batches", "optimizer", "clip", "amp", "accumulate", "gramian_every", "dtype", "channels_last")


@dataclass(frozen=True)
class Forecast:
    """The expected cost of a method's runs on a data set; None where it is unknown."""

    dataset: str
    method: str
    runs: int  # that are still to be done, trials of a search among them
    parameters: int | None
    seconds: float | None  # of one run
    megabytes: float | None  # of one worker
    time_from: str
    memory_from: str
    winners: int = 0  # runs that follow the search

    @property
    def all_runs(self) -> int:
        return self.runs + self.winners


@dataclass(frozen=True)
class Forecasts:
    """The forecasts of all methods, and how many runs this machine holds at once.

    Attributes:
        rows: One for each method and data set.
        slots: Runs at once.
        batched: Runs or trials that are trained together, in less time than one by one.
        around: Seconds of Ray's start and of the report.
    """

    rows: tuple[Forecast, ...]
    slots: int
    batched: int = 0
    around: float = 0.0

    @property
    def seconds(self) -> float | None:
        """The time of all runs whose time is known, one by one, with what goes on around them; None if none is."""
        method_seconds = [row.seconds * row.all_runs for row in self.rows if row.seconds is not None]
        return self.around + sum(method_seconds) / self.slots if method_seconds else None

    @property
    def complete(self) -> bool:
        return all(row.seconds is not None for row in self.rows)


def forecasts(sketch: DryRun, home: Home, *, probe: float = PROBE_SECONDS) -> Forecasts:
    """Forecast everything the sketch has to do; `probe` is the time in seconds for trying steps."""
    todo = _todo(sketch)
    past = _Past(home, (run for run, _ in todo.values()))
    tries = _Tries(sketch.plan, probe)

    rows = {}
    # Methods of the user's come first: time for trying steps may not suffice for all.
    for run, count in sorted(todo.values(), key=lambda entry: not from_plugin(entry[0].parts.balancer)):
        steps = _steps(run, sketch.plan)
        records = past.similar(run)
        forecast = _of_records(run, count, records, steps) if records else tries.forecast(run, count, steps)
        winners = 0 if sketch.experiment.search is None else len(sketch.experiment.seeds)
        rows[run.dataset, run.method] = replace(forecast, winners=winners)

    resources = sketch.experiment.resources
    runs = sum(row.all_runs for row in rows.values())
    slots = max(1, min(processes_per_node(resources) // resources.workers, runs or 1))
    around = (0.0 if os.environ.get("RAY_ADDRESS") else START_SECONDS) + REPORT_SECONDS if rows else 0.0
    return Forecasts(tuple(rows[key] for key in todo), slots, _batched(sketch, home), around)


def _batched(sketch: DryRun, home: Home) -> int:
    """Return how many of the runs or trials are trained together with others."""
    known_plan = sketch.plan_on_data
    if known_plan is None:
        return 0
    jobs = known_plan.items if isinstance(known_plan, SweepPlan) else jobs_of(known_plan.todo, known_plan, home)
    return sum(len(job.jobs) for job in jobs if isinstance(job, Batched) and len(job.jobs) > 1)


def _todo(sketch: DryRun) -> dict[tuple[str, str], tuple[Run, int]]:
    """Return data set and method -> a run, and how many of them are to be done."""
    runs_to_do: dict[tuple[str, str], tuple[Run, int]] = {}

    def add(run: Run, count: int) -> None:
        first, before = runs_to_do.get((run.dataset, run.method), (run, 0))
        runs_to_do[run.dataset, run.method] = first, before + count

    search, known_plan = sketch.experiment.search, sketch.plan_on_data
    if isinstance(known_plan, SweepPlan):
        for base in known_plan.distinct:
            trials = known_plan.of(base)
            done_count = sum(known_plan.plan.board.is_done(one.run_id) for one in trials)
            total = known_plan.search.budget if known_plan.search.adaptive else len(trials)
            if total > done_count:
                add(base, total - done_count)
    elif known_plan is not None:
        for run in known_plan.todo:
            add(run, 1)

    for run in sketch.unknown:
        add(run, 1 if search is None else search.budget)

    return runs_to_do


def _steps(run: Run, plan: Plan | None) -> int | None:
    return plan.steps(run) if plan is not None and run.data in plan.data.manifests else None


# -- from runs that are over -----------------------------------------------------------------------------------------


class _Past:
    """Finished runs of the home folder, by the settings that their time and memory depend on."""

    def __init__(self, home: Home, runs: Iterable[Run]) -> None:
        shapes = {_shape(run.spec) for run in runs}
        self._records: dict[str, list[RunRecord]] = {}
        for file in sorted((home.root / "experiments").glob("*/*.jsonl")) if shapes else ():
            if file.name.startswith(("ledger", "trials")) and file.stat().st_size <= _LARGEST:
                for record in Ledger(file):
                    if record.status == "finished" and (key := _shape(record.spec)) in shapes:
                        self._records.setdefault(key, []).append(record)

    def similar(self, run: Run) -> list[RunRecord]:
        """Return finished runs of the same shape, preferably those that trained all their phases themselves."""
        records = self._records.get(_shape(run.spec), [])
        self_trained = [record for record in records if not any(phase.reused for phase in record.phases)]
        return self_trained or records


def _shape(spec: Mapping[str, Any]) -> str:
    """Return a key of the settings that determine a step's time and memory; numbers with a point do not."""
    kinds = {"architecture": "architectures", "encoder": "encoders", "objective": "objectives", "dataset": "datasets"}
    parts = {part: spec[part] and (spec[part]["name"], _sizes(kind, spec[part])) for part, kind in kinds.items()}
    training = {key: spec["training"][key] for key in _SHAPE}
    return json.dumps([parts, spec["balancer"]["name"], training], sort_keys=True)


def _sizes(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    options = changed(kind, entry)
    return {key: value for key, value in options.items() if key not in _NO_SIZE and not isinstance(value, float)}


def _of_records(run: Run, count: int, records: Sequence[RunRecord], steps: int | None) -> Forecast:
    """Forecast from finished runs, scaled by steps where they are known, else by epochs."""
    seconds = []
    for record in records:
        epoch_ratio = run.training.epochs / record.spec["training"]["epochs"]
        seconds.append(record.seconds * (steps / record.steps if steps is not None and record.steps else epoch_ratio))

    source = f"{len(records)} run{'s' * (len(records) > 1)} of {', '.join(sorted({r.experiment for r in records})[:3])}"
    return Forecast(
        run.dataset,
        run.method,
        count,
        records[-1].parameters,
        statistics.median(seconds),
        max(record.peak_memory_mb for record in records),
        source,
        source,
    )


# -- from a few steps ------------------------------------------------------------------------------------------------


class _Tries:
    """Forecasts from a few steps of each method in this process, as long as there is time for them."""

    def __init__(self, plan: Plan | None, seconds: float) -> None:
        self._plan = plan
        self._seconds_left = seconds
        self._data: tuple[Path, PreparedData] | None = None
        self._empty: float | None = None  # bytes of this process before it has read any data

    def forecast(self, run: Run, count: int, steps: int | None) -> Forecast:
        plan = self._plan
        if plan is None or steps is None:
            return Forecast(run.dataset, run.method, count, None, None, None, "", "")

        folder, manifest = plan.data.folders[run.data], plan.data.manifests[run.data]
        size = parameters(run, plan.data.on_disk(run.data).suite)
        need = needed(folder, manifest, run.training.dtype)
        memory = None if size is None else self._process() + _network(run, size) + need.stored + need.placed
        memory_from = (
            "" if memory is None else "a process, parameters, gradients, optimiser and data, without activations"
        )

        seconds, time_from = self._seconds(run, folder, steps)
        return Forecast(
            run.dataset,
            run.method,
            count,
            size,
            seconds,
            None if memory is None else memory / 2**20,
            time_from,
            memory_from,
        )

    def _process(self) -> float:
        if self._empty is None:
            import psutil

            import mtlscale.training.engine.loop  # noqa: F401 (what a worker imports takes room)

            self._empty = float(psutil.Process().memory_info().rss)
        return self._empty

    def _seconds(self, run: Run, folder: Path, steps: int) -> tuple[float | None, str]:
        """Return the seconds of a run, and the source of that number."""
        assert self._plan is not None
        manifest = self._plan.data.manifests[run.data]

        if self._seconds_left <= 0:
            return None, "no time left to try it"
        if bound(manifest).placed > _TRIED:
            return None, "data too large to try it"

        data, began = self._read(folder), time.monotonic()
        try:
            step, count = _step(run, data)
        except StopIteration as end:  # the record of a run that diverged
            return None, f"diverges: {end.value.error}"
        except Exception as error:  # of a plugin, say; the run itself will report it
            return None, f"cannot be tried ({type(error).__name__})"
        finally:
            self._seconds_left -= time.monotonic() - began

        evaluated = _evaluated(run, manifest.counts) / _samples(run, manifest.counts)
        return step * (steps + _FORWARD * evaluated), "a few steps tried here" if count > 1 else "a step tried here"

    def _read(self, folder: Path) -> PreparedData:
        from mtlscale.data import load_prepared

        if self._data is None or self._data[0] != folder:
            self._data = folder, load_prepared(folder)
        return self._data[1]


def _step(run: Run, data: PreparedData) -> tuple[float, int]:
    """Return the seconds of a step, and how many steps were timed."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first = _timed(run, data, 1)
        count = int(min(50.0, max(1.0, _TIMED_SECONDS / max(first, 1e-6))))
        return (_timed(run, data, count), count) if count > 1 else (first, 1)
    finally:
        torch.set_num_threads(threads)


def _timed(run: Run, data: PreparedData, steps: int) -> float:
    """Return the seconds of a step, from the second of two short epochs where the run has two."""
    from mtlscale.training import Trainer

    short = {"epochs": 1000, "steps_per_epoch": steps, "evaluate_every": 1000}
    epochs = Trainer(run.tuned({f"training.{key}": value for key, value in short.items()}), data).train()
    first = next(epochs)
    return (first if run.parts.phases[0].epochs == 1 else next(epochs)).seconds / steps


def _network(run: Run, parameters: int) -> float:
    """Return the bytes of parameters, gradients and the optimiser's state."""
    spec = run.training
    states = 0 if spec.optimizer in ("sgd", "nesterov") and spec.momentum == 0 else _STATES[spec.optimizer]
    return parameters * (2 + states) * (8 if spec.dtype == "float64" else 4)


def _samples(run: Run, counts: Mapping[str, Mapping[str, int]]) -> int:
    """Return the number of labels in a step."""
    streams = 1 if run.training.batches == "pooled" else len(counts)
    return run.training.batch_size * streams


def _evaluated(run: Run, counts: Mapping[str, Mapping[str, int]]) -> int:
    """Return the number of labels that a run evaluates: validation as often as it does, all splits at its end."""
    totals = {
        split: sum(task_counts.get(split, 0) for task_counts in counts.values()) for split in ("train", "val", "test")
    }
    return totals["val"] * (run.epochs // run.training.evaluate_every + 2) + 2 * totals["test"] + totals["train"]
