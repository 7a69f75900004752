"""Runs of one worker each: a pool of warm actors that work through a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.execution.worker import Event, execute, execute_stack, failed, setup
from mtlscale.experiment import ResourceSpec, Run


@dataclass(frozen=True)
class Job:
    """A run, where its prepared data are and where its files go."""

    run: Run
    data: Path
    folder: Path

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (self,)


@dataclass(frozen=True)
class Stack:
    """Runs on the same data that are trained together as one batched model."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Options:
    """What is the same for every run of an experiment."""

    resources: ResourceSpec
    plugins: tuple[str, ...] = ()
    models: bool = True


class _RunWorker:
    """The actor: one process that keeps libraries and data warm between runs."""

    def __init__(self, threads: int, plugins: list[str]) -> None:
        setup(threads, plugins)

    def run(self, job: Job | Stack, models: bool, use_gpu: bool) -> Iterator[Event]:
        if isinstance(job, Stack):
            runs = [(part.run, part.folder) for part in job.jobs]
            yield from execute_stack(runs, job.jobs[0].data, models=models, use_gpu=use_gpu)
        else:
            yield from execute(job.run, job.data, job.folder, models=models, use_gpu=use_gpu)


def execute_pool(jobs: Sequence[Job | Stack], slots: int, options: Options) -> Iterator[Event]:
    """Work through the jobs on `slots` actors; a run whose actor dies resumes on a new one, `max_failures` times."""
    import ray

    resources = options.resources
    remote = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=resources.gpus_per_worker)(_RunWorker)

    def start() -> Any:
        return remote.remote(int(resources.cpus_per_worker), list(options.plugins))

    queue: deque[tuple[Job | Stack, int]] = deque((job, 0) for job in jobs)
    idle = [start() for _ in range(min(slots, len(jobs)))]
    ended: set[str] = set()
    busy: dict[Any, tuple[Any, Job | Stack, int]] = {}  # stream of events -> (actor, job, failures so far)
    try:
        while queue or busy:
            while queue and idle:
                actor = idle.pop()
                job, failures = queue.popleft()
                stream = actor.run.options(num_returns="streaming").remote(
                    job, options.models, resources.gpus_per_worker > 0
                )
                busy[stream] = (actor, job, failures)
            ready, _ = ray.wait(list(busy), num_returns=1, fetch_local=False)
            stream = ready[0]
            actor, job, failures = busy[stream]
            try:
                event: Event = ray.get(next(stream))
            except StopIteration:
                del busy[stream]
                idle.append(actor)
                continue
            except ray.exceptions.RayError as error:
                del busy[stream]
                ray.kill(actor)
                idle.append(start())
                if failures < resources.max_failures:
                    queue.appendleft((job, failures + 1))
                else:
                    reason = f"its worker died {failures + 1} times: {str(error).strip().splitlines()[0]}"
                    for run in (part.run for part in job.jobs if part.run.run_id not in ended):
                        yield ("record", run.run_id, failed(run, reason))
                continue
            if event[0] == "record":
                ended.add(event[1])
            yield event
    finally:
        for actor in [*idle, *(entry[0] for entry in busy.values())]:
            ray.kill(actor)
