"""Which reader runs will get is said before anything starts, and batches of trials are held to what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.batched.eligibility.decision import too_large
from mtlscale.config import Experiment, ResourceSpec, UserError
from mtlscale.data.readers.reader_selection import Free
from mtlscale.execution.planning import reader_report
from mtlscale.execution.planning.reader_report import processes_per_node
from mtlscale.execution.rehearsal.dry_run import plan
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Home

Small = Callable[..., Experiment]
SEARCH = "{budget: 4, space: {training.lr: {low: 1.0e-4, high: 1.0e-1, scale: log}}}"


def free(monkeypatch: pytest.MonkeyPatch, host: int) -> None:
    monkeypatch.setattr(Free, "of_this_node", classmethod(lambda cls, gpu: Free(host)))


def test_every_data_set_that_is_still_to_be_trained_on_has_a_line(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 1 << 30)
    (found,) = reader_report.reading(plan(small(), Home(tmp_path)))  # type: ignore[arg-type]
    assert found[0] == "uneven" and found[1].startswith("reader device (") and "1.0 GiB are free" in found[1]
    free(monkeypatch, 30_000)  # the data take 11.4 KiB as they are stored, and are there in float64, too
    (found,) = reader_report.reading(plan(small(), Home(tmp_path)))  # type: ignore[arg-type]
    assert found[1].startswith("reader memory (11.4 KiB") and "once per node" in found[1]
    (found,) = reader_report.reading(plan(small(training="{reader: mapped}"), Home(tmp_path)))  # type: ignore[arg-type]
    assert found == ("uneven", "reader mapped (as the experiment says)")


def test_a_batch_of_trials_that_would_not_fit_is_trained_one_by_one(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(small(), Home(tmp_path))
    run = runs.todo[0]  # type: ignore[union-attr]
    data = runs.data.on_disk(run.data)  # type: ignore[union-attr]
    free(monkeypatch, 1 << 30)
    assert too_large(run, data, 1e6, 4) is None
    assert too_large(run, data, 1e8, 4) is None
    problem = too_large(run, data, 3e8, 4)
    assert problem == "4 batches would hold 1.1 GiB, 1.0 GiB are free"
    run = next(small(training="{reader: mapped}").runs({"uneven": "0"}))
    assert too_large(run, data, 0.0, 1) == "reader mapped does not hold the whole set"


def test_a_search_says_why_its_trials_are_not_batched_and_how_they_read(small: Small, tmp_path: Path) -> None:
    lines = plan(small(search=SEARCH, training="{epochs: 3, reader: mapped}"), Home(tmp_path)).explain()  # type: ignore[union-attr]
    assert any("one by one (reader mapped does not hold the whole set)" in line for line in lines)
    assert "uneven: reader mapped (as the experiment says)" in lines


def test_a_search_names_the_trials_of_an_earlier_space(small: Small, tmp_path: Path) -> None:
    """They are records of the home, and count for nothing."""
    home = Home(tmp_path)
    before = plan(small(search=SEARCH), home)
    (first, *_) = before.plan.board.distinct  # type: ignore[union-attr]
    assert first.run is not None and not any("earlier space" in line for line in before.explain())  # type: ignore[union-attr]
    before.plan.board.take(failed(first.run, "cut off"))  # type: ignore[union-attr]
    lines = plan(small(search=SEARCH.replace("1.0e-4", "1.0e-3")), home).explain()  # type: ignore[union-attr]
    assert lines[0] == "a trial of an earlier space or other settings in this home: records, which do not count"


def test_a_search_that_wants_batches_alone_says_why_there_are_none(small: Small, tmp_path: Path) -> None:
    search = SEARCH.replace("{budget", "{executor: batched, budget")
    with pytest.raises(UserError, match=r"executor batched: .*: reader mapped does not hold .*; set it to auto"):
        plan(small(search=search, training="{epochs: 3, reader: mapped}"), Home(tmp_path))


def test_a_node_has_as_many_processes_as_its_cores_or_gpus_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_report.os, "cpu_count", lambda: 16)
    assert processes_per_node(ResourceSpec(cpus_per_worker=4)) == 4
    assert processes_per_node(ResourceSpec(cpus_per_worker=32)) == 1
    assert processes_per_node(ResourceSpec(cpus_per_worker=1, gpus_per_worker=0.5), gpus=2) == 4
