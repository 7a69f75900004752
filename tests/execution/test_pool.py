"""The pool of workers where there is less room than was thought, as after a lost node."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.execution import Job, Options, execute_pool
from mtlscale.execution.faults import busy_machine
from mtlscale.records.events import Noted, RunEnded

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"

# In the worker, once the record is handed on, the process ends.
DIES_AT_THE_END = """
import os
from pathlib import Path
from typing import ClassVar

from mtlscale.balancing import Balancer
from mtlscale.execution.workers import pool

whole = pool.execute


def execute(*arguments, **options):
    for event in whole(*arguments, **options):
        yield event
    Path(__file__).with_name("last_word.txt").write_text("")
    os._exit(1)


pool.execute = execute


class LastWord(Balancer):
    name: ClassVar[str] = "last_word"
"""

pytestmark = pytest.mark.ray


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


def test_a_run_whose_worker_finds_no_place_goes_to_an_idle_one(job: MakeJob, local_ray: None) -> None:
    """Four CPUs, two workers of all four: the second waits for ever, and what it was to do must not."""
    jobs = [job(method) for method in ("equal", "stl")]
    options = Options(ResourceSpec(cpus_per_worker=4), plugins=(str(PLUGIN),))
    records = [event.record for event in execute_pool(jobs, 2, options) if isinstance(event, RunEnded)]
    assert sorted(record.method for record in records) == ["equal", "stl"]
    assert {record.status for record in records} == {"finished"}


def test_a_worker_that_dies_after_its_last_word_repeats_nothing(job: MakeJob, tmp_path: Path, local_ray: None) -> None:
    """Its record has arrived, the end of its stream has not."""
    plugin = tmp_path / "last_word.py"
    plugin.write_text(DIES_AT_THE_END)
    one = job("equal")
    options = Options(ResourceSpec(max_failures=3), plugins=(str(PLUGIN), str(plugin)))
    events = list(execute_pool([one], 1, options))
    assert list(map(type, events)).count(RunEnded) == 1
    assert (tmp_path / "last_word.txt").exists()  # the worker did die there


def test_a_worker_with_nothing_left_to_do_ends_at_once(job: MakeJob, local_ray: None) -> None:
    """Two of four CPUs each: with one run left, which would take hours, two are free."""
    jobs = [job("equal"), job("stl", epochs=1_000_000)]
    options = Options(ResourceSpec(cpus_per_worker=2), plugins=(str(PLUGIN),))
    events, free, ended = execute_pool(jobs, 2, options), 0.0, float("inf")
    for event in events:
        ended = time.monotonic() if isinstance(event, RunEnded) else ended
        if ended < float("inf"):
            free = ray.available_resources().get("CPU", 0)
        if free >= 2 or time.monotonic() > ended + 120:
            break
    events.close()  # type: ignore[attr-defined]
    assert free == 2


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
        records = [event.record for event in execute_pool(jobs, 2, options) if isinstance(event, RunEnded)]
    finally:
        ray.kill(other)
    assert [record.status for record in records] == ["failed"] * 3
    assert {record.run_id for record in records} == {one.run.run_id for one in jobs}
    assert "no worker has come up within 0.01 minutes: each needs 2 CPUs; others may hold" in str(records[0].error)


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
    for event in execute_pool(jobs, 2, options):
        if isinstance(event, Noted):
            notes.append(event.text)
            ray.kill(other)
        records += [event.record] if isinstance(event, RunEnded) else []
    assert len(notes) == 1
    assert notes[0].startswith("no worker has come up within 0.06 minutes: each needs 2 CPUs; this machine is busy")
    assert notes[0].endswith("; trying once more")
    assert [record.status for record in records] == ["finished"] * 2
    started = [actor for id, actor in actors().items() if id not in before and "_RunWorker" in str(actor)]
    assert len(started) == 4


class Other:
    """Of another user."""

    def there(self) -> bool:
        return True
