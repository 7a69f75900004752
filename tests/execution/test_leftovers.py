"""What killed processes have left is cleared away, and never what a live one writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mtlscale.execution import temp_files
from mtlscale.execution.ownership import LEFT_SECONDS, driving
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Home, clear_temporaries

# Is killed while it writes: a file of a home folder, and its own in the temporary folder.
DIES = """
import os, signal, sys, tempfile
from pathlib import Path
from mtlscale.execution import temp_files
from mtlscale.records import write_atomically
tempfile.mkstemp(prefix=temp_files.prefix("dump"))
Path(tempfile.mkdtemp(prefix=temp_files.prefix("meeting")), "rendezvous").touch()
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"half")
"""


def dies_writing(path: Path) -> int:
    with subprocess.Popen([sys.executable, "-c", DIES, str(path)]) as process:
        assert process.wait() == -signal.SIGKILL
    assert not path.exists() and any(path.parent.glob(f".{path.name}.*"))
    return process.pid


def test_the_temporary_folder_is_cleared_of_dead_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    pid = dies_writing(tmp_path / "x")
    names = {path.name.rsplit("-", 1)[0] for path in (tmp_path / "tmp").iterdir()}
    assert names == {f"mtlscale-dump-{pid}", f"mtlscale-meeting-{pid}"}
    mine = Path(tempfile.mkdtemp(prefix=temp_files.prefix("meeting")))
    other = tmp_path / "tmp" / "mtlscale-data"  # not ours to judge
    other.mkdir()
    temp_files.clear()
    assert set((tmp_path / "tmp").iterdir()) == {mine, other}


def test_half_written_files_go_when_a_driver_starts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = [home.experiment("small") / "plan.json", home.phases / "abc.pt"]
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        dies_writing(path)
        (half,) = path.parent.glob(f".{path.name}.*")
        os.utime(half, (time.time() - LEFT_SECONDS - 60,) * 2)
    dies_writing(home.experiment("small") / "leaderboard.md")  # a minute ago: somebody may be at it
    for name in (".gitignore", ".env.local"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    with driving("small", home, Sinks(), wait=True):
        pass
    left = {path.name.rsplit(".", 1)[0] for path in tmp_path.rglob(".*")}
    assert left == {".leaderboard.md", "", ".env"}


def test_whoever_alone_writes_in_a_folder_clears_it_at_once(tmp_path: Path) -> None:
    dies_writing(tmp_path / "checkpoint.pt")
    (tmp_path / "record.json").touch()
    clear_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
