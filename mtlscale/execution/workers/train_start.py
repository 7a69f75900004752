"""Workers of several processes: groups of Ray Train, which train each job together (DDP).

A group is started once and does one job after the other. With `resources.train` every job has a group of its own, which
Ray Train's page shows under the name of the job.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution.faults import busy_machine, dumps
from mtlscale.execution.placement import needs
from mtlscale.execution.ray_internals import internal
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.loopback import torch_config
from mtlscale.execution.workers.ray_queue import Queue, QueueEndedError, RayQueue, complaints
from mtlscale.execution.workers.train_reports import Reports
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import setup, sources
from mtlscale.records.events import Advanced

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
    queue.enter(name, dumps.listen(), ray.util.get_current_placement_group())

    with complaints(queue, name):
        setup(options.threads, config["plugins"])
        lead, reports = torch.distributed.get_rank() == 0, Reports()
        torch.distributed.barrier()

        while True:
            box: list[Job | Batched | None] = [queue.take(name) if lead else None]
            torch.distributed.broadcast_object_list(box)
            job = box[0]
            if job is None:
                return
            runs = {part.run.run_id: part.run for part in job.jobs}
            for event in execute(job, options):
                if lead:
                    queue.report(name, event)
                if not isinstance(event, Advanced):
                    reports.take(runs[event.run_id], event)


def _queue_callback(queue: Queue, name: str) -> Any:
    """Return the callback by which a group's controller asks the queue before it starts its workers."""
    # It asks again while the group waits for resources, and leaves there what the driver ends the group by.
    callback: type[Any] = internal("ray.train.v2._internal.execution.callback.WorkerGroupCallback")

    class Asks(callback):
        def before_worker_group_start(self, worker_group_context: Any) -> None:
            import ray

            try:
                is_needed = queue.begin(name, ray.get_runtime_context().current_actor)
            except QueueEndedError:
                is_needed = False
            if not is_needed:
                raise NothingLeftError("no run is left")

    return Asks()


class TrainStart:
    """Start of workers as groups of Ray Train.

    Args:
        options: The options that all runs share.
        storage: The folder for Ray Train's own files.
        experiment: The name of the experiment.
    """

    queue, capacity = RayQueue, 1

    def __init__(self, options: Options, storage: Path, experiment: str) -> None:
        for name, value in {**_SETTINGS, **(_SHOWN if options.resources.train else {})}.items():
            os.environ.setdefault(name, value)
        os.environ.setdefault(_ASK_AGAIN, f"{_ASK_AGAIN_SECONDS * busy_machine.slowdown():.0f}")

        self.own = options.resources.train  # a group that has had its job takes no other
        self._options, self._experiment = options, experiment
        self._storage = f"{options.storage}/ray_train" if options.storage else str(storage.absolute())
        self._plugins = sources(options.plugins)

    def worker(self, name: str, title: str, queue: Queue) -> _Group:
        group = _Group(name, self._trainer(name, f"{self._experiment} · {title}", queue))
        group.start()
        return group

    def _trainer(self, name: str, title: str, queue: Queue) -> Any:
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        resources, use_gpu = self._options.resources, self._options.use_gpu
        return TorchTrainer(
            _run_worker,
            train_loop_config={
                "queue": queue,
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
                failure_config=FailureConfig(max_failures=0, max_preemption_failures=0),  # another group is started
                checkpoint_config=CheckpointConfig(num_to_keep=_KEPT_CHECKPOINTS),
                callbacks=[_queue_callback(queue, name)],
            ),
        )


class _Group(threading.Thread):
    """Thread that runs one group, whose controller is an actor of its own: any number can be waited for at once."""

    def __init__(self, name: str, trainer: Any) -> None:
        super().__init__(name=name, daemon=True)
        self._trainer = trainer
        self.error: str | None = None

    def run(self) -> None:
        try:
            self._trainer.fit()
        except BaseException as error:
            cause = getattr(error, "controller_failure", error)
            if not isinstance(cause, NothingLeftError):
                self.error = (str(cause).strip().splitlines() or [type(cause).__name__])[-1]

    def ended(self) -> bool:
        return not self.is_alive()

    def late(self) -> None:
        """Do nothing: a group that waits for resources learns that it is not needed when it asks again."""

    def dismiss(self) -> None:
        """Do nothing: a group that is up has found the queue empty."""

    def end(self, handles: Sequence[Any]) -> None:
        """End its controller, and give its places back."""
        import ray

        for controller, *placement_groups in filter(None, [handles]):
            ray.kill(controller)
            for placement_group in placement_groups:  # a placement group outlives its controller
                ray.util.remove_placement_group(placement_group)
