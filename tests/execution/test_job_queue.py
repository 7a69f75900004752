"""The rules of the queue that workers share: nothing twice, nothing lost, and no worker takes others along."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtlscale.execution import Batched, Job
from mtlscale.execution.faults.dumps import WorkerLocation
from mtlscale.execution.workers.job_queue import JobQueue, LostRun
from mtlscale.records import RunRecord
from mtlscale.records.events import Advanced, EpochEnded, Noted, RunEnded

PLACE = WorkerLocation("node", 1, "file")


def job(run_id: str) -> Job:
    return Job(cast(Any, SimpleNamespace(run_id=run_id)), Path(), Path(run_id))


def queue(names: str, max_failures: int = 1) -> JobQueue:
    return JobQueue({(name,): job(name) for name in names}, max_failures)


def up(one: JobQueue, *workers: str) -> None:
    """Their processes are started."""
    for worker in workers:
        assert one.begin(worker)
        one.enter(worker, PLACE)


def take(one: JobQueue, worker: str) -> str | None:
    found = one.take(worker)
    return None if found is None else found.run.run_id


def ended(run_id: str) -> RunEnded:
    return RunEnded(run_id, cast(RunRecord, None))


def test_every_job_is_held_by_one_worker_in_the_order_of_the_queue() -> None:
    one = queue("abc")
    up(one, "x", "y")
    assert [take(one, "x"), take(one, "y")] == ["a", "b"]
    one.report("x", ended("a"))
    assert take(one, "x") == "c" and one.snapshot().held_jobs == 2
    one.report("y", ended("b"))
    assert take(one, "y") is None
    standing = one.snapshot()
    assert (standing.waiting, standing.held_jobs) == (0, 1)


def test_what_is_told_arrives_once_and_in_order() -> None:
    one = queue("a")
    up(one, "x")
    take(one, "x")
    said = [Noted("a", "hm"), EpochEnded("a", cast(Any, None)), ended("a")]
    for event in said:
        one.report("x", event)
    assert list(one.snapshot().events) == said and one.snapshot().events == ()


def test_the_job_of_a_dead_worker_goes_to_whichever_asks_first() -> None:
    one = queue("ab")
    up(one, "x", "y")
    take(one, "x"), take(one, "y")
    one.report("y", ended("b"))
    assert one.leave("x", "killed") == ("a",)
    assert take(one, "y") == "a"
    one.report("x", ended("a"))  # it held the job once
    assert [event for event in one.snapshot().events if event == ended("a")] == []
    one.report("y", ended("a"))
    assert one.snapshot().events == (ended("a"),)
    assert one.leave("y", "killed") is None and one.leave("y") is None  # it had nothing to do any more


@pytest.mark.parametrize("max_failures", [0, 1, 2])
def test_a_job_fails_after_so_many_workers_with_what_the_first_process_said(max_failures: int) -> None:
    one = queue("ab", max_failures)
    for _ in range(max_failures + 1):
        up(one, "x")
        assert take(one, "x") == "a"
        one.complain("x", "ValueError: the cause")
        one.complain("x", "RuntimeError: connection closed by peer")
        one.leave("x", "of Ray")
    up(one, "x")
    cause = f"its worker died {max_failures + 1} times: ValueError: the cause"
    assert one.snapshot().events == (LostRun("a", cause),)
    assert take(one, "x") == "b"


def test_a_worker_that_ends_leaves_its_job_to_the_others() -> None:
    one = queue("abc")
    up(one, "x", "y")
    take(one, "x"), take(one, "y")
    one.leave("x", "")
    standing = one.snapshot()
    assert standing.waiting == 2 and standing.next_job == "a" and set(standing.workers) == {"y"}
    one.report("y", ended("b"))
    assert take(one, "y") == "a"


def test_a_worker_without_a_job_to_do_need_not_start() -> None:
    one = queue("a")
    up(one, "x")
    take(one, "x")
    assert not one.begin("late")
    one.leave("x", "")
    assert one.begin("late")


def test_workers_that_die_before_they_have_a_job_do_so_a_few_times_only() -> None:
    one = JobQueue({(name,): job(name) for name in "ab"}, 1, patience=3)
    for worker in "uvwxy":
        up(one, worker)
        if worker == "v":  # one that had a job: they are counted anew
            take(one, worker), one.report(worker, ended("a"))
        one.complain(worker, "ImportError: plugin")
        assert one.leave(worker, "of Ray") == (None if worker == "v" else ())
    assert one.snapshot().events == (ended("a"),) and one.snapshot().waiting == 1
    up(one, "z")
    one.leave("z", "RayActorError: its node")
    said = "workers died 4 times before they had a run: RayActorError: its node"
    assert one.snapshot().events == (LostRun("b", said),) and one.snapshot().waiting == 0


def test_a_worker_that_asks_anew_for_its_places_has_not_failed() -> None:
    one = queue("a", 0)
    for _ in range(5):
        assert one.begin("x", "controller")
    assert not one.snapshot().is_up("x") and one.handles() == {"x": ("controller",)}
    for _ in range(2):  # processes
        one.enter("x", PLACE, "places")
    assert one.snapshot().is_up("x") and one.handles() == {"x": ("controller", "places")}
    assert one.leave("x") is None  # it was ended, and has not failed


def test_a_worker_is_quiet_only_while_it_has_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("mtlscale.execution.workers.job_queue.time", SimpleNamespace(monotonic=lambda: now))
    one = queue("a")
    up(one, "x", "y")
    take(one, "x")
    now = 50.0
    workers = one.snapshot().workers
    assert (workers["x"].quiet, workers["x"].run_id) == (50, "a") and (workers["y"].quiet, workers["y"].run_id) == (
        0,
        "",
    )
    one.report("x", Noted("a", "alive"))
    now = 60.0
    assert one.snapshot().workers["x"].quiet == 10


def test_jobs_that_are_given_up_are_said_and_those_that_are_held_go_on() -> None:
    one = queue("abc")
    up(one, "x")
    take(one, "x")
    one.give_up("no worker has come up")
    standing = one.snapshot()
    assert standing.events == (LostRun("b", "no worker has come up"), LostRun("c", "no worker has come up"))
    assert (standing.waiting, standing.held_jobs) == (0, 1)


def test_a_worker_of_one_job_has_that_alone() -> None:
    one = queue("abc")
    assert [one.reserve("x"), one.reserve("y")] == [("a",), ("b",)]
    standing = one.snapshot()
    assert (standing.waiting, standing.held_jobs, standing.next_job) == (1, 2, "a")
    up(one, "x", "y")
    assert [take(one, "y"), take(one, "x")] == ["b", "a"]
    for worker, run_id in (("x", "a"), ("y", "b")):
        one.report(worker, ended(run_id))
        assert take(one, worker) is None
        assert not one.begin(worker)
    assert one.snapshot().waiting == 1


def test_a_worker_of_one_job_leaves_it_to_another_or_ends_with_it() -> None:
    one = queue("ab", 0)
    one.reserve("x"), one.reserve("y")
    one.leave("x")  # it never came up
    assert one.reserve("z") == ("a",)
    up(one, "y")
    assert take(one, "y") == "b"
    one.leave("y", "killed")
    assert one.snapshot().events == (LostRun("b", "its worker died 1 times", (PLACE,), "killed"),)
    one.give_up("no worker has come up")
    assert one.snapshot().events == (LostRun("a", "no worker has come up"),)
    assert not one.begin("z")


def test_a_trial_reserves_its_own_job_and_again_when_its_process_has_died() -> None:
    """Ray Tune starts another process for a trial that has lost its own."""
    one = JobQueue({("a",): job("a"), ("b", "c"): Batched((job("b"), job("c")))}, 1)
    for _ in range(2):
        assert one.reserve("trial 2", ("b", "c")) == ("b", "c")
        one.enter("trial 2", PLACE)
        found = one.take("trial 2")
        assert found is not None and [part.run.run_id for part in found.jobs] == ["b", "c"]
    one.report("trial 2", ended("b"))
    assert one.reserve("trial 2", ("b", "c")) == () and one.take("trial 2") is None
    assert one.snapshot().events == (ended("b"), LostRun("c", "its worker died 2 times", (PLACE,)))
    assert one.reserve("trial 1", ("a",)) == ("a",)


def test_of_a_batched_job_what_has_not_ended_is_done_again() -> None:
    parts = {name: job(name) for name in "abc"}
    one = JobQueue({tuple("abc"): Batched(tuple(parts.values()))}, 1)
    up(one, "x")
    assert one.take("x") == Batched(tuple(parts.values()))
    for event in (Advanced(tuple("abc"), 1), ended("b"), Advanced(tuple("ac"), 2), ended("z")):
        one.report("x", event)
    assert one.snapshot().events == (Advanced(tuple("abc"), 1), ended("b"), Advanced(tuple("ac"), 2))
    one.leave("x", "")
    up(one, "x")
    assert one.take("x") == Batched((parts["a"], parts["c"]))
    one.leave("x", "")
    assert [event.run_id for event in one.snapshot().events if isinstance(event, LostRun)] == ["a", "c"]
    assert one.snapshot().waiting == 0
