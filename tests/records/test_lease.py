"""Who drives an experiment: real processes that ask for its lease, die with it, and stand still."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mtlscale.records import Holder, Lease, Storage, StorageLease, holder_of, take
from mtlscale.records import lease as module
from mtlscale.records.lease import CLAIM, LEASE, LOCK

# Waits for the file `go`, asks once, and keeps what it has got until its input ends.
ASKS = """
import sys, time
from pathlib import Path
from mtlscale.records import take
folder = Path(sys.argv[1])
print("ready", flush=True)
while not (folder.parent / "go").exists():
    pass
lease, holder, why = take(folder, "small")
print("mine" if lease else f"of {holder.pid}" if holder else "nobody's", why, flush=True)
sys.stdin.read()
if lease:
    lease.release()
"""


def asking(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", ASKS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def taken(folder: Path) -> Lease:
    lease, _, _ = take(folder, "small")
    assert lease is not None
    return lease


def left_by(folder: Path, **changes: object) -> Holder:
    """A lease as another process would have left it."""
    folder.mkdir(parents=True, exist_ok=True)
    holder = replace(Holder.me("small", time.time()), **changes)  # type: ignore[arg-type]
    (folder / LEASE).write_text(json.dumps(asdict(holder)))
    return holder


def silent_for(file: Path, seconds: float) -> None:
    now = file.stat().st_mtime
    os.utime(file, (now - seconds, now - seconds))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "experiments" / "small"


def test_of_processes_that_ask_at_once_exactly_one_gets_it(folder: Path) -> None:
    processes = [asking(folder) for _ in range(4)]
    (folder.parent).mkdir(parents=True)
    (folder.parent / "go").touch()
    said = [answer(process) for process in processes]
    mine = [process.pid for process, words in zip(processes, said, strict=True) if words == "mine None"]
    assert len(mine) == 1, said
    assert all(words in ("mine None", f"of {mine[0]} None", "nobody's None") for words in said)
    now = holder_of(folder)
    assert now is not None and now.pid == mine[0] and now.host == socket.gethostname()
    for process in processes:
        process.communicate("")
    assert {path.name for path in folder.parent.iterdir()} == {"go"}  # nothing stays behind


def test_of_processes_that_find_a_dead_one_exactly_one_takes_its_place(folder: Path) -> None:
    (folder.parent).mkdir(parents=True)
    (folder.parent / "go").touch()
    dead = asking(folder)
    assert answer(dead) == "mine None"
    dead.kill()
    dead.wait()
    (folder.parent / "go").unlink()
    processes = [asking(folder) for _ in range(4)]
    (folder.parent / "go").touch()
    said = [answer(process) for process in processes]
    assert said.count(f"mine process {dead.pid} is gone") == 1, said
    assert sum(words.startswith("mine") for words in said) == 1, said
    for process in processes:
        process.communicate("")


def test_a_process_that_lives_keeps_it_however_long_it_stands_still(folder: Path) -> None:
    lease = taken(folder)
    silent_for(folder / LEASE, 3600)
    assert take(folder, "small") == (None, lease.holder, None)
    lease.release()
    assert holder_of(folder) is None


def test_a_process_id_given_out_again_is_not_that_process(folder: Path) -> None:
    holder = left_by(folder, started=1.0)  # our own id, and another beginning
    assert take(folder, "small")[0] is None  # a clock may have been set: it has just given a sign of life
    silent_for(folder / LEASE, 20)
    lease, before, why = take(folder, "small")
    assert lease is not None and before == holder and why == f"process {os.getpid()} is gone"
    lease.release()


def test_another_machine_counts_as_dead_after_a_minute_without_a_sign(folder: Path) -> None:
    holder = left_by(folder, host="node7", space="elsewhere", pid=1)
    silent_for(folder / LEASE, 50)
    assert take(folder, "small") == (None, holder, None)
    silent_for(folder / LEASE, 20)
    lease, before, why = take(folder, "small")
    assert lease is not None and before == holder and str(why).startswith("node7 has given no sign of life for 7")
    lease.release()


def test_a_container_of_the_same_name_is_another_machine(folder: Path) -> None:
    """Its process ids are its own: that one is not here does not make it dead."""
    holder = left_by(folder, space="another namespace", pid=2**22 + 1)
    assert take(folder, "small") == (None, holder, None)


def test_ages_do_not_depend_on_the_clock_of_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = left_by(folder, host="node7", space="elsewhere")
    monkeypatch.setattr(time, "time", lambda: 4e9)  # decades ahead
    assert take(folder, "small") == (None, holder, None)


def test_it_is_touched_and_a_driver_learns_that_another_has_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    lease = taken(folder)
    silent_for(folder / LEASE, 3600)
    old = (folder / LEASE).stat().st_mtime
    until(lambda: (folder / LEASE).stat().st_mtime > old)
    other = left_by(folder, host="node7", space="elsewhere")
    until(lambda: lease.lost is not None)
    lease.release()
    assert lease.lost == other and holder_of(folder) == other  # and leaves it alone


def until(true: object) -> None:
    deadline = time.monotonic() + 120
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_cannot_be_read_is_replaced(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / LEASE).write_text("{")
    taken(folder).release()
    assert not folder.exists()


def test_who_finds_the_lease_locked_asks_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.01)
    folder.mkdir(parents=True)
    locks = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(); sys.stdin.read()"
    command = [sys.executable, "-u", "-c", locks, str(folder / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "\n"
        assert take(folder, "small") == (None, None, None)
        other.kill()  # the kernel unlocks it
        other.wait()
        taken(folder).release()


def test_a_run_belongs_to_the_live_driver_that_claimed_it_first(tmp_path: Path) -> None:
    first, second = (taken(tmp_path / name) for name in ("a", "b"))
    second.claim(["x", "y"])
    first.claim(["y", "z"])  # the older lease, the later claim
    assert second.elsewhere(["x", "y"]) == {}
    assert first.elsewhere(["y", "z"]) == {"y": second.holder}
    second.claim(["w"])
    assert first.elsewhere(["y", "z"]) == {}
    second.release()
    assert not (tmp_path / "b" / CLAIM).exists()
    first.release()


def test_the_claim_of_a_dead_driver_binds_nobody(tmp_path: Path) -> None:
    first, second = (taken(tmp_path / name) for name in ("a", "b"))
    first.claim(["x"])
    second.claim(["x"])
    assert second.elsewhere(["x"]) == {"x": first.holder}
    left_by(tmp_path / "a", token=first.holder.token, host="node7", space="elsewhere")
    silent_for(tmp_path / "a" / LEASE, 100)
    assert second.elsewhere(["x"]) == {}
    first.release()
    second.release()


def test_drivers_with_a_storage_in_common_know_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtlscale.records.storage_lease.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("mtlscale.records.storage_lease.BEAT_SECONDS", 0.05)
    storage = Storage(f"file://{tmp_path}/bucket")
    far = replace(Holder.me("small", 0.0), host="node7", space="elsewhere")
    first, second = StorageLease(storage, far), StorageLease(storage, Holder.me("small", 0.0))
    assert first.take() is None
    assert second.take() == far
    beat = storage.read(lease := f"leases/small/{first._name}")
    until(lambda: storage.read(lease) != beat)
    assert second.take() == far  # it writes on: it lives
    first._over.set()  # dies
    monkeypatch.setattr(module, "LOST_SECONDS", 0.2)
    until(lambda: second.take() is None)
    assert StorageLease(storage, far).take() is not None
    second.release()
    first.release()
    assert storage.below("leases/small") == []
