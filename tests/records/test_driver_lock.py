"""Who drives an experiment: real processes that ask for its lock, hold it and die with it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mtlscale.config import UserError
from mtlscale.records import DriverLock, Holder, Storage, StorageLease, holder_of
from mtlscale.records import driver_lock as module
from mtlscale.records.driver_lock import CLAIM, DRIVER, LOCK

# Waits for the file `go`, asks once, and keeps what it has got until its input ends.
ASKS = """
import sys
from pathlib import Path
from mtlscale.records import DriverLock
lock = DriverLock(Path(sys.argv[1]), "small")
print("ready", flush=True)
while not (lock.folder.parent / "go").exists():
    pass
holder = lock.take()
print("mine" if holder is None else f"of {holder.pid}", lock.predecessor and lock.predecessor.pid, flush=True)
sys.stdin.read()
lock.release()
"""

# Drives again and again, each time with nothing to keep; two at once would make the same file.
DRIVES_OFTEN = """
import os, sys, time
from pathlib import Path
from mtlscale.records import DriverLock
folder, times = Path(sys.argv[1]), int(sys.argv[2])
driving, ledger = folder.parents[1] / "driving", folder.parents[1] / "ledger"
lock = DriverLock(folder, "small")
for number in range(times):
    while lock.take() is not None:
        pass
    os.close(os.open(driving, os.O_CREAT | os.O_EXCL))
    time.sleep(0.01)
    with ledger.open("a") as file:
        file.write(f"{os.getpid()} {number}\\n")
    driving.unlink()
    lock.release()
"""

# Has a child that outlives it, started in one of the ways that Python has.
HAS_A_CHILD = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from mtlscale.records import DriverLock
lock = DriverLock(Path(sys.argv[1]), "small")
assert lock.take() is None
if sys.argv[2] == "os.fork":
    child = os.fork()
    if child == 0:
        lock.release()  # as unwinding its stack would
        time.sleep(600)
elif sys.argv[2] == "multiprocessing":
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    child = process.pid
else:
    child = subprocess.Popen(["sleep", "600"], close_fds=False).pid
time.sleep(0.2)
print(child, flush=True)
time.sleep(600)
"""

# The kernel answers every `flock` of this process with an error, as network shares without locks do.
NO_LOCKS = """
import ctypes, platform, struct, sys
from pathlib import Path
from mtlscale.config import UserError
from mtlscale.records import DriverLock
number = {"x86_64": 73, "aarch64": 32}[platform.machine()]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | int(sys.argv[2])), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]
call = ctypes.CDLL(None).prctl
if call(38, 1, 0, 0, 0) or call(22, 2, ctypes.byref(Filter(len(steps), ctypes.addressof(program))), 0, 0):
    sys.exit(77)
try:
    DriverLock(Path(sys.argv[1]), "small").take()
except UserError as error:
    print(error)
"""


@contextlib.contextmanager
def python(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def asked(folder: Path, count: int) -> list[tuple[int, str]]:
    """The ids and answers of processes that ask at the same moment and then end."""
    go = folder.parent / "go"
    go.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(python(ASKS, folder)) for _ in range(count)]
        assert [answer(process) for process in processes] == ["ready"] * count
        go.parent.mkdir(parents=True, exist_ok=True)
        go.touch()
        answers = [(process.pid, answer(process)) for process in processes]
        (mine,) = [pid for pid, words in answers if words.startswith("mine")]
        holder = holder_of(folder)
        assert holder is not None and (holder.pid, holder.host) == (mine, socket.gethostname())
        for process in processes:
            process.communicate("")
        return answers


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def taken(folder: Path) -> DriverLock:
    lock = DriverLock(folder, folder.name)
    assert lock.take() is None
    return lock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "experiments" / "small"


def test_of_processes_that_ask_at_once_exactly_one_gets_it(folder: Path) -> None:
    answers = asked(folder, 4)
    (mine,) = [pid for pid, words in answers if words == "mine None"]
    assert all(words in ("mine None", f"of {mine} None") for _, words in answers), answers
    assert {path.name for path in folder.parent.iterdir()} == {"go"}  # nothing stays behind


def test_of_processes_that_find_a_dead_one_exactly_one_takes_its_place(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    (folder.parent / "go").touch()
    with python(ASKS, folder) as dead:
        assert (answer(dead), answer(dead)) == ("ready", "mine None")
        dead.kill()
        dead.wait()
    assert holder_of(folder) is None
    answers = [words for _, words in asked(folder, 4)]
    assert answers.count(f"mine {dead.pid}") == 1, answers
    assert sum(words.startswith("mine") for words in answers) == 1, answers


@pytest.mark.parametrize("way", ["os.fork", "multiprocessing", "subprocess"])
def test_a_child_that_outlives_a_killed_driver_does_not_keep_its_lock(folder: Path, way: str) -> None:
    with python(HAS_A_CHILD, folder, way) as driver:
        child = int(answer(driver))
        holder = holder_of(folder)
        assert holder is not None and holder.pid == driver.pid
        driver.kill()
        driver.wait()
        try:
            os.kill(child, 0)  # it lives
            lock = taken(folder)
            assert lock.predecessor == holder
            lock.release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_two_processes_that_drive_twenty_times_never_do_at_once(folder: Path) -> None:
    """Each removes the lock's file and its folders at its end."""
    with python(DRIVES_OFTEN, folder, 20) as first, python(DRIVES_OFTEN, folder, 20) as second:
        assert (first.wait(), second.wait()) == (0, 0)
    lines = (folder.parents[1] / "ledger").read_text().splitlines()
    assert sorted(lines) == sorted(f"{process.pid} {number}" for process in (first, second) for number in range(20))
    assert not folder.parent.exists()


def test_a_file_that_is_removed_before_it_is_locked_counts_for_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its open handle can still be locked, and on NFS, which renames the file, it looks as if it had its name."""
    open_file = os.open

    def open_late(path: str, *arguments: int, **options: int) -> int:
        handle = open_file(path, *arguments, **options)
        if Path(path) == folder / LOCK and not (tmp_path / ".nfs1").exists():
            (folder / LOCK).rename(tmp_path / ".nfs1")
        return handle

    monkeypatch.setattr(os, "open", open_late)
    lock = taken(folder)
    assert DriverLock(folder, "small").take() == lock.holder
    lock.release()


def test_looks_do_not_keep_a_driver_from_its_lock(folder: Path) -> None:
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            holder_of(folder)

    folder.mkdir(parents=True)
    (folder / "plan.json").touch()
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            taken(folder).release()
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_driver_without_its_file_is_another_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 10)
    lock = taken(folder)
    (folder / DRIVER).unlink()
    holder = DriverLock(folder, "small").take()
    assert holder is not None and str(holder) == "another process" and holder == holder_of(folder)
    assert lock.lost_to() is None
    lock.release()
    assert not folder.parent.exists()


@pytest.mark.parametrize("look", [holder_of, taken])
def test_a_driver_that_removes_its_folder_while_it_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], Holder | DriverLock]
) -> None:
    first, read = taken(folder), Holder.read

    def read_late(path: Path) -> Holder | None:
        monkeypatch.setattr(Holder, "read", read)
        first.release()
        assert not folder.exists()
        return read(path)

    monkeypatch.setattr(Holder, "read", read_late)
    found = look(folder)
    if isinstance(found, DriverLock):
        found.release()
    else:
        assert str(found) == "another process"


def test_what_cannot_be_read_is_replaced(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / DRIVER).write_text("{")
    lock = taken(folder)
    assert lock.predecessor is None and holder_of(folder) == lock.holder
    lock.release()
    assert not folder.exists()


def test_a_driver_whose_lock_is_removed_learns_who_has_it_now(folder: Path) -> None:
    """As a user does, or a file system whose server has not heard of the machine for too long."""
    first = taken(folder)
    (folder / LOCK).unlink()
    second = taken(folder)
    assert first.lost_to() == second.holder and second.lost_to() is None
    first.release()
    assert holder_of(folder) == second.holder  # it leaves the other alone
    second.release()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["ENOSYS", "ENOTSUP", "ENOLCK"])
def test_a_file_system_without_locks_is_one_line(folder: Path, name: str) -> None:
    number = getattr(errno, name)
    with python(NO_LOCKS, folder, number) as process:
        line, _ = process.communicate()
    if process.returncode == 77:
        pytest.skip("the kernel lets no process refuse itself a system call")
    assert (
        line.startswith(f"the file system of {folder} has no file locks ({os.strerror(number)}), ")
        and line.count("\n") == 1
    )
    assert "choose a --home on another one" in line and process.returncode == 0


def test_a_folder_that_cannot_be_made_is_one_line(folder: Path) -> None:
    folder.parent.touch()
    with pytest.raises(UserError, match=r"experiments.* cannot be written \(Not a directory\); choose another --home"):
        DriverLock(folder, "small").take()


def test_a_run_belongs_to_the_live_driver_that_claimed_it_first(tmp_path: Path) -> None:
    first, second = (taken(tmp_path / name) for name in ("a", "b"))
    second.claim(["x", "y"])
    first.claim(["y", "z"])  # the older driver, the later claim
    assert second.elsewhere(["x", "y"]) == {}
    assert first.elsewhere(["y", "z"]) == {"y": second.holder}
    second.claim(["w"])
    assert first.elsewhere(["y", "z"]) == {}
    second.release()
    assert not (tmp_path / "b" / CLAIM).exists()
    first.release()


def test_the_claim_of_a_dead_driver_binds_nobody(tmp_path: Path) -> None:
    """Not even while the next one has the lock."""
    go = tmp_path / "go"
    go.touch()
    with python(ASKS, tmp_path / "a") as dead:
        assert (answer(dead), answer(dead)) == ("ready", "mine None")
        (tmp_path / "a" / CLAIM).write_text(json.dumps(["x"]))
        second = taken(tmp_path / "b")
        second.claim(["x"])
        assert [holder.pid for holder in second.elsewhere(["x"]).values()] == [dead.pid]
        dead.kill()
        dead.wait()
    assert second.elsewhere(["x"]) == {}
    third = taken(tmp_path / "a")
    assert second.elsewhere(["x"]) == {}
    third.release()
    second.release()


def test_drivers_with_a_storage_in_common_know_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtlscale.records.storage_lease.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("mtlscale.records.storage_lease.BEAT_SECONDS", 0.05)
    storage, me = Storage(f"file://{tmp_path}/bucket"), Holder.me("small")
    far = replace(me, host="node7")
    first, second = StorageLease(storage, far), StorageLease(storage, me)
    assert first.take() is None
    assert second.take() == far
    beat = storage.read(lease := f"leases/small/{first._name}")
    until(lambda: storage.read(lease) != beat)
    assert second.take() == far  # it writes on: it lives
    first._over.set()  # dies
    monkeypatch.setattr("mtlscale.records.storage_lease.LOST_SECONDS", 0.2)
    until(lambda: second.take() is None)
    assert StorageLease(storage, far).take() is not None
    second.release()
    first.release()
    assert storage.below("leases/small") == []


def test_whoever_takes_a_dead_drivers_home_over_does_not_wait_for_its_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtlscale.records.storage_lease.SETTLE_SECONDS", 0.0)
    storage, dead = Storage(f"file://{tmp_path}/bucket"), Holder.me("small")
    first, second = StorageLease(storage, dead), StorageLease(storage, Holder.me("small"), predecessor=dead)
    assert first.take() is None
    first._over.set()  # dies
    assert StorageLease(storage, Holder.me("small")).take() == dead
    assert second.take() is None
    second.release()
    first.release()
