"""What trials of Ray Tune get of a planned list, without Ray: short runs several at a time, in their order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtlscale.execution import Batched, Job
from mtlscale.execution.tuning.planned_search import _shares, trial_name


def job(number: int) -> Job:
    run = SimpleNamespace(dataset="digits", method="mgda", seed=0, run_id=str(number), trial={"training.lr": number})
    return Job(cast(Any, run), Path(), Path())


def shares_of(jobs: list[Job | Batched], seconds: float, at_once: int = 2) -> list[tuple[int, int]]:
    """The first and the end of each trial's jobs, where every run takes so many seconds."""
    algorithm, found = _shares(jobs, at_once), []
    while (share := algorithm.suggest(name := f"trial {len(found)}")) != "FINISHED":
        found.append((share["first"], share["end"]))
        count = share["end"] - share["first"]
        algorithm.on_trial_complete(name, {"seconds": seconds * count})
    return found


@pytest.mark.parametrize("seconds", [0.01, 0.2, 2.0, 60.0])
def test_every_job_is_handed_out_once_in_order(seconds: float) -> None:
    jobs: list[Job | Batched] = [Batched((job(0), job(1))), *(job(number) for number in range(2, 200))]
    found = shares_of(jobs, seconds)
    assert found[0] == (0, 1) and found[1] == (1, 2)  # a batch for itself, and one run to measure
    assert [first for first, _ in found] == [0, *(end for _, end in found[:-1])] and found[-1][1] == len(jobs)


def test_short_runs_come_several_at_a_time_and_fewer_towards_the_end() -> None:
    sizes = [end - first for first, end in shares_of([job(number) for number in range(100)], 0.2)]
    assert sizes[0] == 1 and sizes[1] == 10 and sizes[-1] == 1
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert set(shares_of([job(number) for number in range(30)], 3.0)) == {(first, first + 1) for first in range(30)}


def test_a_trial_is_called_by_its_settings_or_by_how_many_it_has() -> None:
    assert trial_name([job(1)]) == "digits · mgda · lr 1"
    assert trial_name([job(1), job(2)]) == trial_name([Batched((job(1), job(2)))]) == "digits · mgda · 2 trials"
