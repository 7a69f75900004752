"""The rules of the queue that groups share: nothing twice, nothing lost, and no group takes others along."""

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


def up(one: JobQueue, *groups: str) -> None:
    """Their workers are started."""
    for group in groups:
        assert one.begin(group) == (None, True)
        one.enter(group, PLACE)


def take(one: JobQueue, group: str) -> str | None:
    found = one.take(group)
    return None if found is None else found.run.run_id


def ended(run_id: str) -> RunEnded:
    return RunEnded(run_id, cast(RunRecord, None))


def test_every_job_is_held_by_one_group_in_the_order_of_the_queue() -> None:
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


def test_the_job_of_a_dead_group_goes_to_whichever_asks_first() -> None:
    one = queue("ab")
    up(one, "x", "y")
    take(one, "x"), take(one, "y")
    one.report("y", ended("b"))
    one.begin("x")  # its workers are dead; new ones wait for their places
    assert take(one, "y") == "a"
    one.enter("x", PLACE)
    assert take(one, "x") is None
    one.report("x", ended("a"))  # it held the job once
    assert [event for event in one.snapshot().events if event == ended("a")] == []
    one.report("y", ended("a"))
    assert one.snapshot().events == (ended("a"),)


@pytest.mark.parametrize("max_failures", [0, 1, 2])
def test_a_job_fails_after_so_many_groups_with_what_the_first_worker_said(max_failures: int) -> None:
    one = queue("ab", max_failures)
    for _ in range(max_failures + 1):
        up(one, "x")
        assert take(one, "x") == "a"
        one.complain("x", "ValueError: the cause")
        one.complain("x", "RuntimeError: connection closed by peer")
    up(one, "x")
    assert one.snapshot().events == (LostRun("a", f"its workers died {max_failures + 1} times: ValueError: the cause"),)
    assert take(one, "x") == "b"


def test_a_group_that_ends_for_good_leaves_its_job_to_the_others() -> None:
    one = queue("abc")
    up(one, "x", "y")
    take(one, "x"), take(one, "y")
    one.leave("x")
    one.leave("x")
    standing = one.snapshot()
    assert standing.waiting == 2 and standing.next_job == "a" and set(standing.groups) == {"y"}
    one.report("y", ended("b"))
    assert take(one, "y") == "a"


def test_a_group_without_a_job_to_do_need_not_start() -> None:
    one = queue("a")
    up(one, "x")
    take(one, "x")
    assert one.begin("late") == ("no run is left", True)
    assert one.begin("x") == (None, True)  # what it held waits again


def test_workers_that_die_before_they_have_a_job_do_so_a_few_times_only() -> None:
    one = queue("a", 1)
    for _ in range(2):
        up(one, "x")
        one.complain("x", "ImportError: plugin")
    refusal, well = one.begin("x")
    assert refusal == "workers died 2 times before they had a run: ImportError: plugin" and not well
    assert one.snapshot().waiting == 1  # others may do it


def test_a_group_that_asks_anew_for_its_places_has_not_failed() -> None:
    one = queue("a", 0)
    for _ in range(5):
        assert one.begin("x", "controller") == (None, True)
    assert one.snapshot().groups["x"].places == () and one.handles() == {"x": ("controller",)}
    for _ in range(2):  # workers
        one.enter("x", PLACE, "places")
    assert one.handles() == {"x": ("controller", "places")}


def test_a_group_is_quiet_only_while_it_has_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("mtlscale.execution.workers.job_queue.time", SimpleNamespace(monotonic=lambda: now))
    one = queue("a")
    up(one, "x", "y")
    take(one, "x")
    now = 50.0
    groups = one.snapshot().groups
    assert groups["x"].quiet == 50 and groups["y"].quiet == 0
    one.report("x", Noted("a", "alive"))
    now = 60.0
    assert one.snapshot().groups["x"].quiet == 10


def test_jobs_that_are_given_up_are_said_and_those_that_are_held_go_on() -> None:
    one = queue("abc")
    up(one, "x")
    take(one, "x")
    one.give_up("no worker has come up")
    standing = one.snapshot()
    assert standing.events == (LostRun("b", "no worker has come up"), LostRun("c", "no worker has come up"))
    assert (standing.waiting, standing.held_jobs) == (0, 1)


def test_a_group_of_one_job_has_that_alone_and_again_after_a_loss() -> None:
    one = queue("abc")
    assert [one.reserve("x"), one.reserve("y")] == [("a",), ("b",)]
    standing = one.snapshot()
    assert (standing.waiting, standing.held_jobs, standing.next_job) == (1, 2, "a")
    up(one, "x", "y")
    assert [take(one, "y"), take(one, "x")] == ["b", "a"]
    assert one.begin("x") == (None, True)  # its workers are dead
    one.enter("x", PLACE)
    assert take(one, "x") == "a"
    for group, run_id in (("x", "a"), ("y", "b")):
        one.report(group, ended(run_id))
        assert take(one, group) is None
        assert one.begin(group) == ("no run is left", True)
    assert one.snapshot().waiting == 1


def test_a_group_of_one_job_leaves_it_to_another_or_ends_with_it() -> None:
    one = queue("ab", 0)
    one.reserve("x"), one.reserve("y")
    one.leave("x")  # it never came up
    assert one.reserve("z") == ("a",)
    up(one, "y")
    assert take(one, "y") == "b"
    assert one.begin("y") == ("no run is left", True)
    assert one.snapshot().events == (LostRun("b", "its workers died 1 times", (PLACE,)),)
    one.give_up("no worker has come up")
    assert one.snapshot().events == (LostRun("a", "no worker has come up"),)
    assert one.begin("z") == ("no run is left", True)


def test_of_a_batched_job_what_has_not_ended_is_done_again() -> None:
    parts = {name: job(name) for name in "abc"}
    one = JobQueue({tuple("abc"): Batched(tuple(parts.values()))}, 1)
    up(one, "x")
    assert one.take("x") == Batched(tuple(parts.values()))
    for event in (Advanced(tuple("abc"), 1), ended("b"), Advanced(tuple("ac"), 2), ended("z")):
        one.report("x", event)
    assert one.snapshot().events == (Advanced(tuple("abc"), 1), ended("b"), Advanced(tuple("ac"), 2))
    up(one, "x")
    assert one.take("x") == Batched((parts["a"], parts["c"]))
    one.leave("x")
    assert [event.run_id for event in one.snapshot().events if isinstance(event, LostRun)] == ["a", "c"]
    assert one.snapshot().waiting == 0
