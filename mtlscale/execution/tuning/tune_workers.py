"""Workers of one trial that Ray Tune drives: its trainable is the first, actors beside it are the others.

They are in the trial's placement group and stay from trial to trial, so that a trial starts no process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mtlscale.execution import temp_files
from mtlscale.execution.placement import needs
from mtlscale.execution.workers import rendezvous
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.trial import Trial, execute
from mtlscale.execution.workers.worker import Plugin, setup
from mtlscale.records.events import Advanced, EpochEnded, RunEnded, RunEvent


def bundles(options: Options) -> list[dict[str, float]]:
    """Return the resources of the cluster that each worker of a trial takes."""
    return [needs(options.resources)] * options.resources.workers


class _GroupWorker:
    """Worker other than the first: repeats each step of the first one at the same time, and reports nothing."""

    def __init__(self, threads: int, plugins: Sequence[Plugin]) -> None:
        setup(threads, plugins)

    def node(self) -> str:
        return rendezvous.node_id()

    def join(self, address: str, rank: int, size: int, gpu: bool) -> None:
        rendezvous.join(address, rank, size, gpu=gpu)

    def begin(self, job: Job, options: Options, resumes: bool) -> None:
        self._trial = Trial(job, options, resumes=resumes)
        self._events = self._trial.events()

    def adopt(self, content: bytes) -> None:
        # This node may not see the first worker's files.
        with tempfile.NamedTemporaryFile(prefix=temp_files.prefix("trial")) as file:
            file.write(content)
            file.flush()
            self._trial.adopt(Path(file.name))

    def step(self) -> None:
        """Train up to the next end of an epoch, or of the run."""
        for _ in until_boundary(self._events):
            pass


class WorkerGroup:
    """The workers of a trial: this process is the first; a trial of one worker starts no others."""

    def __init__(self, options: Options, plugins: Sequence[Plugin]) -> None:
        """Start the other workers from the trainable's process, and return once the rendezvous is complete."""
        setup(options.threads, plugins)
        self._members: list[Any] = []
        if options.resources.workers == 1:
            return
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        size, group = options.resources.workers, ray.util.get_current_placement_group()
        for rank, bundle in list(enumerate(bundles(options)))[1:]:
            strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            remote = ray.remote(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0))(_GroupWorker)
            self._members.append(remote.options(scheduling_strategy=strategy).remote(options.threads, list(plugins)))

        nodes = {rendezvous.node_id(), *ray.get([member.node.remote() for member in self._members])}
        address = rendezvous.place(one_node=len(nodes) == 1)
        joined = self._call_all("join", lambda rank: (address, rank, size, options.use_gpu))
        rendezvous.join(address, 0, size, gpu=options.use_gpu)
        ray.get(joined)

    def begin(self, job: Job | Batched, options: Options, *, resumes: bool) -> None:
        """Begin the next trial; drop what the last one had not finished."""
        if isinstance(job, Batched):
            assert not self._members, "one process trains a batched model"
            self._events = execute(job, options)
            return
        pending = self._call_all("begin", lambda rank: (job, options, resumes))
        self._trial = Trial(job, options, resumes=resumes)
        self._events = self._trial.events()
        self._wait(pending)

    def step(self) -> list[RunEvent]:
        """Return the trial's events up to its next end of an epoch, or of a run, or word of how far a batch is."""
        pending = self._call_all("step")
        events = list(until_boundary(self._events))
        self._wait(pending)
        return events

    def save(self, path: Path) -> None:
        """Save the state that another trial may `adopt`."""
        self._trial.save(path)

    def adopt(self, path: Path) -> None:
        pending = self._call_all("adopt", lambda rank: (path.read_bytes(),))
        self._trial.adopt(path)
        self._wait(pending)

    def _call_all(self, method: str, arguments: Any = lambda rank: ()) -> list[Any]:
        return [getattr(member, method).remote(*arguments(rank)) for rank, member in enumerate(self._members, 1)]

    def _wait(self, pending: list[Any]) -> None:
        if pending:
            import ray

            ray.get(pending)


def until_boundary(events: Iterable[RunEvent]) -> Iterable[RunEvent]:
    """Yield the next events of a trial, the last of them the end of an epoch or of a run, or a batch's progress."""
    for event in events:
        yield event
        if isinstance(event, Advanced | EpochEnded | RunEnded):
            return
