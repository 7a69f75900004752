"""What an operator's cluster does to a preparation: nodes that lack a module, folders that vanish, two at once, a full
object store. One line each, and nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_sets import picture, save

from mtlscale.config import UserError
from mtlscale.execution.preparing.prepare import prepare
from pipelines.image.celeba import NINE

COUNT = 60
STARTS = """
import json, os, shutil, sys
from pathlib import Path
import ray
from mtlscale.config import UserError
from mtlscale.execution.preparing.prepare import prepare

source, home = Path(sys.argv[1]), Path(sys.argv[2])

def told(**said):
    left = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    print(json.dumps({**said, "left": left}))

def refused(name, options, progress=None):
    try:
        prepare(name, options, source, home, engine="ray", progress=progress)
    except UserError as error:
        return str(error)
"""
WITHOUT_A_MODULE = """
path = os.pathsep.join([sys.argv[3], *sys.path])
ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
    runtime_env={"env_vars": {"PYTHONPATH": path}},
)
told(error=refused("celeba", {"size": 16}))
"""
VANISHES = """
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

def remove(stage, done, total, written=0):
    for folder in (home / "data" / "celeba").glob(".*") if stage == "decode" else ():
        shutil.rmtree(folder, ignore_errors=True)

told(error=refused("celeba", {"size": 16}, remove))
"""
FULL_STORE = """
ray.init(
    address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
    object_store_memory=80_000_000, _system_config={"local_fs_capacity_threshold": 0.001},
)
told(error=refused("amazon", {"domains": ["books"]}))
"""
KILLED = """
import psutil

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
killed = []

def kill(stage, done, total, written=0):
    for child in psutil.Process().children(recursive=True):
        if len(killed) < int(sys.argv[3]) and child.name().startswith("ray::_prepare") and child.pid not in killed:
            killed.append(child.pid)
            child.kill()

folder = prepare("amazon", {"domains": ["books"]}, source, home, engine="ray", progress=kill)
with (source / "books.task.train").open("a") as file:
    file.write("2\\tneither\\n")
told(killed=len(killed), folder=str(folder), error=refused("amazon", {"domains": ["books"]}))
"""
NO_CPU = """
ray.init(address="local", num_cpus=0, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
told(error=refused("celeba", {"size": 16}))
"""
ALL_IN_USE = """
import threading, time

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=1)
class Other:
    def ready(self):
        return True

other, notes = Other.remote(), []
ray.get(other.ready.remote())
while ray.available_resources().get("CPU", 0):
    time.sleep(0.1)

def note(text):
    notes.append(text)
    ray.kill(other)

folder = prepare("celeba", {"size": 16}, source, home, note=note)
told(notes=notes, folder=str(folder))
"""
TWO_NODES = """
import subprocess
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
one = '''
import sys, time
from pathlib import Path
import ray
from mtlscale.execution.preparing.prepare import prepare
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
mine, other = Path(sys.argv[4]), Path(sys.argv[5])
mine.touch()
while not other.exists():
    time.sleep(0.05)
print(prepare("celeba", {"size": 16}, Path(sys.argv[2]), Path(sys.argv[3]), engine="ray"))
'''
marks = [str(home.with_name(f"mark-{number}")) for number in range(2)]
both = [
    subprocess.Popen(
        [sys.executable, "-c", one, cluster.address, str(source), str(home), *order], stdout=subprocess.PIPE, text=True
    )
    for order in (marks, marks[::-1])
]
folders = [process.communicate(timeout=500)[0].splitlines()[-1] for process in both]
cluster.shutdown()
told(folders=folders, ended=[process.returncode for process in both])
"""


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    rng, root = np.random.default_rng(0), tmp_path / "celeba"
    images = [f"{number:06d}.jpg" for number in range(COUNT)]
    for image in images:
        save(root / "img_align_celeba" / image, picture(rng, 24, 20))
    rows = [f"{image} {' '.join(str(value) for value in rng.choice([-1, 1], len(NINE)))}" for image in images]
    (root / "list_attr_celeba.txt").write_text("\n".join([str(COUNT), " ".join(NINE), *rows]) + "\n")
    parts = [f"{image} {max(0, number % 5 - 2)}" for number, image in enumerate(images)]
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


@pytest.fixture
def apart(tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Run a script in a process with a Ray of its own; return what it tells. It may not print a traceback."""

    def run(script: str, source: Path, *more: object) -> dict[str, object]:
        home = tmp_path / "home"
        home.mkdir()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, "-c", STARTS + script, str(source), str(home), *map(str, more)]
        done = subprocess.run(command, timeout=550, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        # Ray tells of killed workers on the same stream, whenever it has heard of them.
        told: dict[str, object] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
        return told

    return run


def test_a_folder_that_vanishes_while_it_is_written_is_said_in_one_line(faces: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"

    def remove(stage: str, done: int, total: int, written: int = 0) -> None:
        for folder in (home / "data" / "celeba").glob(".*") if stage == "decode" else ():
            shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(UserError, match=r"^\S+ has vanished during the preparation; nothing of it is kept, start it "):
        prepare("celeba", {"size": 16}, faces, home, engine="local", progress=remove)
    assert [path for path in home.rglob("*") if path.is_file()] == []
    assert prepare("celeba", {"size": 16}, faces, home, engine="local").is_dir()


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
def test_a_folder_that_vanishes_under_tasks_is_said_in_one_line(
    faces: Path, apart: Callable[..., dict[str, object]]
) -> None:
    told = apart(VANISHES, faces)
    assert " has vanished during the preparation; nothing of it is kept, start it again" in str(told["error"])
    assert told["left"] == []


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
def test_a_node_without_a_decoder_is_said_in_one_line(
    faces: Path, tmp_path: Path, apart: Callable[..., dict[str, object]]
) -> None:
    """Its image has no Pillow: the module is hidden from the workers alone."""
    hidden = tmp_path / "hidden" / "PIL"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'PIL'\", name='PIL')\n")
    told = apart(WITHOUT_A_MODULE, faces, hidden.parent)
    assert told["error"] == (
        "a node of the cluster has no Python module PIL; install mtlscale there as it is installed here"
    )
    assert told["left"] == []


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
def test_a_cluster_without_a_cpu_is_refused_in_one_line(faces: Path, apart: Callable[..., dict[str, object]]) -> None:
    told = apart(NO_CPU, faces)
    assert told["error"] == (
        "the preparation of celeba by Ray Data needs a CPU, and no node of the Ray cluster has one; start Ray with "
        "--num-cpus, or join another"
    )
    assert told["left"] == []


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
def test_a_cluster_whose_cpus_are_in_use_is_waited_for_and_said(
    faces: Path, tmp_path: Path, apart: Callable[..., dict[str, object]]
) -> None:
    told = apart(ALL_IN_USE, faces)
    assert told["notes"] == ["the preparation of celeba by Ray Data waits: all CPUs of the Ray cluster (1) are in use"]
    assert Path(str(told["folder"]), "manifest.json").is_file()


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
def test_a_full_object_store_is_said_in_one_line(tmp_path: Path, apart: Callable[..., dict[str, object]]) -> None:
    """150 MB of text, 80 MB of room, and a disk that Ray takes for full."""
    source = tmp_path / "reviews"
    source.mkdir()
    words = "abcdefghij " * 500
    for part in ("train", "test"):
        lines = (f"{number % 2}\t{number} {words}\n" for number in range(14_000))
        (source / f"books.task.{part}").write_text("".join(lines))
    told = apart(FULL_STORE, source)
    assert str(told["error"]).startswith("Ray's object store is full, and it cannot spill to disk; start Ray with a ")
    assert told["left"] == []


@pytest.mark.ray
@pytest.mark.slow  # a Ray of its own
@pytest.mark.parametrize("kills", [1, 2])
def test_texts_are_prepared_in_a_process_that_may_be_killed(
    kills: int, tmp_path: Path, apart: Callable[..., dict[str, object]]
) -> None:
    """Once, or twice: then the driver does it. The files are those of one process; a mistake is said in its words."""
    source = tmp_path / "reviews"
    source.mkdir()
    for part, count in (("train", 400), ("test", 100)):
        lines = (f"{number % 2}\tword{number % 37} {part} book {number}\n" for number in range(count))
        (source / f"books.task.{part}").write_text("".join(lines))
    here = prepare("amazon", {"domains": ["books"]}, source, tmp_path / "here", engine="local")
    told = apart(KILLED, source, kills)
    written = Path(str(told["folder"]))
    assert told["killed"] == kills
    assert {path.relative_to(here): path.read_bytes() for path in here.rglob("*") if path.is_file()} == {
        path.relative_to(written): path.read_bytes() for path in written.rglob("*") if path.is_file()
    }
    assert [path.name for path in written.parent.iterdir()] == [written.name]
    with pytest.raises(UserError) as refused:
        prepare("amazon", {"domains": ["books"]}, source, tmp_path / "there", engine="local")
    assert told["error"] == str(refused.value)


@pytest.mark.ray
@pytest.mark.slow  # a cluster of two nodes has to come up
def test_two_preparations_at_once_leave_one_folder(
    faces: Path, tmp_path: Path, apart: Callable[..., dict[str, object]]
) -> None:
    """Two drivers on a cluster of two nodes, one home: the faster one's files stand, and are those of one alone."""
    told = apart(TWO_NODES, faces)
    assert told["ended"] == [0, 0]
    here = prepare("celeba", {"size": 16}, faces, tmp_path / "here", engine="local")
    folders = told["folders"]
    assert isinstance(folders, list) and len(set(folders)) == 1
    written = Path(folders[0])
    assert {path.relative_to(here): path.read_bytes() for path in here.rglob("*") if path.is_file()} == {
        path.relative_to(written): path.read_bytes() for path in written.rglob("*") if path.is_file()
    }
    assert [path.name for path in written.parent.iterdir()] == [here.name]
