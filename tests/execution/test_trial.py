"""The one way to drive a run: what it says, what it leaves behind, and what it makes of what it finds."""

from __future__ import annotations

import contextlib
import itertools
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mtlscale.config import Experiment, ResourceSpec, Run, load_plugin
from mtlscale.data import PreparedData
from mtlscale.data.remote import publish
from mtlscale.execution import Batched, Job, Options, Trial, execute, execute_batched, read_data
from mtlscale.records import Home, RunRecord, Storage, read_epochs, read_record
from mtlscale.records.events import Advanced, EpochEnded, Event, Noted, RunEnded
from mtlscale.training import train

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TRAINING = "{epochs: 4, batch_size: 16, lr: 1e-2, dtype: float64, checkpoint_seconds: 0}"

Small = Callable[..., Experiment]
Uneven = Callable[..., PreparedData]
RunOf = Callable[[Experiment, PreparedData], Run]
MakeJob = Callable[..., Job]


@pytest.fixture
def job(small: Small, uneven: Uneven, run_of: RunOf, tmp_path: Path) -> MakeJob:
    """A run of a method on the small uneven data set."""
    load_plugin(EXAMPLES / "two_phases.py")

    def make(method: str = "mgda", home: Path = tmp_path / "home", **lines: str) -> Job:
        data = uneven()
        run = run_of(small(methods=f"[{method}]", **{"training": TRAINING, **lines}), data)
        return Job(run, data.folder, Home(home).run(run.run_id))

    return make


def options(**more: object) -> Options:
    return Options(ResourceSpec(), **more)  # type: ignore[arg-type]


def record_of(events: Iterator[Event]) -> RunRecord:
    *_, end = events
    assert isinstance(end, RunEnded)
    return end.record


def results(record: RunRecord) -> dict[str, object]:
    """What must not depend on how often a run was cut off."""
    epochs = [(epoch.phase, epoch.epoch, epoch.train_loss, epoch.val, epoch.weights) for epoch in record.epochs]
    keys = ("status", "metrics", "last", "chosen_epoch", "steps", "samples", "counters")
    return {"epochs": epochs, **{key: getattr(record, key) for key in keys}}


def row_of(record: RunRecord) -> RunRecord:
    return record.model_copy(update={"epochs": []})


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize("models", [True, False])
def test_a_run_says_its_epochs_and_its_end_and_leaves_record_and_model(models: bool, job: MakeJob) -> None:
    one = job()
    one.folder.mkdir(parents=True)
    (one.folder / "error.txt").write_text("of an earlier attempt")
    trial = Trial(one, options(models=models))
    *epochs, end = trial.events()
    assert [event.epoch.epoch for event in epochs if isinstance(event, EpochEnded)] == [1, 2, 3, 4] and len(epochs) == 4
    assert isinstance(end, RunEnded) and end.record.status == "finished"
    assert {event.run_id for event in (*epochs, end)} == {one.run.run_id}  # type: ignore[union-attr]
    kept = {"model.pt", "test_predictions.safetensors"} if models else set()
    assert names(one.folder) == {"record.json", "epochs.jsonl"} | kept
    assert read_record(one.folder) == row_of(end.record) and read_epochs(one.folder) == end.record.epochs
    if models:
        kept = torch.load(one.folder / "model.pt", weights_only=True)
        assert all(torch.equal(value, kept[name]) for name, value in trial.trainer.chosen_state.items())


def test_what_a_worker_finished_and_could_not_say_is_not_trained_again(job: MakeJob) -> None:
    one = job()
    first, again = (list(execute(one, options())) for _ in range(2))
    assert list(map(type, first)) == [EpochEnded] * 4 + [RunEnded] and again == first[-1:]


@pytest.mark.parametrize("method", ["mgda", "stl", "{architecture: searched_sharing, balancer: mgda}"])
def test_a_checkpoint_that_was_cut_off_begins_the_run_anew_and_says_so(method: str, job: MakeJob) -> None:
    """From its finished phases on, where it has several."""
    one, own = job(method), options()
    list(itertools.islice(execute(one, own), 4))
    checkpoint = one.folder / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    note, *events = execute(one, own)
    assert isinstance(note, Noted) and note.run_id == one.run.run_id
    assert str(checkpoint) in note.text and "the run starts anew" in note.text
    assert len([event for event in events if isinstance(event, EpochEnded)]) == 4
    found, undisturbed = results(record_of(iter(events))), results(train(one.run, read_data(one.data)))
    if "searched" in method:
        assert found["metrics"] == undisturbed["metrics"] and found["last"] == undisturbed["last"]
    else:
        assert found == undisturbed


def test_an_error_is_one_line_in_the_record_and_its_traceback_a_file(job: MakeJob) -> None:
    one = job("{name: static, weights: [1.0]}")
    (end,) = execute(one, options())
    assert isinstance(end, RunEnded) and end.record.status == "failed"
    assert end.record.error is not None and "\n" not in end.record.error and "static" in end.record.error
    assert names(one.folder) == {"error.txt"}  # no record: it is tried again
    text = (one.folder / "error.txt").read_text()
    assert text.startswith("Traceback") and end.record.error in text


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow beyond a few bytes, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("seconds", [0, 1000])
def test_a_full_disk_is_one_line_and_the_run_is_tried_again(seconds: int, job: MakeJob, tmp_path: Path) -> None:
    """Met while a checkpoint is written, or while the results are."""
    mine = job(training=TRAINING.replace("checkpoint_seconds: 0", f"checkpoint_seconds: {seconds}"))
    with full_disk():
        record = record_of(execute(mine, options()))
    assert record.status == "failed"
    assert str(record.error).startswith(f"no space left below {tmp_path / 'home'} on {socket.gethostname()} (")
    assert str(record.error).endswith("free some, the same command resumes")
    assert names(mine.folder) <= {"error.txt"}  # nothing half-written
    assert record_of(execute(mine, options())).status == "finished"


def test_data_that_cannot_be_read_are_an_error_of_the_run(job: MakeJob, tmp_path: Path) -> None:
    one = job()
    record = record_of(execute(Job(one.run, tmp_path / "nothing", one.folder), options()))
    assert record.status == "failed" and "nothing" in str(record.error)


def test_a_failed_record_is_no_end(job: MakeJob) -> None:
    """Of earlier versions, which wrote one."""
    one = job()
    one.folder.mkdir(parents=True)
    broken = record_of(execute(job("{name: static, weights: [1.0]}"), options()))
    (one.folder / "record.json").write_text(broken.model_dump_json())
    assert record_of(execute(one, options())).status == "finished"


def test_a_finished_phase_is_kept_for_all_runs_of_the_home(job: MakeJob, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    own = options(phases=home.phases)
    first = job("{architecture: searched_sharing, balancer: mgda}")
    second = job("{architecture: searched_sharing, balancer: uncertainty}")
    records = [record_of(execute(one, own)) for one in (first, second)]
    assert [[phase.reused for phase in record.phases] for record in records] == [[False], [True]]
    (file,) = home.phases.iterdir()
    assert not (first.folder / "phases").exists()
    file.write_bytes(file.read_bytes()[:100])
    third = job("{architecture: searched_sharing, balancer: getmtl}")
    events = list(execute(third, own))
    assert [str(file) in event.text for event in events if isinstance(event, Noted)] == [True]
    assert record_of(iter(events)).phases[0].reused is False
    assert results(record_of(iter(events))) == results(train(third.run, read_data(third.data)))


def test_nodes_without_a_common_folder_share_phases_through_the_storage(job: MakeJob, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'bucket'}"
    method = "{{architecture: searched_sharing, balancer: {}}}"
    here, there = Home(tmp_path / "here", url), Home(tmp_path / "there", url)
    first, second = job(method.format("mgda"), here.root), job(method.format("uncertainty"), there.root)
    publish(Storage(url), first.data)
    for one, home, reused in ((first, here, False), (second, there, True)):
        record = record_of(execute(one, options(storage=url, phases=home.phases)))
        assert [phase.reused for phase in record.phases] == [reused]
    assert names(here.phases) == names(there.phases) == names(tmp_path / "bucket" / "phases")
    assert Storage(url).finished() == {first.run.run_id, second.run.run_id}


def test_a_member_of_a_population_takes_nothing_for_its_own_and_leaves_nothing_for_others(
    job: MakeJob, tmp_path: Path
) -> None:
    """It goes on with what another trial saved, with its own settings, and keeps its record in its own folder."""
    url, home = f"file://{tmp_path / 'bucket'}", Home(tmp_path / "home")
    method = "{architecture: searched_sharing, balancer: mgda}"
    other = Trial(job(method), options())
    next(other.events())
    other.save(tmp_path / "saved.pt")
    one = job(method, training=TRAINING.replace("1e-2", "1e-3"), home=tmp_path / "population")
    list(itertools.islice(execute(one, options(storage=url)), 4))  # the run with these settings, elsewhere
    finished = record_of(execute(job(method, home=tmp_path / "elsewhere"), options()))
    (one.folder / "record.json").write_text(finished.model_dump_json())
    bucket = [path.stat().st_mtime_ns for path in sorted((tmp_path / "bucket").rglob("*"))]
    member = Trial(one, options(phases=home.phases, storage=url), resumes=False)
    member.adopt(tmp_path / "saved.pt")
    events = list(member.events())
    places = [(event.epoch.phase, event.epoch.epoch) for event in events if isinstance(event, EpochEnded)]
    assert places == [("search", 2), *(("retrain", number) for number in (1, 2, 3, 4))]
    assert member.trainer.session.main.lr == 1e-3
    record = record_of(iter(events))
    assert record.run_id == one.run.run_id and read_record(one.folder) == row_of(record)
    assert not home.phases.exists()
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "bucket").rglob("*"))] == bucket


def test_batched_runs_leave_what_single_ones_leave(job: MakeJob, small: Small, uneven: Uneven, tmp_path: Path) -> None:
    jobs = tuple(job("mgda", training=TRAINING.replace("1e-2", lr)) for lr in ("1e-2", "1e-3"))
    for one in jobs:
        one.folder.mkdir(parents=True)
        (one.folder / "error.txt").write_text("of an earlier attempt")
    events = list(execute(Batched(jobs), options()))
    ended = {event.run_id: event.record for event in events if isinstance(event, RunEnded)}
    assert set(ended) == {one.run.run_id for one in jobs}
    assert all(isinstance(event, RunEnded | Advanced) for event in events)
    for one in jobs:
        assert names(one.folder) == {"record.json", "epochs.jsonl", "model.pt", "test_predictions.safetensors"}
        assert read_record(one.folder) == row_of(ended[one.run.run_id])
    again = list(execute_batched(jobs, options()))  # their worker died before it could say so
    assert {event.run_id: event.record for event in again if isinstance(event, RunEnded)} == ended


def test_an_error_of_all_is_each_batched_runs(job: MakeJob, tmp_path: Path) -> None:
    jobs = [job("mgda", training=TRAINING.replace("1e-2", lr)) for lr in ("1e-2", "1e-3")]
    lost = [Job(one.run, tmp_path / "nothing", one.folder) for one in jobs]
    ended = [event for event in execute_batched(lost, options()) if isinstance(event, RunEnded)]
    assert [event.run_id for event in ended] == [one.run.run_id for one in jobs]
    for one, event in zip(jobs, ended, strict=True):
        assert event.record.status == "failed" and "nothing" in str(event.record.error)
        assert names(one.folder) == {"error.txt"}
        assert (one.folder / "error.txt").read_text().startswith("Traceback")


def test_a_trial_that_fails_among_batched_ones_is_tried_again(job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cause is kept; a record in its folder would be taken for its end."""
    good, bad = (job("mgda", training=TRAINING.replace("1e-2", lr)) for lr in ("1e-2", "1e-3"))
    finished = record_of(execute(job("mgda", home=good.folder.parents[2] / "elsewhere"), options()))
    found = finished.model_copy(update={"run_id": bad.run.run_id, "status": "failed", "error": "ValueError: bad"})

    class Trainer:
        def __init__(self, *_: object, **__: object) -> None:
            self.states: dict[str, object] = {}
            self.test_predictions: dict[str, object] = {}

        def train(self) -> Iterator[tuple[Run, RunRecord]]:
            yield bad.run, found
            yield good.run, finished

    monkeypatch.setattr("mtlscale.batched.BatchedTrainer", Trainer)
    assert list(execute_batched([good, bad], options())) == [
        RunEnded(bad.run.run_id, found),
        RunEnded(good.run.run_id, finished),
    ]
    assert names(bad.folder) == {"error.txt"} and "bad" in (bad.folder / "error.txt").read_text()
    monkeypatch.undo()
    assert record_of(execute(bad, options())).status == "finished"
