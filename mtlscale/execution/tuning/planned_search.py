"""Searches whose trials are planned, by Ray Tune: random and grid searches hand it their list.

A trial of Tune has jobs of the queue for it alone: a run, a batched share of runs, or several runs that take a fraction
of a second each, since Tune needs up to a tenth of a second for a trial. Its actors stay from trial to trial.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution.faults import dumps
from mtlscale.execution.tuning.tune import quiet_tune, stop_file, stop_where_asked
from mtlscale.execution.tuning.tune_trial import finite
from mtlscale.execution.tuning.tune_workers import WorkerGroup, bundles
from mtlscale.execution.workers.executor import execute_jobs
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.ray_queue import Queue, RayQueue, complaints
from mtlscale.execution.workers.worker import sources
from mtlscale.records import score
from mtlscale.records.events import RunEnded, RunEvent

_STEP_SECONDS = 0.5  # of a trial between two reports
_END_SECONDS = 10.0  # for Tune to give back what it holds; a signal leaves no more time
_SHARE_SECONDS = 2.0  # of a trial, where runs are short enough that it has several
_LAST_SECONDS = 120.0  # the same after the last trial: it writes the state of all


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
    """Start of Ray Tune, whose trials are the workers, `slots` of them at once; each does its own jobs of the list."""

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
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                search_alg=_shares(jobs, self.capacity),
                num_samples=len(jobs),
                max_concurrent_trials=self.capacity,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial_name(jobs[trial.config["first"] : trial.config["end"]]),
                trial_dirname_creator=lambda trial: f"trial-{trial.config['first']}",
            ),
            run_config=tune.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                verbose=0,
                stop=stop_where_asked(stop_file(folder)),
                failure_config=tune.FailureConfig(max_failures=-1),  # the queue counts what each job costs
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        worker = _TuneWorker(name, tuner, folder)
        worker.start()
        return worker


def trial_name(jobs: Sequence[Job | Batched]) -> str:
    """Return the name of a trial in Tune's tables, Ray's dashboard and the logs."""
    parts = tuple(part for job in jobs for part in job.jobs)
    if len(parts) > 1:
        return Batched(parts).title
    run = parts[0].run
    settings = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in run.trial.items())
    return " · ".join(filter(None, (run.dataset, run.method, settings)))


def _shares(jobs: Sequence[Job | Batched], at_once: int) -> Any:
    """Return the search algorithm that hands Tune the jobs in their order, short runs several at a time."""
    from ray.tune.search import Searcher

    class Shares(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self._next, self._ended, self._seconds = 0, 0, 0.0  # the last two of runs that are not batched
            self._counts: dict[str, int] = {}  # of such runs, by trial

        def suggest(self, trial_id: str) -> Any:
            first = self._next
            if first == len(jobs):
                return Searcher.FINISHED
            self._next = first + self._count(first)
            if not isinstance(jobs[first], Batched):
                self._counts[trial_id] = self._next - first
            return {"first": first, "end": self._next}

        def _count(self, first: int) -> int:
            if not self._ended:
                return 1
            end = next((i for i in range(first, len(jobs)) if isinstance(jobs[i], Batched)), len(jobs))
            fair = (end - first) // (2 * at_once)  # all workers end at about the same time
            return max(1, min(fair, int(_SHARE_SECONDS * self._ended / max(self._seconds, 1e-3))))

        def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
            count = self._counts.pop(trial_id, 0)
            if result is not None and count:
                self._ended, self._seconds = self._ended + count, self._seconds + result["seconds"]

        def save(self, checkpoint_path: str) -> None:
            """Save nothing: what is done is in the ledger of trials."""

        def restore(self, checkpoint_path: str) -> None:
            """Restore nothing."""

    return Shares()


def _trainable(options: Options) -> type[Any]:
    """Return the class of the trials; Ray is imported late."""
    from ray import tune

    class PlannedTrial(tune.Trainable):
        """Trial of a planned search: its jobs, in steps of half a second."""

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            return tune.PlacementGroupFactory(bundles(options))

        def setup(self, config: dict[str, Any], shared: dict[str, Any] | None = None) -> None:
            assert shared is not None
            self._shared, self._queue = shared, shared["queue"]
            self._location = dumps.listen()
            self._queue.reserve(self.trial_id, ())  # counts a process that dies before its first job
            with complaints(self._queue, self.trial_id):
                self._group = WorkerGroup(shared["options"], shared["plugins"])
            self._begin(config)

        def __repr__(self) -> str:
            """Return the name in Ray's logs and lists; its runs are named by their reports."""
            return f"mtlscale trials of {self._shared['jobs'][0].jobs[0].run.experiment}"

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._begin(new_config)
            return True

        def _begin(self, config: dict[str, Any]) -> None:
            self._waiting = deque(self._shared["jobs"][config["first"] : config["end"]])
            self._left: set[str] = set()
            self._score, self._seconds = finite(None), 0.0

        def _take(self) -> None:
            """Take the next job, unless it was done before a process of this trial died."""
            planned = self._waiting.popleft()
            run_ids = tuple(part.run.run_id for part in planned.jobs)
            if (job := self._queue.take_own(self.trial_id, run_ids, self._location)) is not None:
                self._left = {part.run.run_id for part in job.jobs}
                self._group.begin(job, self._shared["options"], resumes=True)

        def step(self) -> dict[str, Any]:
            began = time.monotonic()
            with complaints(self._queue, self.trial_id):
                while (self._left or self._waiting) and time.monotonic() < began + _STEP_SECONDS:
                    if self._left:
                        self._advance()
                    else:
                        self._take()

            self._seconds += time.monotonic() - began
            done = not self._left and not self._waiting
            if done:
                self._queue.leave(self.trial_id)
            return {"score": self._score, "seconds": self._seconds, "done": done}

        def _advance(self) -> None:
            """Train up to the next events of the job, and report them."""
            for event in self._group.step():
                self._queue.report(self.trial_id, event)
                if isinstance(event, RunEnded):
                    self._left.discard(event.run_id)
                    self._score = max(self._score, finite(score(event.record, self._shared["metric"])))

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Save nothing: runs keep their own checkpoints."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Load nothing: a job goes on from the checkpoints of its runs."""

    return PlannedTrial


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

    def late(self) -> None:
        """Do nothing: Tune's trials have the last jobs."""

    def dismiss(self) -> None:
        self._end_tune(_LAST_SECONDS)

    def end(self, handles: Sequence[Any]) -> None:
        self._end_tune(_END_SECONDS)

    def _end_tune(self, seconds: float) -> None:
        """Have Tune end its trials, which gives back the places that it has reserved."""
        if self.is_alive():
            with contextlib.suppress(OSError):
                stop_file(self._folder).parent.mkdir(parents=True, exist_ok=True)
                stop_file(self._folder).touch()
            self.join(seconds)
        shutil.rmtree(self._folder, ignore_errors=True)
        stop_file(self._folder).unlink(missing_ok=True)
