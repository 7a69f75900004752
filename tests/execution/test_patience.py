"""Waiting for workers that do not come: said once after a minute, given up after `start_minutes`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mtlscale.config import ResourceSpec
from mtlscale.execution import Noted
from mtlscale.execution.faults.failures import StartTimeout


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
