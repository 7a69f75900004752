"""Searches whose trials are planned, by Ray Tune: random and grid searches hand it their list.

A trial of Tune has one job of the queue for it alone: a run, or a batched share of runs. Its actors stay from trial to
trial.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution.faults import dumps
from mtlscale.execution.tuning.tune import quiet_tune, stop_file, stop_where_asked
from mtlscale.execution.tuning.tune_trial import finite
from mtlscale.execution.tuning.tune_workers import WorkerGroup, bundles
from mtlscale.execution.workers.executor import execute_jobs
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.ray_queue import Queue, RayQueue
from mtlscale.execution.workers.worker import sources
from mtlscale.records import score
from mtlscale.records.events import RunEnded, RunEvent

_STEP_SECONDS = 0.5  # of a trial between two reports
_END_SECONDS = 10.0  # for Tune to give back what it holds; a signal leaves no more time
_LAST_SECONDS = 120.0  # for Tune to end by itself, once its last trial has: it writes the state of all


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
    """
    yield from execute_jobs(jobs, slots, options, TuneStart(jobs, slots, options, folder, metric))


class TuneStart:
    """Start of Ray Tune, whose trials are the workers, `slots` of them at once; each does one job of the list."""

    queue, own = RayQueue, False

    def __init__(
        self, jobs: Sequence[Job | Batched], slots: int, options: Options, folder: Path, metric: str | None
    ) -> None:
        self._jobs, self.capacity, self._options, self._folder, self._metric = jobs, slots, options, folder, metric

    def worker(self, name: str, title: str, queue: Queue) -> _TuneWorker:
        from ray import tune

        quiet_tune()
        shutil.rmtree(self._folder, ignore_errors=True)
        stop_file(self._folder).unlink(missing_ok=True)

        jobs, options, folder = self._jobs, self._options, self._folder
        shared = {
            "jobs": list(jobs),
            "options": options,
            "plugins": sources(options.plugins),
            "metric": self._metric,
            "queue": queue,
        }
        trainable = tune.with_parameters(_trainable(options), shared=shared)
        trainable.__qualname__ = trainable.__name__  # what `ray list actors` and `ps` call it
        tuner = tune.Tuner(
            trainable,
            param_space={"job": tune.grid_search(list(range(len(jobs))))},
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                max_concurrent_trials=self.capacity,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial_name(jobs[trial.config["job"]]),
                trial_dirname_creator=lambda trial: f"trial-{trial.config['job']}",
            ),
            run_config=tune.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                verbose=0,
                callbacks=[_leaves_queue(queue)],
                stop=stop_where_asked(stop_file(folder)),
                failure_config=tune.FailureConfig(max_failures=options.resources.max_failures),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        worker = _TuneWorker(name, tuner, folder)
        worker.start()
        return worker


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
            self._shared, self._queue = shared, shared["queue"]
            self._location = dumps.listen()
            self._group = WorkerGroup(shared["options"], shared["plugins"])
            self._begin(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._begin(new_config)
            return True

        def _begin(self, config: dict[str, Any]) -> None:
            planned: Job | Batched = self._shared["jobs"][config["job"]]
            self._queue.reserve(self.trial_id, tuple(part.run.run_id for part in planned.jobs))
            self._queue.enter(self.trial_id, self._location)
            job = self._queue.take(self.trial_id)
            self._left = set() if job is None else {part.run.run_id for part in job.jobs}
            self._score = finite(None)
            if job is not None:
                self._group.begin(job, self._shared["options"], resumes=True)

        def step(self) -> dict[str, Any]:
            until = time.monotonic() + _STEP_SECONDS
            while self._left and time.monotonic() < until:
                for event in self._group.step():
                    self._queue.report(self.trial_id, event)
                    if isinstance(event, RunEnded):
                        self._left.discard(event.run_id)
                        self._score = max(self._score, finite(score(event.record, self._shared["metric"])))
            if not self._left:
                self._queue.leave(self.trial_id)
            return {"score": self._score, "done": not self._left}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Save nothing: runs keep their own checkpoints."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Load nothing: a job goes on from the checkpoints of its runs."""

    return PlannedTrial


def _leaves_queue(queue: Queue) -> Any:
    """Return the callback that gives back the job of a trial which Tune does not try again."""
    from ray.tune import Callback

    class LeavesQueue(Callback):
        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            cause = trial.get_error()
            queue.leave(trial.trial_id, str(getattr(cause, "cause", None) or cause).strip())

    return LeavesQueue()


class _TuneWorker(threading.Thread):
    """Thread in which Tune drives its trials."""

    def __init__(self, name: str, tuner: Any, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self._tuner, self._folder = tuner, folder
        self.error: str | None = None

    def run(self) -> None:
        try:
            self._tuner.fit()
        except BaseException as error:
            self.error = f"Ray Tune ended early: {(str(error).strip() or type(error).__name__).splitlines()[-1]}"

    def ended(self) -> bool:
        return not self.is_alive()

    def dismiss(self) -> None:
        """Wait for Tune to note that its last trial has ended."""
        self.join(_LAST_SECONDS)
        self.end(())

    def end(self, handles: Sequence[Any]) -> None:
        """Have Tune end its trials: the places that it has reserved are given back."""
        if self.is_alive():
            with contextlib.suppress(OSError):
                stop_file(self._folder).parent.mkdir(parents=True, exist_ok=True)
                stop_file(self._folder).touch()
            self.join(_END_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
        stop_file(self._folder).unlink(missing_ok=True)
