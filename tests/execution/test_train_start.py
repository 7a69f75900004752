"""Ray Train: two workers end with the parameters of one, and a killed worker's run resumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import ray
import torch
from ray.train import Result

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.execution import Job, Options, TrainStart, execute_jobs
from mtlscale.execution.faults import busy_machine
from mtlscale.records import read_record
from mtlscale.records.events import Noted, RunEnded
from mtlscale.training import Trainer, train

pytestmark = pytest.mark.ray

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"
METHODS = ("stl", "mgda", "uncertainty")  # conformance has the others, with two processes


def test_two_ray_train_workers_end_with_the_parameters_of_one(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    """Take six steps of each method, float64, unequal task sizes and missing labels, inputs shared or not in turn; and
    of one on data that pass by. One group has them all."""
    training = "{epochs: 2, batch_size: 16, steps_per_epoch: 3, lr: 1e-2, dtype: float64, selection: last}"
    streamed = training.replace("{", "{reader: stream, ")
    cases = [(method, number % 2 == 1, training) for number, method in enumerate(METHODS)]
    jobs, data_of = [], {}
    for method, shared, settings in [*cases, ("equal", False, streamed)]:
        data = uneven(shared=shared)
        options = f"[{{name: uneven, options: {{shared: {str(shared).lower()}}}}}]"
        run = run_of(small(methods=f"[{method}]", datasets=options, training=settings), data)
        jobs.append(Job(run, data.folder, tmp_path / run.run_id))
        data_of[run.run_id] = data
    options_two = Options(ResourceSpec(workers=2), plugins=(str(PLUGIN),))
    events = execute_jobs(jobs, 1, options_two, TrainStart(options_two, tmp_path / "train", "small"))
    records = {event.run_id: event.record for event in events if isinstance(event, RunEnded)}
    for job in jobs:
        record = records[job.run.run_id]
        assert record.status == "finished", record.error
        assert record.workers == 2
        one = Trainer(job.run, data_of[job.run.run_id])
        steps = one.train()
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                alone = stop.value
                break
        two = torch.load(job.folder / "model.pt", weights_only=True)
        assert alone.steps == 6
        for key, value in one.model.state_dict().items():
            error = (value - two[key]).norm() / value.norm()
            assert error <= 1e-9, f"{job.run.method}: {key} differs by {error:.1e}"
        for task, metrics in alone.metrics["test"].items():
            assert record.metrics["test"][task] == pytest.approx(metrics, rel=1e-6)


@pytest.mark.slow
def test_two_groups_share_a_queue_and_a_killed_worker_costs_its_run_nothing(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    data = uneven(shared=False)
    training = "{epochs: 200, batch_size: 16, dtype: float64, checkpoint_seconds: 0.1}"
    runs = [run_of(small(methods=f"[{method}]", training=training), data) for method in ("equal", "stl", "uncertainty")]
    jobs = [Job(run, data.folder, tmp_path / run.run_id) for run in runs]
    options = Options(ResourceSpec(workers=2), plugins=(str(PLUGIN),))
    records, seen, killed = {}, set(), 0
    for event in execute_jobs(jobs, 2, options, TrainStart(options, tmp_path / "train", "small")):
        if isinstance(event, RunEnded):
            records[event.run_id] = event.record
        seen.add(event.run_id)  # type: ignore[union-attr]
        if len(seen) == 2 and not records and not killed:  # both groups have a run
            killed = kill_a_worker()
    assert killed
    for run in runs:
        record, alone = records[run.run_id], train(run, data)
        assert (record.status, record.workers, record.steps) == ("finished", 2, alone.steps), record.error
        assert [epoch.epoch for epoch in record.epochs] == list(range(1, 201))
        for task, metrics in alone.metrics["test"].items():
            assert record.metrics["test"][task] == pytest.approx(metrics, rel=1e-6)
    spans = [(record.started, record.finished) for record in records.values()]
    assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) == 2

    results = [Result.from_path(path) for path in (tmp_path / "train").glob("*/*") if list(path.glob("checkpoint_*"))]
    told = {metrics["run_id"]: (metrics, kept) for result in results for kept, metrics in result.best_checkpoints or []}
    assert set(told) == set(records)
    for run_id, (metrics, kept) in told.items():
        assert metrics["test/a/accuracy"] == records[run_id].metrics["test"]["a"]["accuracy"]
        with kept.as_directory() as folder:
            kept_record = read_record(Path(folder))
            assert kept_record is not None and kept_record.model_dump_json() == records[run_id].model_dump_json()


@pytest.mark.slow
def test_groups_that_are_left_early_give_their_places_back_at_once(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    data = uneven(shared=False)
    run = run_of(small(methods="[equal]", training="{epochs: 1000000, batch_size: 16}"), data)
    options = Options(ResourceSpec(workers=2), plugins=(str(PLUGIN),))
    events = execute_jobs(
        [Job(run, data.folder, tmp_path / "run")], 1, options, TrainStart(options, tmp_path / "train", "small")
    )
    next(events)
    assert ray.available_resources().get("CPU", 0) == 2
    events.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 120
    while ray.available_resources().get("CPU", 0) < 4:
        assert time.monotonic() < deadline


def kill_a_worker() -> int:
    """One training process of this machine's Ray, without a warning."""
    workers = [
        process
        for process in psutil.Process().children(recursive=True)
        if any("RayTrainWorker" in part for part in process.cmdline())
    ]
    workers[0].kill()
    return workers[0].pid


def test_runs_that_no_group_finds_places_for_fail_with_the_cause(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> None:
    """Three CPUs each, of four. On a busy machine a second group asks for them, and a note says so."""
    monkeypatch.setattr(busy_machine, "slowdown", lambda: 2.0)
    data = uneven(shared=False)
    run = run_of(small(methods="[equal]"), data)
    options = Options(ResourceSpec(workers=2, cpus_per_worker=3, start_minutes=0.05), plugins=(str(PLUGIN),))
    note, event = execute_jobs(
        [Job(run, data.folder, tmp_path / "run")], 1, options, TrainStart(options, tmp_path / "train", "small")
    )
    said = "no worker has come up within 0.1 minutes: a run needs 2, each needs 3 CPUs"
    assert isinstance(note, Noted) and note.text.startswith(said) and note.text.endswith("; trying once more")
    assert isinstance(event, RunEnded) and event.record.status == "failed"
    assert said in str(event.record.error)
