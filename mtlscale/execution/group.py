"""Runs of several workers each: one Ray Train worker group, started once, that works through a queue of runs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution import dumps
from mtlscale.execution.events import Event, RunEnded
from mtlscale.execution.jobs import Job, Options
from mtlscale.execution.trial import execute
from mtlscale.execution.watch import log
from mtlscale.execution.worker import failed, setup, sources


class _Queue:
    """The jobs still to do, and the events on their way to the driver. One actor, so that it outlives a restart of the
    group; the job a dead group held is handed out again, `max_failures` times."""

    def __init__(self, jobs: list[Job], max_failures: int) -> None:
        self._jobs = list(jobs)
        self._events: list[Event] = []
        self._failures = 0
        self._held = False
        self._max = max_failures
        self._places: list[dumps.Place] = []
        self._since = time.monotonic()  # of the last sign of life

    def start(self) -> None:
        """A group begins: if another held the first job, that job cost it its life once more."""
        if self._held:
            self._failures += 1
            if self._failures > self._max:
                run = self._jobs[0].run
                self._events.append(RunEnded(run.run_id, failed(run, f"its workers died {self._failures} times")))
                self._drop()
        self._held = False
        self._places = []
        self._since = time.monotonic()

    def enter(self, place: dumps.Place) -> None:
        """A worker of the group says where it runs."""
        self._places.append(place)

    def quiet(self) -> tuple[float, list[dumps.Place]]:
        """Seconds since the last sign of life, 0 without a job; the workers."""
        return (time.monotonic() - self._since if self._held else 0.0), self._places

    def take(self) -> Job | None:
        """The job to work on now, None when all are done."""
        self._held = bool(self._jobs)
        self._since = time.monotonic()
        return self._jobs[0] if self._jobs else None

    def report(self, event: Event) -> None:
        self._events.append(event)
        self._since = time.monotonic()
        if isinstance(event, RunEnded):
            self._drop()

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _drop(self) -> None:
        self._jobs.pop(0)
        self._failures, self._held = 0, False


def _worker_loop(config: dict[str, Any]) -> None:
    """Every worker of the group: rank 0 takes a job and tells the others, all train it together."""
    import ray
    import torch

    queue: Any = config["queue"]
    options: Options = config["options"]
    setup(options.threads, config["plugins"])
    lead = torch.distributed.get_rank() == 0
    if lead:
        ray.get(queue.start.remote())
    torch.distributed.barrier()
    ray.get(queue.enter.remote(dumps.listen()))
    while True:
        box: list[Job | None] = [ray.get(queue.take.remote()) if lead else None]
        torch.distributed.broadcast_object_list(box)
        job = box[0]
        if job is None:
            return
        for event in execute(job, options):
            if lead:
                ray.get(queue.report.remote(event))


def _torch_config(use_gpu: bool) -> Any:
    """Ray Train's torch backend, with a rendezvous that stays on this machine where the whole group does.

    torch's own rendezvous store listens on all interfaces without authentication; a group on one node meets over a
    file instead and talks over loopback.
    """
    from ray.train.torch import TorchConfig
    from ray.train.torch.config import _TorchBackend

    class LoopbackBackend(_TorchBackend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            size = len(worker_group)
            nodes = set(worker_group.execute(_node_id))
            if use_gpu or len(nodes) > 1:
                super().on_start(worker_group, backend_config)
                return
            meeting = worker_group.execute_single(0, _meeting_file)
            import ray

            ray.get(
                [
                    worker_group.execute_single_async(rank, _join, meeting, rank, size, backend_config.timeout_s)
                    for rank in range(size)
                ]
            )

    class LoopbackTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type:
            return LoopbackBackend

    return LoopbackTorchConfig(timeout_s=300)


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _meeting_file() -> str:
    return str(Path(tempfile.mkdtemp(prefix="mtlscale-")) / "rendezvous")


def _join(meeting: str, rank: int, size: int, timeout_s: int) -> None:
    import datetime

    import torch

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout_s),
    )


def execute_group(jobs: Sequence[Job], options: Options, storage: Path) -> Iterator[Event]:
    """Work through the jobs on one Ray Train group; a dead worker restarts the group, which resumes its run."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    resources = options.resources
    queue = ray.remote(num_cpus=0)(_Queue).remote(list(jobs), resources.max_failures)
    per_worker = {"CPU": resources.cpus_per_worker}
    if options.use_gpu:
        per_worker["GPU"] = resources.gpus_per_worker
    trainer = TorchTrainer(
        _worker_loop,
        train_loop_config={"queue": queue, "plugins": sources(options.plugins), "options": options},
        torch_config=_torch_config(options.use_gpu),
        scaling_config=ScalingConfig(
            num_workers=resources.workers, use_gpu=options.use_gpu, resources_per_worker=per_worker
        ),
        # Every group restart costs one failure; each job may cost `max_failures`, and one more that ends it.
        run_config=RunConfig(
            name=f"group-{os.getpid()}-{time.time_ns()}",
            storage_path=f"{options.storage}/ray_train" if options.storage else str(storage.absolute()),
            failure_config=FailureConfig(max_failures=len(jobs) * (resources.max_failures + 1)),
        ),
    )
    outcome: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=fit, name="ray-train", daemon=True)
    thread.start()
    done: set[str] = set()
    while True:
        alive = thread.is_alive()
        for event in ray.get(queue.events.remote()):
            if isinstance(event, RunEnded):
                done.add(event.run_id)
            yield event
        if not alive:
            break
        quiet, places = ray.get(queue.quiet.remote())
        if quiet > 60 * resources.timeout_minutes and places:
            for place, text in dumps.everywhere(places).items():
                log.warning("worker hangs", extra={"dump": text, "seconds": quiet, "error": f"process {place.pid}"})
            dumps.everywhere(places, "end")  # the group starts again, and its run resumes
        thread.join(timeout=0.3)
    for job in jobs:
        if job.run.run_id not in done:
            reason = str(outcome[0]).strip().splitlines()[-1] if outcome else "the worker group ended early"
            yield RunEnded(job.run.run_id, failed(job.run, reason))
