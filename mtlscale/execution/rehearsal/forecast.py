"""Forecast of the time and memory of runs that are still to be done.

It comes from similar runs that are over, which are named; without such runs there is none. Nothing is trained for it.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mtlscale.config import Run, changed
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.planning.reader_report import processes_per_node
from mtlscale.execution.rehearsal.dry_run import DryRun
from mtlscale.execution.tuning.sweep import SweepPlan
from mtlscale.execution.workers.jobs import Batched
from mtlscale.records import Home, Ledger, RunRecord

if TYPE_CHECKING:
    from mtlscale.execution.planning.plan import Plan

START_SECONDS = 12.0  # of a local Ray with its first workers
REPORT_SECONDS = 4.0  # of the report and MLflow's last words
_LARGEST = 256 << 20  # bytes of a ledger that is read for this
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


def forecasts(sketch: DryRun, home: Home) -> Forecasts:
    """Forecast everything the sketch has to do."""
    todo = _todo(sketch)
    past = _Past(home, (run for run, _ in todo.values()))

    winners = 0 if sketch.experiment.search is None else len(sketch.experiment.seeds)
    rows = []
    for run, count in todo.values():
        records = past.similar(run)
        forecast = (
            _of_records(run, count, records, _steps(run, sketch.plan))
            if records
            else Forecast(run.dataset, run.method, count, None, None, None, "", "")
        )
        rows.append(replace(forecast, winners=winners))

    resources = sketch.experiment.resources
    slots = max(1, min(processes_per_node(resources) // resources.workers, sum(row.all_runs for row in rows) or 1))
    around = (0.0 if os.environ.get("RAY_ADDRESS") else START_SECONDS) + REPORT_SECONDS if rows else 0.0
    return Forecasts(tuple(rows), slots, _batched(sketch, home), around)


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
        trial_counts, done_counts = counts_of_trials(known_plan)
        for base in known_plan.distinct:
            key = base.dataset, base.method
            done_count = done_counts[key]
            total = known_plan.search.budget if known_plan.search.adaptive else trial_counts[key]
            if total > done_count:
                add(base, total - done_count)
    elif known_plan is not None:
        for run in known_plan.todo:
            add(run, 1)

    for run in sketch.unknown:
        add(run, 1 if search is None else search.budget)

    return runs_to_do


def counts_of_trials(sweep: SweepPlan) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return how many trials each data set and method has, and how many of them are done."""
    board = sweep.plan.board
    trials = Counter((trial.dataset, trial.method) for trial in board.wanted)
    return trials, Counter((trial.dataset, trial.method) for trial in board.wanted if board.is_done(trial.run_id))


def _steps(run: Run, plan: Plan | None) -> int | None:
    return plan.steps(run) if plan is not None and run.data in plan.data.manifests else None


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
