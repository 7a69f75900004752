"""Two drivers of one home: one watches, or leaves at once; and what happens to both that are told to stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from command import mtlscale, refused
from listening import Listening, board_of
from processes import run_workers, wait_until_gone
from tracked import give_database

from mtlscale.api import run
from mtlscale.config import Experiment, Run, UserError, load_experiment
from mtlscale.data import PreparedData
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution import Batched, Interrupted, Job, Options, execute
from mtlscale.execution.ownership import driving
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.stopping import DoneCount, deaf_children
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Home, Ledger, RunRecord, holder_of
from mtlscale.records.events import Event, Planned, RunEnded, Watching
from mtlscale.tracking import Tracker

HOLDS = """
import sys
from pathlib import Path
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.ownership import driving
from mtlscale.records import Home
with driving(sys.argv[2], Home(Path(sys.argv[1])), Sinks(), wait=True):
    print("holds", flush=True)
    sys.stdin.read()
"""

# Starts twenty experiments, each at the same moment as a second process, and runs what is not done.
STARTS_OFTEN = """
import os, sys, time
from pathlib import Path
from mtlscale.execution import ownership
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Home
ownership.LOOK_SECONDS = 0.02
home, me, other = Home(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
for name in (f"small{number}" for number in range(20)):
    (home.root / f"{name}.{me}").touch()
    while not (home.root / f"{name}.{other}").exists():
        pass
    with ownership.driving(name, home, Sinks(), wait=True):
        driving = home.root / f"{name}.driving"
        os.close(os.open(driving, os.O_CREAT | os.O_EXCL))
        if not home.ledger(name).exists():
            time.sleep(0.01)
            with home.ledger(name).open("a") as file:
                print(me, file=file)
        driving.unlink()
"""


@contextlib.contextmanager
def other_driver(home: Path, name: str = "small") -> Iterator[subprocess.Popen[str]]:
    """Another process that drives the experiment until its input ends."""
    command = [sys.executable, "-c", HOLDS, str(home), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "holds\n"
        try:
            yield process
        finally:
            process.kill()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_no_wait_is_one_line_and_writes_nothing(
    experiment_file: Callable[..., Path], small: Callable[..., Experiment], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    path = experiment_file()
    with other_driver(home) as other:
        before = files(home)
        said = refused("run", path, "--home", home, "--no-wait")
        assert f"small is being run by process {other.pid} on " in said
        with pytest.raises(UserError, match=f"process {other.pid} "):
            run(small(), home=home, wait=False)
        assert files(home) == before


def test_whoever_waits_goes_on_when_the_other_ends_or_dies(tmp_path: Path) -> None:
    home, once = Home(tmp_path), [lambda: None]

    def watch(event: Event) -> None:
        if isinstance(event, Watching):
            act, once[0] = once[0], lambda: None
            act()

    watcher = Listening(watch)
    with other_driver(tmp_path) as first:
        once[0] = threading.Thread(target=first.communicate, args=("",)).start
        with driving("small", home, Sinks(watcher), wait=True):
            assert first.wait(timeout=100) is not None and holder_of(home.experiment("small")) is not None
    assert holder_of(home.experiment("small")) is None
    watched, on = watcher.notes
    assert f"small is being run by process {first.pid} on " in watched and "Ctrl-C leaves it alone" in watched
    assert on.startswith(f"process {first.pid} on ") and on.endswith(" has ended; going on with what it has left")
    assert watcher.watched
    with other_driver(tmp_path) as second:
        once[0] = second.kill
        with driving("small", home, Sinks(watcher), wait=True):
            pass
    assert f"small was left by process {second.pid} on " in watcher.notes[-1] and "taken over" in watcher.notes[-1]


def test_a_driver_whose_lock_is_lost_leaves_the_experiment_to_the_next(tmp_path: Path) -> None:
    with driving("small", Home(tmp_path), Sinks(), wait=True) as owner:
        owner.check()
        (tmp_path / "experiments" / "small" / ".lock").unlink()
        with other_driver(tmp_path) as other, pytest.raises(UserError, match=f"was taken over by process {other.pid} "):
            while other.poll() is None:
                owner.check()
                time.sleep(0.05)


def test_of_two_processes_that_start_twenty_experiments_at_once_one_runs_each(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", STARTS_OFTEN, str(tmp_path)]
    with subprocess.Popen([*command, "a", "b"]) as first, subprocess.Popen([*command, "b", "a"]) as second:
        try:
            assert (first.wait(100), second.wait(100)) == (0, 0)
        finally:
            first.kill()
            second.kill()
    ledgers = [Home(tmp_path).ledger(f"small{number}").read_text() for number in range(20)]
    assert all(text in ("a\n", "b\n") for text in ledgers)


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C, which what runs in the background of a shell does not hear."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_leaves_the_other_alone(tmp_path: Path, heard: None) -> None:
    with other_driver(tmp_path) as other:
        listening = Listening(lambda event: isinstance(event, Watching) and os.kill(os.getpid(), signal.SIGINT))
        with (
            pytest.raises(Interrupted, match=f"small goes on in process {other.pid} ") as stop,
            driving("small", Home(tmp_path), Sinks(listening), wait=True),
        ):
            pass
        assert stop.value.status == 130 and other.poll() is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_a_signal_that_something_swallowed_is_raised_again(name: str, tmp_path: Path) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # `nohup` runs these tests with SIGHUP ignored
    try:
        with pytest.raises(Interrupted) as stop, driving("small", Home(tmp_path), Sinks(), wait=True) as owner:
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), number)
                time.sleep(10)
            owner.check()
    finally:
        signal.signal(number, before)
    assert stop.value.status == 128 + number and "the same command resumes" in str(stop.value)
    assert not (tmp_path / "experiments" / "small" / "driver.json").exists()


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As SIGHUP below `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with driving("small", Home(tmp_path), Sinks(), wait=True):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_children_do_not_hear_the_notices_of_schedulers() -> None:
    """Those of a terminal or a job step go to its whole process group, a local Ray included."""
    with deaf_children():
        child = subprocess.Popen(["sleep", "60"])
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        child.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.kill()
    child.wait()
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.ownership import driving
from mtlscale.records import Home, write_atomically
home = Home(Path(sys.argv[1]))
with driving("small", home, Sinks(), wait=True):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    write_atomically(home.root / "x", bytes(2000))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert f"no space left below {tmp_path} on " in last and "(File too large); free some, the same command" in last
    assert "UserError" in last and not files(tmp_path)


def test_a_home_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with (
        pytest.raises(UserError, match=r"home.* cannot be written \(Not a directory\); choose another --home"),
        driving("small", Home(tmp_path / "home"), Sinks(), wait=True),
    ):
        pass


@pytest.fixture
def three(small: Callable[..., Experiment], uneven: Callable[..., PreparedData], tmp_path: Path) -> list[Job]:
    experiment = small()
    runs = experiment.runs(dict.fromkeys(experiment.data(), uneven().manifest.fingerprint))
    home = Home(tmp_path)
    return [Job(run, tmp_path, home.run(run.run_id)) for run in runs]


def train(jobs: Sequence[Job | Batched], order: list[str]) -> Iterator[Event]:
    """What workers would do, in no time."""
    for job in jobs:
        for part in job.jobs:
            order.append(part.run.method)
            yield RunEnded(part.run.run_id, left_by(part.run, part.folder, "mine"))


def left_by(run: Run, folder: Path, who: str) -> RunRecord:
    record = failed(run, who).model_copy(update={"status": "finished", "experiment": who})
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(record.model_dump_json())
    return record


def test_an_interruption_says_how_many_runs_are_done(three: list[Job], tmp_path: Path) -> None:
    board = board_of(*(job.run for job in three))
    board.know(failed(three[0].run, "it"))
    done = DoneCount()
    with (
        pytest.raises(Interrupted, match=r"^interrupted: 1 of 3 runs are done; the same command resumes$") as stop,
        done,
        driving("small", Home(tmp_path), Sinks(), wait=True),
    ):
        done.take(Planned("small", board, 1, 3))
        board.know(left_by(three[1].run, three[1].folder, "me"))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    assert stop.value.status == 143


def test_runs_that_two_experiments_share_are_trained_by_whoever_claimed_them_first(
    three: list[Job], tmp_path: Path
) -> None:
    """stl is trained by the other meanwhile, equal is free, mgda comes back when the other dies."""
    stl, _, mgda = three
    folder, order, told = tmp_path / "experiments" / "other", list[str](), Listening()
    with other_driver(tmp_path, "other") as other:
        (folder / "claim.json").write_text(json.dumps([stl.run.run_id, mgda.run.run_id]))
        with driving("small", Home(tmp_path), Sinks(told), wait=True) as owner:
            events = owner.claimed_jobs([Batched((stl, mgda)), three[1]], lambda jobs: train(jobs, order))
            first = next(events)
            assert isinstance(first, RunEnded) and order == ["equal"]
            left_by(stl.run, stl.folder, "other")
            second = next(events)
            assert isinstance(second, RunEnded) and second.run_id == stl.run.run_id and order == ["equal"]
            assert second.record.experiment == "small"  # as it is called here
            other.kill()
            other.wait()
            assert [event.run_id for event in events if isinstance(event, RunEnded)] == [mgda.run.run_id]
    assert order == ["equal", "mgda"]
    (note,) = told.notes
    assert note.startswith(f"2 of these runs are being trained for other (process {other.pid} on ")


@pytest.mark.ray
def test_two_drivers_train_every_run_once(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    """Start the second one, this process, as soon as the first has the experiment, before its worker has come up.

    Which of them gets it where both ask at once is told in tests/records/test_driver_lock.py.
    """
    import ray

    path = experiment_file(
        methods="[stl, equal]",
        training="{epochs: 2, batch_size: 8, lr: 1e-2}",
        resources="{cpus_per_worker: 4}",
        tracking="{enabled: false}",
    )
    home = tmp_path / "home"
    env = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    arguments = ["run", str(path), "--home", str(home)]
    command = [sys.executable, "-m", "mtlscale.cli", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    first = subprocess.Popen(command, **pipes, env=env, text=True)
    deadline = time.monotonic() + 120
    while holder_of(Home(home).experiment("small")) is None:
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    second = mtlscale(*arguments)
    out, error = first.communicate()
    assert (first.returncode, second.code) == (0, 0), (out, error, second)
    outputs = [out, second.stdout]
    assert [out.count("is being run by process") for out in outputs] == [0, 1]
    assert all("mean" in out for out in outputs) and "2 of 2 runs are done already" in outputs[1]
    assert [record.status for record in Ledger(Home(home).ledger("small"))] == ["finished"] * 2


@pytest.mark.slow  # kill -9 is in the default suite
@pytest.mark.ray
def test_sigterm_ends_in_good_order_and_the_same_command_goes_on(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    import mlflow

    path = experiment_file(
        training="{epochs: 40, batch_size: 4, lr: 1e-2, checkpoint_seconds: 0}", methods="[equal, aamtrl]"
    )
    home = tmp_path / "home"
    ledger = Ledger(Home(home).ledger("small"))
    command = [sys.executable, "-m", "mtlscale.cli", "run", str(path), "--home", str(home), "--set", "seeds=[0, 1]"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (ledger.latest() and list(home.glob("runs/*/checkpoint.pt"))):
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    processes = psutil.Process(driver.pid).children(recursive=True)
    assert run_workers(psutil.Process(driver.pid))
    driver.terminate()
    _, told = driver.communicate()
    assert driver.returncode == 143, told
    before = {run_id: record.finished for run_id, record in ledger.latest().items()}
    assert told == f"mtlscale: interrupted: {len(before)} of 4 runs are done; the same command resumes\n"
    wait_until_gone(processes)
    assert not (home / "experiments" / "small" / "driver.json").exists()
    client = mlflow.MlflowClient(tracking_uri=Home(home).tracking_uri)

    def states() -> set[str]:
        found = client.search_runs([client.get_experiment_by_name("small").experiment_id])
        return {run.info.status for run in found}

    assert states() == {"KILLED", "FINISHED"}
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {run_id: ledger.latest()[run_id].finished for run_id in before} == before
    assert len(list(ledger)) == 4 and states() == {"FINISHED"}


@pytest.mark.ray
def test_a_run_that_ended_unheard_is_told_to_mlflow_by_the_next_driver(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    """Its worker had written the record when the driver went; there is nothing left to train."""
    import mlflow

    experiment, home = load_experiment(experiment_file(methods="[equal]")), Home(tmp_path / "home")
    give_database(home.root)
    prepared = load_prepared(prepare("uneven", {}, None, home.root))
    (one_run,) = experiment.runs(dict.fromkeys(experiment.data(), prepared.manifest.fingerprint))
    tracker = Tracker(experiment, home)
    tracker.started(one_run)
    job = Job(one_run, prepared.folder, home.run(one_run.run_id))
    ended = list(execute(job, Options(experiment.resources)))[-1]  # as its worker does
    assert isinstance(ended, RunEnded) and ended.record.status == "finished"
    assert tracker.close("KILLED") is None
    client = mlflow.MlflowClient(tracking_uri=home.tracking_uri)
    place = client.get_experiment_by_name("small").experiment_id
    assert {one.info.status for one in client.search_runs([place])} == {"KILLED"}
    assert not home.ledger("small").exists()
    record_file = home.run(one_run.run_id) / "record.json"
    written = record_file.read_bytes()
    run(experiment, home=home)
    assert record_file.read_bytes() == written
    assert {one.info.status for one in client.search_runs([place])} == {"FINISHED"}
    # The run, the row of its method, and the report.
    assert len(client.search_runs([place])) == 3 and len(list(Ledger(home.ledger("small")))) == 1
