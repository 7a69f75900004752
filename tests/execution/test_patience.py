"""Waiting for workers that do not come: said once after a minute, given up after `start_minutes`.

On a busy machine they are given more time, and are started anew once.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mtlscale.config import ResourceSpec
from mtlscale.execution.cluster import local_ray
from mtlscale.execution.faults import busy_machine
from mtlscale.execution.faults.failures import StartTimeout
from mtlscale.execution.workers import rendezvous
from mtlscale.records.events import Noted


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without load, on which Ray has not been started."""
    monkeypatch.setattr(busy_machine, "load", lambda: 0.0)
    monkeypatch.setattr(busy_machine, "cores", lambda: 2)
    monkeypatch.setattr(busy_machine, "_ray_start_seconds", 0.0)


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr("mtlscale.execution.faults.failures.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_waiting_is_said_once_and_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = stopped_clock(monkeypatch)
    one = StartTimeout(ResourceSpec(workers=2, cpus_per_worker=4, start_minutes=3))
    said: list[Noted] = []
    for clock.now in range(0, 181, 5):
        said += one.note("a", up=False)
    assert one.failure is None and len(said) == 1 and said[0].run_id == "a"
    assert "no worker has come up for 65 s: a run needs 2, each needs 4 CPUs; others may hold" in said[0].text
    clock.now = 181
    assert not list(one.note("a", up=False))
    assert one.failure is not None and one.failure.startswith(
        "no worker has come up within 3 minutes: a run needs 2, each"
    )


@pytest.mark.parametrize(("run_id", "up"), [("a", True), ("", False)])
def test_a_worker_that_is_up_or_nothing_that_waits_begins_it_anew(
    run_id: str, up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = stopped_clock(monkeypatch)
    one = StartTimeout(ResourceSpec(start_minutes=1))
    for clock.now in range(0, 600, 50):
        assert not list(one.note("a", up=False)) and not list(one.note(run_id, up=up))
    assert one.failure is None


def test_a_busy_machine_has_more_time_and_one_more_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes want each core: four times as long, twice, with a line each."""
    clock = stopped_clock(monkeypatch)
    monkeypatch.setattr(busy_machine, "load", lambda: 8.0)
    one, said, tries = StartTimeout(ResourceSpec(start_minutes=3)), [], []
    for clock.now in range(0, 2000, 5):
        said += one.note("a", up=False)
        if one.try_again:
            one.try_again = False
            tries.append(clock.now)
        if one.failure is not None:
            break
    assert tries == [725] and clock.now == 725 + 725  # the first look after twelve minutes
    busy = "this machine is busy (load 8 on 2 cores), and others may hold the cluster's places"
    first, again = (note.text for note in said)
    assert first.startswith("no worker has come up for 65 s: each needs 1 CPU; ") and busy in first
    assert again.startswith("no worker has come up within 12 minutes: ") and again.endswith("; trying once more")
    assert str(one.failure).startswith("no worker has come up within 12 minutes: each needs 1 CPU; ")


def test_all_start_timeouts_grow_with_load_and_with_the_start_of_ray_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(local_ray.WAIT_VARIABLE, raising=False)

    def timeouts() -> tuple[float, float]:
        return local_ray.start_seconds(), rendezvous.patience().total_seconds()

    assert timeouts() == (60, 300)
    monkeypatch.setattr(busy_machine, "load", lambda: 6.0)
    assert timeouts() == (180, 900)
    busy_machine.note_ray_start(50.0)
    assert timeouts() == (300, 1500) and busy_machine.in_words() == "load 6 on 2 cores, Ray took 50 s to start"
    busy_machine.note_ray_start(5000.0)
    assert timeouts() == (600, 3000)
