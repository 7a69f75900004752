"""Where a queue of jobs lies: in an actor that workers on all nodes reach, or wherever another `Queue` puts it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from mtlscale.config import UserError
from mtlscale.execution.faults.dumps import WorkerLocation
from mtlscale.execution.faults.post_mortem import first_line
from mtlscale.execution.workers.job_queue import JobQueue, QueueSnapshot, RunIds
from mtlscale.execution.workers.jobs import Batched, Job
from mtlscale.execution.workers.names import actor_name
from mtlscale.records.events import RunEnded, RunEvent

# Reports of a worker in a second, on average and at once. Events of fast runs travel together: each report is in Ray's
# list of tasks.
_RATE, _BURST = 2.0, 10.0


class Queue(Protocol):
    """A `JobQueue`, wherever it lies."""

    def reserve(self, worker: str, run_ids: RunIds | None = None) -> RunIds: ...
    def begin(self, worker: str, *handles: Any) -> bool: ...
    def enter(self, worker: str, location: WorkerLocation, *handles: Any) -> None: ...
    def complain(self, worker: str, text: str) -> None: ...
    def take(self, worker: str) -> Job | Batched | None: ...
    def take_own(self, worker: str, run_ids: RunIds, location: WorkerLocation) -> Job | Batched | None: ...
    def report(self, worker: str, *events: RunEvent) -> None: ...
    def leave(self, worker: str, error: str | None = None) -> RunIds | None: ...
    def give_up(self, reason: str) -> None: ...
    def snapshot(self) -> QueueSnapshot: ...
    def handles(self) -> dict[str, tuple[Any, ...]]: ...
    def close(self) -> None: ...


@contextmanager
def complaints(queue: Queue, worker: str) -> Iterator[None]:
    """Tell the queue of an error that ends the worker."""
    try:
        yield
    except Exception as error:
        queue.complain(worker, f"{type(error).__name__}: {error}".splitlines()[0])
        raise


class QueueEndedError(UserError):
    """The error of a queue whose process is gone."""


class RayQueue:
    """Queue in an actor on the driver's node; it travels to workers."""

    def __init__(self, jobs: Mapping[RunIds, Job | Batched], max_failures: int, patience: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        experiment = next((job.jobs[0].run.experiment for job in jobs.values()), "")
        actor = ray.remote(num_cpus=0)(JobQueue).options(
            name=actor_name("queue", experiment), scheduling_strategy=driver_node
        )
        self._actor: Any = actor.remote(jobs, max_failures, patience)
        self._unsent: list[RunEvent] = []
        self._allowed, self._asked = _BURST, 0.0  # reports that a worker may make, and when that was so
        self._title = ""  # of the job it has taken, by which Ray's list of tasks shows its reports

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        return lambda *arguments: self._answer(getattr(self._actor, name).remote(*arguments))

    def _answer(self, asked: Any) -> Any:
        import ray

        try:
            return ray.get(asked)
        except ray.exceptions.RayActorError as error:
            reason = first_line(str(error))
            raise QueueEndedError(f"the queue of jobs has died ({reason}); the same command resumes") from None

    def close(self) -> None:
        """End the actor; a worker that asks afterwards learns that nothing is left for it."""
        import ray

        ray.kill(self._actor)

    def take(self, worker: str) -> Job | Batched | None:
        return self._titled(self._answer(self._actor.take.remote(worker)))

    def take_own(self, worker: str, run_ids: RunIds, location: WorkerLocation) -> Job | Batched | None:
        return self._titled(self._answer(self._actor.take_own.remote(worker, run_ids, location)))

    def _titled(self, job: Job | Batched | None) -> Job | Batched | None:
        self._title = "" if job is None else job.title
        return job

    def report(self, worker: str, *events: RunEvent) -> None:
        """Send events, or keep them for the next report; the end of a run has arrived when this returns."""
        now = time.monotonic()
        self._allowed = min(_BURST, self._allowed + _RATE * (now - (self._asked or now)))
        self._asked = now
        self._unsent += events
        at_end = any(isinstance(event, RunEnded) for event in events)
        if self._allowed < 1 and not at_end:
            return

        sent = self._actor.report.options(name=f"report · {self._title}").remote(worker, *self._unsent)
        self._allowed, self._unsent = max(0.0, self._allowed - 1), []
        if at_end:
            self._answer(sent)
