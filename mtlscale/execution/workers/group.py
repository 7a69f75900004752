"""Ray Train groups, as many as fit at once, fed from one queue.

Runs of several workers share groups that are started once. With `resources.train` every job has a group of its own,
which Ray Train's page shows under the name of the job.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution.faults import busy_machine, dumps
from mtlscale.execution.faults.failures import StartTimeout, because
from mtlscale.execution.monitoring import log
from mtlscale.execution.placement import needs
from mtlscale.execution.ray_internals import internal
from mtlscale.execution.workers.job_queue import JobQueue, LostRun, QueueSnapshot
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.loopback import torch_config
from mtlscale.execution.workers.names import actor_name
from mtlscale.execution.workers.train_reports import Reports
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import failed, setup, sources
from mtlscale.records.events import Advanced, RunEnded, RunEvent

_LOOK_SECONDS = 0.3  # between two looks at the queue
_END_SECONDS = 20.0  # for groups to end that have found the queue empty
_KEPT_CHECKPOINTS = 100  # records a group keeps as checkpoints of Ray Train: each new one lists all
# A group that waits for its resources asks again after this time, and learns whether any run is left for it. On a busy
# machine Ray needs longer to reserve resources that are free.
_ASK_AGAIN, _ASK_AGAIN_SECONDS = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", 15
_SETTINGS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # a controller takes one report per health check
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # costs an actor per group; runs resume from checkpoints anyway
}

_SHOWN = {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1"}  # on Ray Train's page; costs an actor
# The name of a Train run is also a label of Ray's metrics, which must be ASCII, and a folder.
_NOT_IN_NAMES, _NAME_LENGTH = re.compile(r"[^ -~]|/"), 200


class NothingLeftError(Exception):
    """The reason why a group ends that no job needs."""


def _run_worker(config: dict[str, Any]) -> None:
    """Run a worker of a group: the first takes a job and broadcasts it to the others, all train it together."""
    import ray
    import torch

    queue, name = config["queue"], config["name"]
    options: Options = config["options"]
    ray.get(queue.enter.remote(name, dumps.listen(), ray.util.get_current_placement_group()))

    try:
        setup(options.threads, config["plugins"])
        lead, reports = torch.distributed.get_rank() == 0, Reports()
        torch.distributed.barrier()

        while True:
            box: list[Job | Batched | None] = [ray.get(queue.take.remote(name)) if lead else None]
            torch.distributed.broadcast_object_list(box)
            job = box[0]
            if job is None:
                return
            runs = {part.run.run_id: part.run for part in job.jobs}
            report = queue.report.options(name=f"report · {job.title}")  # how Ray's list of tasks shows what it trains
            for event in execute(job, options):
                if lead:
                    ray.get(report.remote(name, event))
                if not isinstance(event, Advanced):
                    reports.take(runs[event.run_id], event)
    except Exception as error:
        ray.get(queue.complain.remote(name, f"{type(error).__name__}: {error}".splitlines()[0]))
        raise


def _queue_callback(queue: Any, name: str) -> Any:
    """Return the callback by which a group's controller asks the queue before it starts its workers."""
    # It asks before the first start and before each restart, and leaves there what the driver ends the group by.
    callback: type[Any] = internal("ray.train.v2._internal.execution.callback.WorkerGroupCallback")

    class Asks(callback):
        def before_worker_group_start(self, worker_group_context: Any) -> None:
            import ray

            controller = ray.get_runtime_context().current_actor
            refusal, healthy = ray.get(queue.begin.remote(name, controller))
            if refusal is not None:
                raise NothingLeftError(refusal) if healthy else RuntimeError(refusal)

    return Asks()


class _Fit(threading.Thread):
    """Thread that runs one group.

    The group's controller is an actor of its own, so that any number of groups can be waited for side by side.
    """

    def __init__(self, name: str, trainer: Any) -> None:
        super().__init__(name=name, daemon=True)
        self._trainer = trainer
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._trainer.fit()
        except BaseException as error:
            self.error = getattr(error, "controller_failure", error)


class _Groups:
    """The groups, and the queue they take their jobs from: an actor on the driver's node that lives as long as it."""

    def __init__(self, jobs: Sequence[Job | Batched], groups: int, options: Options, storage: Path) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._parts = {part.run.run_id: part for job in jobs for part in job.jobs}
        self._experiment = jobs[0].jobs[0].run.experiment
        self._remaining, self._max_groups, self._options = len(self._parts), groups, options
        self._storage = f"{options.storage}/ray_train" if options.storage else str(storage.absolute())
        self._plugins = sources(options.plugins)

        driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=0)(JobQueue).options(
            name=actor_name("queue", self._experiment), scheduling_strategy=driver_node
        )
        by_runs = {tuple(part.run.run_id for part in job.jobs): job for job in jobs}
        self._queue = actor.remote(by_runs, options.resources.max_failures)

        self._fits: list[_Fit] = []
        self._started, self._cause = 0, ""
        self._started_anew: set[str] = set()  # the groups that were ended because they did not come up
        self._ended: dict[str, tuple[dumps.WorkerLocation, ...]] = {}  # by group, of its workers that hung
        self._start_timeout = StartTimeout(options.resources)

    def events(self) -> Iterator[RunEvent]:
        """Yield the events of all jobs until every job has ended."""
        import ray

        while True:
            standing: QueueSnapshot = ray.get(self._queue.snapshot.remote())
            for event in map(self._event, standing.events):
                self._remaining -= isinstance(event, RunEnded)
                yield event
            if self._remaining == 0:
                return

            self._bury()
            self._start(standing)
            self._end_hung(standing)

            up = any(group.places for group in standing.groups.values())
            yield from self._start_timeout.note(standing.next_job, up)
            if self._start_timeout.try_again:
                self._start_timeout.try_again = False
                self._start_anew(standing)
            if self._start_timeout.failure is not None:
                ray.get(self._queue.give_up.remote(self._start_timeout.failure))
            time.sleep(_LOOK_SECONDS)

    def _event(self, event: RunEvent | LostRun) -> RunEvent:
        if isinstance(event, LostRun):
            found = because(dumps.why_dead(event.places, "")) if event.places else ""
            return RunEnded(event.run_id, failed(self._parts[event.run_id].run, f"{event.cause}{found}"))
        return event

    def end(self) -> None:
        """Wait for groups that have nothing to do any more; end those that do not end by themselves.

        If all runs have ended, groups that still wait for resources learn that they are not needed when they ask again.
        """
        import ray

        try:
            groups = ray.get(self._queue.snapshot.remote(), timeout=_END_SECONDS).groups
            handles = ray.get(self._queue.handles.remote(), timeout=_END_SECONDS)
        except ray.exceptions.RayError:
            return  # Ray itself has ended

        if self._remaining == 0:
            deadline = time.monotonic() + _END_SECONDS
            for fit in self._fits:
                if fit.name in groups and groups[fit.name].places:
                    fit.join(max(0.0, deadline - time.monotonic()))
            late = {fit.name for fit in self._fits if fit.is_alive()}
            groups = {name: group for name, group in groups.items() if group.places and name in late}

        _end_groups(handles.get(name, ()) for name in groups)

    def _start(self, snapshot: QueueSnapshot) -> None:
        """Start a group for every job that waits for one, as long as there is room."""
        import ray

        own = self._options.resources.train  # a group that has had its job takes no other
        free = 0 if own else len(self._fits) - snapshot.held_jobs
        while len(self._fits) < self._max_groups and free < snapshot.waiting:
            self._started, free = self._started + 1, free + 1
            name, title = f"group-{os.getpid()}-{time.time_ns()}-{self._started}", f"group {self._started}"
            if own:
                run_ids = ray.get(self._queue.reserve.remote(name))
                title = Batched(tuple(self._parts[run_id] for run_id in run_ids)).title
            self._fits.append(_Fit(name, self._trainer(name, f"{self._experiment} · {title}")))
            self._fits[-1].start()
        if self._max_groups == 0 and snapshot.waiting:
            ray.get(self._queue.give_up.remote(self._cause))

    def _bury(self) -> None:
        """Remove groups that have ended and give their jobs back; do not replace a group that failed for good."""
        import ray

        for fit in [fit for fit in self._fits if not fit.is_alive()]:
            self._fits.remove(fit)
            ray.get(self._queue.leave.remote(fit.name))
            if fit.error is None or isinstance(fit.error, NothingLeftError) or fit.name in self._started_anew:
                continue
            self._max_groups -= 1
            self._cause = (str(fit.error).strip().splitlines() or [type(fit.error).__name__])[-1]
            log.warning("group lost", extra={"error": self._cause})

    def _start_anew(self, snapshot: QueueSnapshot) -> None:
        """End the groups that have not come up; others start in their places."""
        import ray

        late = {name for name, group in snapshot.groups.items() if not group.places}
        handles = ray.get(self._queue.handles.remote())
        self._started_anew |= late
        _end_groups(handles[name] for name in late & handles.keys())

    def _end_hung(self, snapshot: QueueSnapshot) -> None:
        """Log the thread dumps of workers that hang and end them; the group starts again, its run resumes."""
        for name, group in snapshot.groups.items():
            hangs = group.quiet > 60 * self._options.resources.timeout_minutes and group.places
            if hangs and self._ended.get(name) != group.places:
                self._ended[name] = group.places
                for worker, text in dumps.everywhere(group.places).items():
                    extra = {"dump": text, "seconds": group.quiet, "error": f"process {worker.pid}"}
                    log.warning("worker hangs", extra=extra)
                dumps.everywhere(group.places, "end")

    def _trainer(self, name: str, title: str) -> Any:
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        resources, use_gpu = self._options.resources, self._options.use_gpu
        return TorchTrainer(
            _run_worker,
            train_loop_config={
                "queue": self._queue,
                "name": name,
                "plugins": self._plugins,
                "options": self._options,
            },
            torch_config=torch_config(use_gpu),
            scaling_config=ScalingConfig(
                num_workers=resources.workers, use_gpu=use_gpu, resources_per_worker=needs(resources)
            ),
            run_config=RunConfig(
                name=_NOT_IN_NAMES.sub("-", title)[:_NAME_LENGTH],
                storage_path=f"{self._storage}/{name}",  # Ray Train would go on with another run of this name
                failure_config=FailureConfig(max_failures=-1),  # the queue counts what each job costs
                checkpoint_config=CheckpointConfig(num_to_keep=_KEPT_CHECKPOINTS),
                callbacks=[_queue_callback(self._queue, name)],
            ),
        )


def _end_groups(handles: Iterable[tuple[Any, ...]]) -> None:
    """End the controllers of groups, and give their places back."""
    import ray

    for controller, *placement_groups in filter(None, handles):
        ray.kill(controller)
        for placement_group in placement_groups:  # a placement group outlives its controller
            ray.util.remove_placement_group(placement_group)


def execute_groups(jobs: Sequence[Job | Batched], groups: int, options: Options, storage: Path) -> Iterator[RunEvent]:
    """Work through the jobs on at most `groups` Ray Train groups at once.

    A run whose group loses a worker resumes on whichever group is free first, `max_failures` times.
    """
    for name, value in {**_SETTINGS, **(_SHOWN if options.resources.train else {})}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault(_ASK_AGAIN, f"{_ASK_AGAIN_SECONDS * busy_machine.slowdown():.0f}")
    fleet = _Groups(jobs, min(groups, len(jobs)), options, storage)
    try:
        yield from fleet.events()
    finally:
        fleet.end()
