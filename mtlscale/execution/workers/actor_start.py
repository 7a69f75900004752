"""Workers of one process: Ray actors, each of which keeps libraries and data warm between runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtlscale.execution.faults import dumps
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.names import actor_name
from mtlscale.execution.workers.ray_queue import Queue, RayQueue, complaints
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import Plugin, setup, sources


class ActorStart:
    """Start of workers as Ray actors."""

    queue, own, capacity = RayQueue, False, 1

    def __init__(self, options: Options, experiment: str) -> None:
        import ray

        resources = options.resources
        self._options, self._experiment, self._plugins = options, experiment, sources(options.plugins)
        self._remote = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=resources.gpus_per_worker)(RunWorker)

    def worker(self, name: str, title: str, queue: Queue) -> _ActorWorker:
        actor = self._remote.options(name=actor_name("worker", self._experiment)).remote(
            name, queue, self._options, self._plugins, self._experiment
        )
        return _ActorWorker(name, actor, f"start · {self._experiment} · {title}")


class RunWorker:
    """Actor that takes jobs from the queue, and does each in a task of its own, which is called like its run."""

    def __init__(self, name: str, queue: Queue, options: Options, plugins: list[Plugin], experiment: str) -> None:
        self._name, self._queue, self._options, self._experiment = name, queue, options, experiment
        address = dumps.listen()
        setup(options.threads, plugins)
        queue.enter(name, address)

    def __repr__(self) -> str:
        """Return the name in Ray's logs, which Ray asks for once: its runs are named by their tasks."""
        return f"mtlscale worker of {self._experiment}"

    def pull(self) -> Any:
        """Take the next job and return the task that does it; end this process if no job is left."""
        import ray

        job = self._queue.take(self._name)
        if job is None:
            return ray.actor.exit_actor()
        return ray.get_runtime_context().current_actor.work.options(name=job.title).remote(job)

    def work(self, job: Job | Batched) -> Any:
        """Do a job, report its events, and return the next task."""
        with complaints(self._queue, self._name):
            for event in execute(job, self._options):
                self._queue.report(self._name, event)
        return self.pull()


class _ActorWorker:
    """Actor with the task that it does at present, which returns its next one."""

    def __init__(self, name: str, actor: Any, title: str) -> None:
        self.name = name
        self.error: str | None = None
        self._actor, self._task = actor, actor.pull.options(name=title).remote()
        self._over = False

    def ended(self) -> bool:
        import ray

        try:
            while not self._over and ray.wait([self._task], timeout=0, fetch_local=False)[0]:
                self._task = ray.get(self._task)
        except ray.exceptions.RayError as error:  # its own end among them, which the queue tells from others
            self.error = str(error)
            self.end(())
        return self._over

    def late(self) -> None:
        self.end(())

    def dismiss(self) -> None:
        self.end(())

    def end(self, handles: Sequence[Any]) -> None:
        import ray

        self._over = True
        ray.kill(self._actor)
