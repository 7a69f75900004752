"""`mtlscale.execution.preparing.prepare`: once, whole or not at all, the same bytes whoever computes them."""

import hashlib
import http.server
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from in_process import prepare

from mtlscale.config import UserError, component, load_plugin
from mtlscale.data.readers.prepared import MANIFEST, SourceInfo, load_prepared, read_manifest
from mtlscale.execution.preparing import prepare as preparing
from mtlscale.execution.preparing.prepare import ABANDONED_AFTER, ALIVE, SOURCES, find_prepared
from pipelines import Download, Pipeline, PrepareContext, write_prepared
from pipelines.text.amazon import Amazon
from pipelines.text.newsgroups import OFFICIAL_SPLITS, Newsgroups

PLUGIN = '''
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import knob
from mtlscale.data.sampling.splits import hash_split
from mtlscale.config import SPLITS, Task, TaskSuite
from pipelines import Pipeline, PrepareContext, Prepared


def double(table):
    return table.set_column(1, "x", pc.multiply(table["x"], 2.0))


class Lines(Pipeline):
    """Numbers of a text file."""

    name: ClassVar[str] = "lines"

    factor: float = knob(1.0, low=0.0)

    def expected(self):
        return ("numbers.txt",)

    def prepare(self, source: Path, work: PrepareContext) -> Prepared:
        numbers = [float(line) * self.factor for line in (source / "numbers.txt").read_text().splitlines()]
        ids = [f"{row:03d}" for row in range(len(numbers))]
        rows = work.blocks(pa.table({"id": ids, "x": numbers})).map(double, "double").collect()
        rows = rows.append_column("split", pa.array([hash_split(id, {"train": 0.6, "val": 0.2, "test": 0.2})
                                                     for id in rows["id"].to_pylist()]))
        tables = {}
        for split in SPLITS:
            part = rows.filter(pc.field("split") == split)
            x = part["x"].to_numpy().astype(np.float32)
            tables[split] = {"y": pa.table({"id": part["id"], "input": pa.FixedSizeListArray.from_arrays(x, 1),
                                            "target.y": x})}
        task = Task(name="y", loss="mse", outputs=1, metrics=("mse",))
        return Prepared(TaskSuite(name="lines", tasks=(task,), inputs="per_task", input_kind="vector",
                                  input_shape=(1,)), tables)
'''


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """The source of a user's own pipeline, which is loaded."""
    (tmp_path / "my_lines.py").write_text(PLUGIN)
    load_plugin(tmp_path / "my_lines.py")
    source = tmp_path / "source"
    source.mkdir()
    (source / "numbers.txt").write_text("".join(f"{n}\n" for n in range(40)))
    return source


@pytest.fixture(autouse=True)
def no_usual_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOURCES, raising=False)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


# -- the same bytes ----------------------------------------------------------------------------------------------------


def blocks_of(pipeline: Pipeline, source: Path, out: Path, work: PrepareContext) -> dict[str, bytes]:
    out.mkdir()
    located = pipeline.locate(source)
    write_prepared(out, pipeline, SourceInfo(description="", fingerprint=""), pipeline.prepare(located, work))
    return content(out)


@pytest.mark.parametrize("name", ["newsgroups", "amazon"])
def test_twice_and_in_blocks_of_any_size_the_same_bytes(
    name: str, newsgroups_folder: Path, fdu_folder: Path, tmp_path: Path
) -> None:
    pipeline, source = {"newsgroups": (Newsgroups(), newsgroups_folder), "amazon": (Amazon(), fdu_folder)}[name]
    results = [
        blocks_of(pipeline, source, tmp_path / str(number), PrepareContext(rows_per_block=rows))
        for number, rows in enumerate((2048, 2048, 7))
    ]
    assert results[0] == results[1] == results[2]
    assert len(results[0]) >= 3 * 4 + 2


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ray_gives_the_bytes_of_this_process(
    newsgroups_folder: Path, fdu_folder: Path, lines: Path, tmp_path: Path
) -> None:
    for number, (name, source) in enumerate([("newsgroups", newsgroups_folder), ("amazon", fdu_folder)]):
        pipeline = {"newsgroups": Newsgroups(), "amazon": Amazon()}[name]
        expected = blocks_of(pipeline, source, tmp_path / f"local{number}", PrepareContext())
        for rows in (100_000, 50):  # one block that one worker takes, and many on four
            got = blocks_of(
                pipeline, source, tmp_path / f"{number}-{rows}", PrepareContext(engine="ray", rows_per_block=rows)
            )
            assert got == expected
    local = prepare("lines", {}, lines, tmp_path / "home")
    through_ray = prepare("lines", {}, lines, tmp_path / "other", engine="ray")  # the plugin is no module on workers
    assert content(through_ray) == content(local)


# -- once --------------------------------------------------------------------------------------------------------------

AGAIN = """
import sys
from pathlib import Path
from mtlscale.execution.preparing.prepare import prepare
print(prepare("newsgroups", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local"))
assert not {"torch", "ray", "sklearn", "pandas"} & set(sys.modules), sorted(sys.modules)
"""


def test_a_second_call_finds_the_first_without_heavy_imports(newsgroups_folder: Path, tmp_path: Path) -> None:
    folder = prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    before = (folder / MANIFEST).stat().st_mtime_ns
    assert outcome(python(AGAIN, newsgroups_folder, tmp_path)) == str(folder)
    assert (folder / MANIFEST).stat().st_mtime_ns == before


def test_options_results_version_and_source_decide_the_folder(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(**options: float) -> Path:
        return prepare("lines", options, lines, tmp_path)

    first = folder()
    assert folder(factor=1.0) == first
    assert folder(factor=1) == first
    assert read_manifest(first).format == 1  # earlier versions read what has no bytes
    folders = {first, folder(factor=2.0)}
    (lines / "numbers.txt").write_text("".join(f"{n}\n" for n in range(50)))
    folders.add(folder())
    monkeypatch.setattr(component("datasets", "lines"), "results_version", 2)
    folders.add(folder())
    assert len(folders) == 4


def test_an_earlier_preparation_serves_without_its_source(lines: Path, tmp_path: Path) -> None:
    assert find_prepared("lines", {}, tmp_path) is None
    with pytest.raises(UserError, match="lines needs its files: pass --source DIR"):
        prepare("lines", {}, None, tmp_path)
    folder = prepare("lines", {}, lines, tmp_path)
    assert prepare("lines", {}, None, tmp_path) == folder
    assert find_prepared("lines", {"factor": 3.0}, tmp_path) is None
    (lines / "numbers.txt").write_text("".join(f"{n + 1}\n" for n in range(40)))
    prepare("lines", {}, lines, tmp_path)
    with pytest.raises(UserError, match="from 2 different sources"):
        prepare("lines", {}, None, tmp_path)


def test_damaged_files_are_prepared_again(lines: Path, tmp_path: Path) -> None:
    folder = prepare("lines", {}, lines, tmp_path)
    before = content(folder)
    (folder / "train" / "y.parquet").write_bytes(b"cut")
    assert find_prepared("lines", {}, tmp_path) is None
    assert prepare("lines", {}, lines, tmp_path) == folder
    assert content(folder) == before
    for manifest in (b"", b"{"):
        (folder / MANIFEST).write_bytes(manifest)
        assert prepare("lines", {}, lines, tmp_path) == folder
        assert content(folder) == before
    (folder / MANIFEST).unlink()
    assert prepare("lines", {}, lines, tmp_path) == folder
    assert content(folder) == before


TOGETHER = """
import sys
from pathlib import Path
from mtlscale.execution.preparing.prepare import prepare
print("ready", flush=True)
sys.stdin.readline()
print(prepare("newsgroups", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local"))
"""


def test_two_preparations_at_once_give_one_result(newsgroups_folder: Path, tmp_path: Path) -> None:
    processes = [python(TOGETHER, newsgroups_folder, tmp_path) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    folders = {outcome(process) for process in processes}
    assert len(folders) == 1
    folder = Path(folders.pop())
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    load_prepared(folder)


# -- whole or not at all -----------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
from pathlib import Path
from mtlscale.config import UserError
from mtlscale.execution.preparing.prepare import prepare
for limit in (4500, 1000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit,) * 2)
    try:
        prepare("newsgroups", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local")
    except UserError as error:
        print(error)
    assert not Path(sys.argv[2], "data", "newsgroups").exists()
"""


def test_a_full_disk_leaves_nothing_that_looks_done(newsgroups_folder: Path, tmp_path: Path) -> None:
    """The manifest does not fit, then the first table does not."""
    said = outcome(python(LIMITED, newsgroups_folder, tmp_path)).splitlines()
    assert len(said) == 2 and all(line.startswith(f"no space left below {tmp_path}") for line in said)
    assert not (tmp_path / "data" / "newsgroups").exists()
    load_prepared(prepare("newsgroups", {}, newsgroups_folder, tmp_path))


KILLED = """
import os, signal, sys
from pathlib import Path
import pipelines._writing.write
from mtlscale.execution.preparing.prepare import prepare
write = pipelines._writing.write._write_table
def killed(out, path, table):
    if path.startswith("test"):
        os.kill(os.getpid(), signal.SIGKILL)
    return write(out, path, table)
pipelines._writing.write._write_table = killed
prepare("newsgroups", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local")
"""


def age(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (0, time.time() - ABANDONED_AFTER - 1))


def test_a_killed_preparation_is_not_taken_for_done_and_swept_later(newsgroups_folder: Path, tmp_path: Path) -> None:
    process = python(KILLED, newsgroups_folder, tmp_path)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    parent = tmp_path / "data" / "newsgroups"
    (left,) = parent.iterdir()
    assert find_prepared("newsgroups", {}, tmp_path) is None
    folder = prepare("newsgroups", {}, newsgroups_folder, tmp_path)
    assert left.exists()  # it might be somebody at work
    age(left)
    prepare("newsgroups", {"length": 9}, newsgroups_folder, tmp_path)
    assert not left.exists()
    load_prepared(folder)


STOPPED = """
import os, signal, sys
from pathlib import Path
import pipelines._writing.write
from mtlscale.execution.preparing.prepare import prepare
write = pipelines._writing.write._write_table
def stopped(out, path, table):
    if path == "test/sci.parquet":
        print("stopped", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return write(out, path, table)
pipelines._writing.write._write_table = stopped
print(prepare("newsgroups", {}, Path(sys.argv[1]), Path(sys.argv[2]), engine="local"))
"""


def test_a_preparation_at_work_is_never_swept(newsgroups_folder: Path, tmp_path: Path) -> None:
    """Stopped for more than a day, as a laptop that sleeps is, and then woken."""
    process = python(STOPPED, newsgroups_folder, tmp_path)
    try:
        assert process.stdout is not None and process.stdout.readline() == "stopped\n"
        parent = tmp_path / "data" / "newsgroups"
        (working,) = parent.iterdir()
        age(working)
        prepare("newsgroups", {"length": 9}, newsgroups_folder, tmp_path)
        assert working.exists()
        process.send_signal(signal.SIGCONT)
        folder = Path(outcome(process))
    finally:
        process.kill()
        process.wait()
    load_prepared(folder)
    assert not working.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "test", "train", "val", "vocabulary.txt"]


def left_by(parent: Path, **mark: object) -> Path:
    folder = parent / ".0123456789abcdef-left"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "all.parquet").write_bytes(b"half")
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}
    (folder / ALIVE).write_text(json.dumps({**me, **mark}) if mark != {"none": True} else "{")
    age(folder)
    return folder


@pytest.mark.parametrize(
    ("mark", "kept"),
    [
        ({}, True),
        ({"pid": 2**22 + 1}, False),  # nobody
        ({"started": 12345.0}, False),  # another process that has got its number
        ({"host": "elsewhere"}, False),  # silent for a day
        ({"none": True}, False),
    ],
)
def test_what_the_sign_of_life_says(lines: Path, tmp_path: Path, mark: dict[str, object], kept: bool) -> None:
    left = left_by(tmp_path / "data" / "lines", **mark)
    prepare("lines", {}, lines, tmp_path)
    assert left.exists() == kept


@pytest.mark.parametrize("file", [ALIVE, "train/all.parquet"])
def test_a_machine_elsewhere_that_still_writes_is_left_alone(lines: Path, tmp_path: Path, file: str) -> None:
    left = left_by(tmp_path / "data" / "lines", host="elsewhere")
    os.utime(left / file)
    prepare("lines", {}, lines, tmp_path)
    assert left.exists()


def test_a_preparation_at_work_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "HEARTBEAT", 0.02)
    with preparing._alive(tmp_path):
        os.utime(tmp_path / ALIVE, (0, 0))
        deadline, before = time.monotonic() + 120, time.time()
        while (tmp_path / ALIVE).stat().st_mtime < before - 60:  # clocks of file systems are coarse
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_may_not_be_written_is_named(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file; name a folder"):
        prepare("lines", {}, lines, tmp_path / "file")


# -- where the source is -----------------------------------------------------------------------------------------------


def test_the_usual_folder_is_found(newsgroups_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCES, str(newsgroups_folder.parent))
    assert prepare("newsgroups", {}, None, tmp_path) == prepare("newsgroups", {}, newsgroups_folder, tmp_path)


def test_mistakes_are_named(newsgroups_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean newsgroups"):
        prepare("newsgroup", {}, newsgroups_folder, tmp_path)
    with pytest.raises(UserError, match="unknown option 'lenght'; did you mean length"):
        prepare("newsgroups", {"lenght": 3}, newsgroups_folder, tmp_path)
    with pytest.raises(UserError, match=r"newsgroups needs its files: pass --source DIR .* or let --download fetch it"):
        prepare("newsgroups", {}, None, tmp_path)
    with pytest.raises(UserError, match=r"^amazon needs its files: pass --source DIR .*or set MTLSCALE_DATA$"):
        prepare("amazon", {}, None, tmp_path, download=True)


def test_a_truncated_archive_is_named(
    newsgroups_folder: Path, tmp_path: Path, pack: Callable[[Path, Path], Path]
) -> None:
    archive = pack(newsgroups_folder, tmp_path / "20news-bydate.tar.xz")
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(UserError, match=f"{archive} is truncated"):
        prepare("newsgroups", {}, archive, tmp_path)
    assert not (tmp_path / "data" / "newsgroups").exists()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A file server on this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "served"))  # type: ignore[arg-type]

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    (tmp_path / "served").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_a_public_archive_is_downloaded_once_checked_and_never_unasked(
    newsgroups_folder: Path,
    tmp_path: Path,
    server: str,
    pack: Callable[[Path, Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = pack(newsgroups_folder, tmp_path / "served" / "archive.gz")
    known = hashlib.sha256(archive.read_bytes()).hexdigest()
    home = tmp_path / "home"

    def offer(url: str, sha256: str) -> None:
        monkeypatch.setattr(Newsgroups, "download", Download(url, "20news-bydate.tar.gz", sha256))

    offer(f"{server}/archive.gz", "0" * 64)
    with pytest.raises(UserError, match="is not the known archive"):
        prepare("newsgroups", {}, None, home, download=True)
    offer(f"{server}/nothing.gz", known)
    with pytest.raises(UserError, match=r"cannot be fetched \(.*404.*pass --source DIR"):
        prepare("newsgroups", {}, None, home, download=True)
    assert not list((home / "downloads").iterdir())
    offer(f"{server}/archive.gz", known)
    with pytest.raises(UserError, match="let --download fetch it"):
        prepare("newsgroups", {}, None, home)
    folder = prepare("newsgroups", {}, None, home, download=True)
    offer("http://127.0.0.1:9/gone", known)
    assert prepare("newsgroups", {}, None, home) == folder
    expected = read_manifest(prepare("newsgroups", {}, newsgroups_folder, tmp_path)).fingerprint
    assert read_manifest(folder).fingerprint == expected


def test_a_network_that_is_not_there_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Newsgroups, "download", Download("http://127.0.0.1:9/x", "20news-bydate.tar.gz", "0"))
    with pytest.raises(UserError, match=r"cannot be fetched.*get 20news-bydate\.tar\.gz another way"):
        prepare("newsgroups", {}, None, tmp_path, download=True)


def test_unsafe_archives_are_refused(newsgroups_folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "20news-bydate.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(newsgroups_folder / OFFICIAL_SPLITS[0], OFFICIAL_SPLITS[0])
        tar.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(UserError, match=r"unsafe member '\.\./evil'"):
        prepare("newsgroups", {}, archive, tmp_path)
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1.5}, "length = 1.5 should be a whole number"),
        ({"length": 0}, "length = 0 is outside"),
        ({"strip": "headers"}, "strip = 'headers' should be a list"),
        ({"split": "official"}, "split = 'official' is outside random | bydate"),
    ],
)
def test_options_of_the_wrong_kind_are_named(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        prepare("newsgroups", options, None, tmp_path)
