"""The executor, whatever starts its workers: Ray actors, and threads by a start of fifty lines."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import ray

from mtlscale.config import Experiment, ResourceSpec, Run, UserError
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.execution import ActorStart, Batched, Job, Options, execute, execute_jobs
from mtlscale.execution.faults import busy_machine
from mtlscale.execution.faults.dumps import WorkerLocation
from mtlscale.execution.workers.job_queue import JobQueue, RunIds
from mtlscale.execution.workers.ray_queue import RayQueue, complaints
from mtlscale.records import RunRecord
from mtlscale.records.events import Noted, RunEnded

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"

# In the worker, once the record is handed on, the process ends.
DIES_AT_THE_END = """
import os
from pathlib import Path
from typing import ClassVar

from mtlscale.balancing import Balancer
from mtlscale.execution.workers import actor_start

whole = actor_start.execute


def execute(*arguments, **options):
    for event in whole(*arguments, **options):
        yield event
    Path(__file__).with_name("last_word.txt").write_text("")
    os._exit(1)


actor_start.execute = execute


class LastWord(Balancer):
    name: ClassVar[str] = "last_word"
"""


MakeJob = Callable[..., Job]


@pytest.fixture
def job(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
) -> MakeJob:
    """A short run of a method."""
    data = uneven(shared=False)

    def make(method: str, epochs: int = 2) -> Job:
        run = run_of(small(methods=f"[{method}]", training=f"{{epochs: {epochs}, batch_size: 16}}"), data)
        return Job(run, data.folder, tmp_path / run.run_id)

    return make


# -- threads: a start in one file ------------------------------------------------------------------------------------


class LocalQueue:
    """Queue in this process."""

    def __init__(self, jobs: Mapping[RunIds, Job | Batched], max_failures: int, patience: int) -> None:
        self._queue, self._lock = JobQueue(jobs, max_failures, patience), threading.Lock()

    def close(self) -> None:
        """Nothing: its threads have ended."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._queue, name)

        def call(*arguments: Any) -> Any:
            with self._lock:
                return method(*arguments)

        return call


class ThreadWorker:
    """Thread that pulls jobs."""

    def __init__(self, name: str, queue: Any, options: Options, fails: dict[str, int]) -> None:
        self.name, self._queue, self._options, self._fails = name, queue, options, fails
        self._future = ThreadPoolExecutor(1).submit(self._work)

    def _work(self) -> None:
        self._queue.enter(self.name, WorkerLocation("", os.getpid(), ""))
        with complaints(self._queue, self.name):
            while (job := self._queue.take(self.name)) is not None:
                method = job.jobs[0].run.method
                if self._fails.get(method, 0) > 0:
                    self._fails[method] -= 1
                    raise ConnectionError(f"{method} lost")
                for event in execute(job, self._options):
                    self._queue.report(self.name, event)

    def ended(self) -> bool:
        return self._future.done()

    @property
    def error(self) -> str | None:
        error = self._future.exception() if self._future.done() else None
        return None if error is None else str(error)

    def late(self) -> None:
        """Nothing: it finds the queue empty."""

    def dismiss(self) -> None:
        """Nothing: it ends by itself."""

    def end(self, handles: Sequence[Any]) -> None:
        """Nothing: a thread cannot be ended."""


class ThreadStart:
    """Start of workers by `concurrent.futures`."""

    queue, own, capacity = LocalQueue, False, 1

    def __init__(self, options: Options, fails: dict[str, int]) -> None:
        self._options, self._fails = options, fails

    def worker(self, name: str, title: str, queue: Any) -> ThreadWorker:
        return ThreadWorker(name, queue, self._options, self._fails)


def test_another_start_is_one_class_and_a_lost_worker_costs_its_run_a_try(job: MakeJob) -> None:
    """Runs whose worker is lost are tried again as often as `max_failures` says, and the others go on."""
    jobs = [job(method) for method in ("equal", "stl", "mgda")]
    options = Options(ResourceSpec(max_failures=1))
    events = execute_jobs(jobs, 2, options, ThreadStart(options, {"equal": 1, "stl": 2}))
    records = {event.record.method: event.record for event in events if isinstance(event, RunEnded)}
    assert {name: record.status for name, record in records.items()} == {
        "equal": "finished", "mgda": "finished", "stl": "failed",
    }  # fmt: skip
    assert records["stl"].error == "its worker died 2 times: ConnectionError: stl lost"


def test_workers_that_die_before_they_have_a_job_are_not_started_for_ever(job: MakeJob) -> None:
    """One cause for all runs that wait."""
    jobs = [job(method) for method in ("equal", "stl", "mgda")]
    options, started = Options(ResourceSpec(max_failures=1)), []

    class Stillborn(ThreadStart):
        def worker(self, name: str, title: str, queue: Any) -> ThreadWorker:
            started.append(name)
            queue.take = lambda worker: (_ for _ in ()).throw(ImportError("no such plugin"))
            return super().worker(name, title, queue)

    events = execute_jobs(jobs, 2, options, Stillborn(options, {}))
    errors = {event.record.method: event.record.error for event in events if isinstance(event, RunEnded)}
    assert errors == dict.fromkeys(
        ("equal", "stl", "mgda"), "workers died 3 times before they had a run: ImportError: no such plugin"
    )
    assert len(started) == 4  # two at a time


# -- Ray's actors ----------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_a_run_whose_worker_finds_no_place_goes_to_an_idle_one(job: MakeJob, local_ray: None) -> None:
    """Four CPUs, two workers of all four: the second waits for ever, and what it was to do must not."""
    jobs = [job(method) for method in ("equal", "stl")]
    options = Options(ResourceSpec(cpus_per_worker=4), plugins=(str(PLUGIN),))
    records = [event.record for event in by_actors(jobs, options) if isinstance(event, RunEnded)]
    assert sorted(record.method for record in records) == ["equal", "stl"]
    assert {record.status for record in records} == {"finished"}


@pytest.mark.ray
def test_a_worker_that_dies_after_its_last_word_repeats_nothing(job: MakeJob, tmp_path: Path, local_ray: None) -> None:
    """Its record has arrived, the end of its task has not."""
    plugin = tmp_path / "last_word.py"
    plugin.write_text(DIES_AT_THE_END)
    one, other = job("equal"), job("stl")
    options = Options(ResourceSpec(max_failures=3), plugins=(str(PLUGIN), str(plugin)))
    events = [event for event in by_actors([one, other], options, slots=1) if isinstance(event, RunEnded)]
    assert [event.run_id for event in events] == [one.run.run_id, other.run.run_id]
    assert (tmp_path / "last_word.txt").exists()  # the worker did die there


@pytest.mark.ray
def test_a_worker_with_nothing_left_to_do_ends_at_once(job: MakeJob, local_ray: None) -> None:
    """Two of four CPUs each: with one run left, which would take hours, two are free."""
    jobs = [job("equal"), job("stl", epochs=1_000_000)]
    options = Options(ResourceSpec(cpus_per_worker=2), plugins=(str(PLUGIN),))
    events, free, ended = by_actors(jobs, options), 0.0, float("inf")
    for event in events:
        ended = time.monotonic() if isinstance(event, RunEnded) else ended
        if ended < float("inf"):
            free = ray.available_resources().get("CPU", 0)
        if free >= 2 or time.monotonic() > ended + 120:
            break
    events.close()
    assert free == 2


@pytest.mark.ray
def test_runs_that_no_worker_comes_up_for_fail_with_the_cause(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    """Others hold all CPUs."""
    monkeypatch.setattr(busy_machine, "slowdown", lambda: 1.0)
    other = ray.remote(num_cpus=4)(Other).remote()
    ray.get(other.there.remote())
    try:
        options = Options(ResourceSpec(cpus_per_worker=2, start_minutes=0.01), plugins=(str(PLUGIN),))
        jobs = [job(method) for method in ("equal", "stl", "mgda")]
        records = [event.record for event in by_actors(jobs, options) if isinstance(event, RunEnded)]
    finally:
        ray.kill(other)
    assert [record.status for record in records] == ["failed"] * 3
    assert {record.run_id for record in records} == {one.run.run_id for one in jobs}
    assert "no worker has come up within 0.01 minutes: each needs 2 CPUs; others may hold" in str(records[0].error)


@pytest.mark.ray
def test_on_a_busy_machine_workers_are_started_anew_before_runs_are_given_up(
    job: MakeJob, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    """One note says so; the first workers are gone, and the runs are trained by others."""
    from ray._private.state import actors

    before = set(actors())
    other = ray.remote(num_cpus=4)(Other).remote()
    ray.get(other.there.remote())
    jobs, notes, records = [job(method) for method in ("equal", "stl")], [], []
    # The second start has six minutes: however slow the machine is, it is the first alone that may be given up.
    monkeypatch.setattr(busy_machine, "slowdown", lambda: 300.0 if notes else 3.0)
    options = Options(ResourceSpec(cpus_per_worker=2, start_minutes=0.02), plugins=(str(PLUGIN),))
    for event in by_actors(jobs, options):
        if isinstance(event, Noted):
            notes.append(event.text)
            ray.kill(other)
        records += [event.record] if isinstance(event, RunEnded) else []
    assert len(notes) == 1
    assert notes[0].startswith("no worker has come up within 0.06 minutes: each needs 2 CPUs; this machine is busy")
    assert notes[0].endswith("; trying once more")
    assert [record.status for record in records] == ["finished"] * 2
    started = [actor for id, actor in actors().items() if id not in before and "RunWorker" in str(actor)]
    assert len(started) == 4


@pytest.mark.ray
def test_a_queue_that_is_killed_is_said_in_one_line_and_its_workers_end(job: MakeJob, local_ray: None) -> None:
    jobs = [job("equal", epochs=1_000_000)]
    options = Options(ResourceSpec(), plugins=(str(PLUGIN),))
    events = by_actors(jobs, options)
    next(events)
    (queue,) = (process for process in psutil.Process().children(recursive=True) if "JobQueue" in process.name())
    queue.kill()
    with pytest.raises(UserError, match=r"^the queue of jobs has died \(.*\); the same command resumes$"):
        list(events)
    until = time.monotonic() + 60
    while ray.available_resources().get("CPU", 0) < 4:
        assert time.monotonic() < until


@pytest.mark.ray
def test_events_of_a_fast_run_travel_together_and_have_all_arrived_at_its_end(job: MakeJob, local_ray: None) -> None:
    """Each report is a task in Ray's list."""
    one = job("equal")
    run_id = one.run.run_id
    queue = RayQueue({(run_id,): one}, 0, 0)
    queue.begin("x")
    queue.take("x")
    sent, said = [], [Noted(run_id, str(number)) for number in range(200)]
    actor, queue._actor = queue._actor, Counting(queue._actor, sent)
    for event in said:
        queue.report("x", event)
    end = RunEnded(run_id, cast(RunRecord, None))
    queue.report("x", end)
    queue._actor = actor
    assert list(queue.snapshot().events) == [*said, end]
    assert 2 <= len(sent) < 50
    queue.close()


class Counting:
    """An actor's handle that counts its reports."""

    def __init__(self, actor: Any, sent: list[str]) -> None:
        self.report, self._actor, self._sent = self, actor, sent

    def options(self, name: str) -> Any:
        self._sent.append(name)
        return self._actor.report.options(name=name)


def by_actors(jobs: list[Job], options: Options, slots: int = 2) -> Any:
    """The events of jobs that actors do."""
    return execute_jobs(jobs, slots, options, ActorStart(options, "small"))


class Other:
    """Of another user."""

    def there(self) -> bool:
        return True
