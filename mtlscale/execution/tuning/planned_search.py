"""Searches whose trials are planned, by Ray Tune: random and grid searches hand it their list.

A trial of Tune takes one job of the list: a run, or a batched share of runs, all of which it reports. Its actors stay
from trial to trial.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mtlscale.config import Run, UserError
from mtlscale.execution.faults import dumps
from mtlscale.execution.faults.failures import StartTimeout
from mtlscale.execution.tuning.tune import quiet_tune, stop_file, stop_where_asked
from mtlscale.execution.tuning.tune_trial import finite
from mtlscale.execution.tuning.tune_workers import WorkerGroup, bundles
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import Plugin, failed, setup, sources
from mtlscale.records import score
from mtlscale.records.events import Noted, RunEnded, RunEvent

_LOOK_SECONDS = 5.0  # between two looks whether any trial has a worker
_STEP_SECONDS = 0.5  # of a trial between two reports
_END_SECONDS = 10.0  # for Tune to give back what it holds; a signal leaves no more time


def execute_planned(
    jobs: Sequence[Job | Batched], slots: int, options: Options, folder: Path, metric: str | None
) -> Iterator[RunEvent]:
    """Work through the jobs, `slots` at once, and yield the events of their runs.

    Args:
        jobs: The jobs, in the order in which they begin.
        slots: How many trials have workers at once.
        options: The options that all runs share.
        folder: The folder for Tune's own files, which is removed at the end.
        metric: The metric of the score that Tune's tables show; None: each task's main one.

    Raises:
        UserError: If Tune ends early.
    """
    from ray import tune

    quiet_tune()
    shutil.rmtree(folder, ignore_errors=True)
    stop_file(folder).unlink(missing_ok=True)

    recorder = _Recorder(jobs, folder, options)
    shared = {"jobs": list(jobs), "options": options, "plugins": sources(options.plugins), "folder": folder}
    trainable = tune.with_parameters(_trainable(options), shared={**shared, "metric": metric})
    trainable.__qualname__ = trainable.__name__  # what `ray list actors` and `ps` call it
    tuner = tune.Tuner(
        trainable,
        param_space={"job": tune.grid_search(list(range(len(jobs))))},
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            max_concurrent_trials=slots,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial_name(jobs[trial.config["job"]]),
            trial_dirname_creator=lambda trial: f"trial-{trial.config['job']}",
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            verbose=0,
            callbacks=[recorder.as_callback()],
            stop=stop_where_asked(stop_file(folder)),
            failure_config=tune.FailureConfig(max_failures=options.resources.max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    try:
        yield from _events(tuner, recorder, stop_file(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        stop_file(folder).unlink(missing_ok=True)


def trial_name(job: Job | Batched) -> str:
    """Return the name of a job's trial in Tune's tables, Ray's dashboard and the logs."""
    run = job.jobs[0].run
    if len(job.jobs) > 1:
        return f"{run.dataset} · {run.method} · {len(job.jobs)} trials"
    settings = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in run.trial.items())
    return " · ".join(filter(None, (run.dataset, run.method, settings)))


def _trainable(options: Options) -> type[Any]:
    """Return the class of the trials; Ray is imported late."""
    from ray import tune

    class PlannedTrial(tune.Trainable):
        """Trial of a planned search: its job, in steps of half a second."""

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            return tune.PlacementGroupFactory(bundles(options))

        def setup(self, config: dict[str, Any], shared: dict[str, Any] | None = None) -> None:
            assert shared is not None
            self._jobs: list[Job | Batched] = shared["jobs"]
            self._options: Options = shared["options"]
            self._plugins: list[Plugin] = shared["plugins"]
            self._folder, self._metric = shared["folder"], shared["metric"]
            self._group: WorkerGroup | None = None
            if self._options.resources.workers > 1:
                self._group = WorkerGroup(self._options, self._plugins)
            else:
                setup(self._options.threads, self._plugins)
            self._begin(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._begin(new_config)
            return True

        def _begin(self, config: dict[str, Any]) -> None:
            job = self._jobs[config["job"]]
            self._left, self._score = {part.run.run_id for part in job.jobs}, finite(None)
            self._dump = _dump(self._folder, job)
            if self._group is None:
                self._events = execute(job, self._options)
            else:
                assert isinstance(job, Job)
                with self._ends_if_silent():
                    self._group.begin(job, self._options, resumes=True)

        def _ends_if_silent(self) -> contextlib.AbstractContextManager[None]:
            return dumps.ends_if_silent(self._options.resources.timeout_minutes, self._dump)

        def step(self) -> dict[str, Any]:
            events: list[RunEvent] = []
            until = time.monotonic() + _STEP_SECONDS
            while self._left and (not events or time.monotonic() < until):
                with self._ends_if_silent():
                    news = [next(self._events)] if self._group is None else self._group.step()
                for event in news:
                    events.append(event)
                    if isinstance(event, RunEnded):
                        self._left.discard(event.run_id)
                        self._score = max(self._score, finite(score(event.record, self._metric)))
            return {"score": self._score, "events": events, "done": not self._left}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Save nothing: runs keep their own checkpoints."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Load nothing: a job goes on from the checkpoints of its runs."""

    return PlannedTrial


def _dump(folder: Path, job: Job | Batched) -> Path:
    """Return the file for thread dumps of a job that hangs."""
    return folder.with_name(f"hung-{job.jobs[0].run.run_id}.txt")


class _Recorder:
    """Translator of Tune's callbacks into events; a job that fails for good fails its runs."""

    def __init__(self, jobs: Sequence[Job | Batched], folder: Path, options: Options) -> None:
        self._jobs, self._folder, self._options = jobs, folder, options
        self.events: queue.Queue[RunEvent | None] = queue.Queue()  # None: the search is over
        self.left: dict[str, Run] = {part.run.run_id: part.run for job in jobs for part in job.jobs}
        self.running: set[str] = set()  # the ids of trials that have a worker
        self._dumped: dict[str, int] = {}  # bytes of a trial's thread dumps that have been told of

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks to a file, which nobody reads here

    def __deepcopy__(self, memo: dict[int, Any]) -> _Recorder:
        return self

    def as_callback(self) -> Any:
        from ray.tune import Callback

        recorder = self

        class Recording(Callback):
            def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder.running.add(trial.trial_id)

            def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any) -> None:
                for event in result.pop("events", ()):  # else Tune would keep them
                    recorder.put(event)

            def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder.running.discard(trial.trial_id)

            def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder.running.discard(trial.trial_id)
                if hung := recorder.hung(trial):
                    recorder.put(Noted(recorder.first(trial).run_id, f"{hung}; it is tried again"))

            def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder.fail(trial)

        return Recording()

    def first(self, trial: Any) -> Run:
        run: Run = self._jobs[trial.config["job"]].jobs[0].run
        return run

    def put(self, event: RunEvent) -> None:
        """Hand an event on; a run that ends again after its job was repeated has ended before."""
        if isinstance(event, RunEnded) and self.left.pop(event.run_id, None) is None:
            return
        self.events.put(event)

    def hung(self, trial: Any) -> str:
        """Return what is known of a trial whose worker hung since the last such look; "" of others."""
        dump = _dump(self._folder, self._jobs[trial.config["job"]])
        size = dump.stat().st_size if dump.exists() else 0
        before, self._dumped[trial.trial_id] = self._dumped.get(trial.trial_id, 0), size
        minutes = self._options.resources.timeout_minutes
        return f"no sign of life within {minutes:g} minutes; thread dumps in {dump}" if size > before else ""

    def fail(self, trial: Any) -> None:
        self.running.discard(trial.trial_id)
        cause = trial.get_error()
        text = str(getattr(cause, "cause", None) or cause).strip().splitlines()
        reason = self.hung(trial) or (text[-1] if text else "its worker died")
        self.give_up(reason, [part.run.run_id for part in self._jobs[trial.config["job"]].jobs])

    def give_up(self, reason: str, run_ids: Sequence[str] | None = None) -> None:
        """Fail these runs, by default all that have not ended."""
        for run_id in list(self.left) if run_ids is None else run_ids:
            if run_id in self.left:
                self.put(RunEnded(run_id, failed(self.left[run_id], reason)))


def _events(tuner: Any, recorder: _Recorder, stop: Path) -> Iterator[RunEvent]:
    """Run the tuner in a thread and yield what its callbacks put; end it where no worker comes up or nobody listens."""
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            tuner.fit()
        except BaseException as error:
            errors.append(error)
        finally:
            recorder.events.put(None)

    thread = threading.Thread(target=fit, name="ray-tune", daemon=True)
    thread.start()

    timeout, over = StartTimeout(recorder._options.resources), False
    try:
        while not over:
            event = None
            with contextlib.suppress(queue.Empty):
                event = recorder.events.get(timeout=_LOOK_SECONDS)
                over = event is None
            if event is not None:
                yield event

            waiting = next(iter(recorder.left), "")
            yield from timeout.note(waiting, up=over or event is not None or bool(recorder.running))
            if timeout.failure is not None and not stop.exists():
                recorder.give_up(timeout.failure)
                stop.touch()
    finally:
        if not over:
            stop.parent.mkdir(parents=True, exist_ok=True)
            stop.touch()  # the places that Tune has reserved are given back
        thread.join(_END_SECONDS)

    if recorder.left:
        text = "".join(str(error).strip() or type(error).__name__ for error in errors)
        raise UserError(f"Ray Tune ended early: {(text or 'without a word').splitlines()[-1]}")
