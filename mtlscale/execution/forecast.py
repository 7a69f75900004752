"""What runs that are still to be done will take, in time and memory: from runs like them that are over, else from a few
steps that are tried, else from nothing; it is always said from what."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.data.choice import bound, needed
from mtlscale.execution.check import parameters
from mtlscale.execution.reading import processes_per_node
from mtlscale.execution.sketch import Sketch
from mtlscale.execution.sweep import SweepPlan
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.spec import Run, TrainingSpec, changed

if TYPE_CHECKING:
    from mtlscale.data import PreparedData
    from mtlscale.execution.plan import Plan

PROBE_SECONDS = 8.0  # for all methods together, once all is imported
_LARGEST = 256 << 20  # bytes of a ledger that is read for this
_TRIED = 1 << 30  # bytes of data that are read to try a few steps
_EACH = 0.3  # seconds that are timed of a method
_STATES = {"adam": 2, "adamw": 2, "sgd": 1, "nesterov": 1}  # numbers an optimiser keeps for each parameter
_FORWARD = 1 / 3  # of the time of a step, what evaluating as many samples takes
_NO_SIZE = ("split", "label_noise", "seed", "search_seed")
_SHAPE = ("batch_size", "batches", "optimizer", "clip", "amp", "accumulate", "gramian_every", "dtype", "channels_last")


@dataclass(frozen=True)
class Forecast:
    """What the runs of a method on a data set will take. None: nobody can say."""

    dataset: str
    method: str
    runs: int  # that are still to be done
    parameters: int | None
    seconds: float | None  # of one run
    megabytes: float | None  # of one worker
    time_from: str
    memory_from: str


@dataclass(frozen=True)
class Forecasts:
    """Those of all methods, and how many runs go on at a time on this machine."""

    rows: tuple[Forecast, ...]
    slots: int

    @property
    def seconds(self) -> float | None:
        """Of all runs, without those of which nothing is known; None where that is so of all."""
        known = [row.seconds * row.runs for row in self.rows if row.seconds is not None]
        return sum(known) / self.slots if known else None

    @property
    def complete(self) -> bool:
        return all(row.seconds is not None for row in self.rows)


def forecasts(sketch: Sketch, home: Home, *, probe: float = PROBE_SECONDS) -> Forecasts:
    """Of everything the sketch has to do. probe: seconds for trying steps."""
    todo = _todo(sketch)
    past = _Past(home, (run for run, _ in todo.values()))
    tries = _Tries(sketch.plan, probe)
    rows = []
    for run, count in todo.values():
        steps = _steps(run, sketch.plan)
        records = past.like(run)
        found = _of_records(run, count, records, steps) if records else tries.forecast(run, count, steps)
        rows.append(found)
    resources = sketch.experiment.resources
    runs = sum(row.runs for row in rows)
    return Forecasts(tuple(rows), max(1, min(processes_per_node(resources) // resources.workers, runs or 1)))


def _todo(sketch: Sketch) -> dict[tuple[str, str], tuple[Run, int]]:
    """Data set and method -> a run, and how many of them are to be done."""
    found: dict[tuple[str, str], tuple[Run, int]] = {}

    def add(run: Run, count: int) -> None:
        first, before = found.get((run.dataset, run.method), (run, 0))
        found[run.dataset, run.method] = first, before + count

    search, known = sketch.experiment.search, sketch.known
    if isinstance(known, SweepPlan):
        for base in known.distinct:
            trials = known.of(base)
            done = sum(planned.state == "done" for planned in trials)
            total = known.search.budget if known.search.adaptive else len(trials)
            if total > done:
                add(base, total - done)
    elif known is not None:
        for planned in known.todo:
            add(planned.run, 1)
    for run in sketch.unknown:
        add(run, 1 if search is None else search.budget)
    return found


def _steps(run: Run, plan: Plan | None) -> int | None:
    return plan.steps(run) if plan is not None and run.data in plan.manifests else None


# -- from runs that are over -----------------------------------------------------------------------------------------


class _Past:
    """Finished runs of the home folder, by what their time and memory depend on."""

    def __init__(self, home: Home, runs: Iterable[Run]) -> None:
        wanted = {_shape(run.spec) for run in runs}
        self._found: dict[str, list[RunRecord]] = {}
        for file in sorted((home.root / "experiments").glob("*/*.jsonl")) if wanted else ():
            if file.name.startswith(("ledger", "trials")) and file.stat().st_size <= _LARGEST:
                for record in Ledger(file).records(epochs=False):
                    if record.status == "finished" and (key := _shape(record.spec)) in wanted:
                        self._found.setdefault(key, []).append(record)

    def like(self, run: Run) -> list[RunRecord]:
        """Those whose phases were their own, where there are some."""
        records = self._found.get(_shape(run.spec), [])
        own = [record for record in records if not any(phase.reused for phase in record.phases)]
        return own or records


def _shape(spec: Mapping[str, Any]) -> str:
    """What has to be the same for runs to take the same time for a step, and the same memory: numbers with a point,
    such as strengths and rates, change neither."""
    kinds = {"architecture": "architectures", "encoder": "encoders", "objective": "objectives", "dataset": "datasets"}
    parts = {part: spec[part] and (spec[part]["name"], _sizes(kind, spec[part])) for part, kind in kinds.items()}
    known = {**TrainingSpec().model_dump(mode="json"), **spec["training"]}  # those of earlier versions name fewer
    training = {key: known[key] for key in _SHAPE}
    return json.dumps([parts, spec["balancer"]["name"], training], sort_keys=True)


def _sizes(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    options = changed(kind, entry)
    return {key: value for key, value in options.items() if key not in _NO_SIZE and not isinstance(value, float)}


def _of_records(run: Run, count: int, records: Sequence[RunRecord], steps: int | None) -> Forecast:
    """Scaled by steps where they are known, else by epochs."""
    seconds = []
    for record in records:
        epochs = run.training.epochs / record.spec["training"]["epochs"]
        seconds.append(record.seconds * (steps / record.steps if steps is not None and record.steps else epochs))
    of = f"{len(records)} run{'s' * (len(records) > 1)} of {', '.join(sorted({r.experiment for r in records})[:3])}"
    return Forecast(
        run.dataset,
        run.method,
        count,
        records[-1].parameters,
        statistics.median(seconds),
        max(record.peak_memory_mb for record in records),
        of,
        of,
    )


# -- from a few steps ------------------------------------------------------------------------------------------------


class _Tries:
    """A few steps of each method in this process, as long as there is time for them."""

    def __init__(self, plan: Plan | None, seconds: float) -> None:
        self._plan = plan
        self._seconds_left = seconds
        self._data: tuple[Path, PreparedData] | None = None
        self._empty: float | None = None  # bytes of this process before it has read any data

    def forecast(self, run: Run, count: int, steps: int | None) -> Forecast:
        plan = self._plan
        if plan is None or steps is None:
            return Forecast(run.dataset, run.method, count, None, None, None, "", "")
        folder, manifest = plan.folders[run.data], plan.manifests[run.data]
        size = parameters(run, folder)
        need = needed(folder, manifest, run.training.dtype)
        memory = None if size is None else self._process() + _network(run, size) + need.stored + need.placed
        why = "" if memory is None else "a process, parameters, gradients, optimiser and data, without activations"
        seconds, said = self._seconds(run, folder, steps)
        return Forecast(
            run.dataset, run.method, count, size, seconds, None if memory is None else memory / 2**20, said, why
        )

    def _process(self) -> float:
        if self._empty is None:
            import psutil

            import mtlscale.training.loop  # noqa: F401 (what a worker imports takes room)

            self._empty = float(psutil.Process().memory_info().rss)
        return self._empty

    def _seconds(self, run: Run, folder: Path, steps: int) -> tuple[float | None, str]:
        """Seconds of a run, and from what."""
        assert self._plan is not None
        manifest = self._plan.manifests[run.data]
        if self._seconds_left <= 0:
            return None, "no time left to try it"
        if bound(manifest).placed > _TRIED:
            return None, "data too large to try it"
        data, began = self._read(folder), time.monotonic()
        try:
            step, count = _step(run, data)
        except StopIteration as end:  # the record of a run that diverged
            return None, f"diverges: {end.value.error}"
        except Exception as error:  # that of a plugin's, say: a run will tell
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
    """Seconds of a step, and how many were timed."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first = _timed(run, data, 1)
        count = int(min(50.0, max(1.0, _EACH / max(first, 1e-6))))
        return (_timed(run, data, count), count) if count > 1 else (first, 1)
    finally:
        torch.set_num_threads(threads)


def _timed(run: Run, data: PreparedData, steps: int) -> float:
    """Seconds of a step, in the second of two short epochs where the run has two."""
    from mtlscale.training import Trainer

    short = {"epochs": 1000, "steps_per_epoch": steps, "evaluate_every": 1000}
    epochs = Trainer(run.tuned({f"training.{key}": value for key, value in short.items()}), data).train()
    first = next(epochs)
    return (first if run.parts.phases[0].epochs == 1 else next(epochs)).seconds / steps


def _network(run: Run, parameters: int) -> float:
    """Bytes of parameters, gradients and what the optimiser keeps."""
    spec = run.training
    states = 0 if spec.optimizer in ("sgd", "nesterov") and spec.momentum == 0 else _STATES[spec.optimizer]
    return parameters * (2 + states) * (8 if spec.dtype == "float64" else 4)


def _samples(run: Run, counts: Mapping[str, Mapping[str, int]]) -> int:
    """Labels of a step."""
    streams = 1 if run.training.batches == "pooled" else len(counts)
    return run.training.batch_size * streams


def _evaluated(run: Run, counts: Mapping[str, Mapping[str, int]]) -> int:
    """Labels that a run evaluates: validation as often as it does, all splits at its end."""
    totals = {split: sum(found.get(split, 0) for found in counts.values()) for split in ("train", "val", "test")}
    return totals["val"] * (run.epochs // run.training.evaluate_every + 2) + 2 * totals["test"] + totals["train"]
