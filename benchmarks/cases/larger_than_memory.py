"""Training on a set that no process may hold: mapped files against memory, and two workers that share one copy.

A set of generated images is written through the ordinary writer, piece by piece, and removed afterwards. Then a small
ResNet-18 is trained on it. Each process trains with two or three readers in turns, an epoch of a few steps each, so
that other load on the machine meets all of them alike:

* on a part that fits into memory: `memory`, `device` (private tensors of the process) and `mapped`,
* `mapped` on the whole set beside `memory` on the part, with private memory held to 1.5 GB: the data segment is limited
  (RLIMIT_DATA counts private memory and no mapped files), RssAnon is watched, and the program fails if it goes beyond;
  again after the kernel was asked to forget the set's pages; again as two workers of one run that share one copy,
* `stream` on the whole set beside `memory` on the part, in epochs of more steps: read by the process, then by Ray Data.

Printed: samples/s, ratios, the share of the time that steps waited for data, seconds until the first epoch was over.

With `--limit`, instead: `auto` and `device` on the whole set in a control group of so many GB, by the file system of
control groups or else by systemd-run. `auto` must train within it, `device` must be refused in one line.

Example:
    python benchmarks/run.py larger_than_memory --gb 2
    python benchmarks/run.py larger_than_memory --gb 8 --limit 1.5
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from harness import Apart, memory_line, say, target

from mtlscale.config import Experiment, Run, Task, TaskSuite
from mtlscale.data.readers.cache import FOLDER
from mtlscale.data.readers.prepared import SourceInfo, load_prepared, read_manifest
from pipelines import ComputedRows, Pipeline, PrepareContext, Prepared, write_prepared

SIDE, TASKS, BATCH = 64, 4, 64
SAMPLE = 3 * SIDE * SIDE
PRIVATE, TARGET = 1.5e9, 0.8


class Generated(Pipeline):
    """Noise with a bright corner for each label that is set."""

    name: ClassVar[str] = "generated"

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        raise NotImplementedError


class Pieces:
    """The rows of a set of so many training samples."""

    what, row_bytes = "sample", SAMPLE

    def __init__(self, count: int) -> None:
        counts = {"train": count, "val": 64, "test": 64}
        self.index = {s: pa.table({"id": [f"{s}{row:09d}" for row in range(n)]}) for s, n in counts.items()}

    @staticmethod
    def compute(index: pa.Table) -> ComputedRows:
        ids = index["id"].to_pylist()
        rng = np.random.default_rng(list(ids[0].encode()))
        labels = rng.integers(0, 2, (len(ids), TASKS)).astype(np.float32)
        images = rng.integers(0, 256, (len(ids), 3, SIDE, SIDE), dtype=np.uint8)
        for task in range(TASKS):
            corner = images[:, :, 32 * (task // 2) :, 32 * (task % 2) :][:, :, :8, :8]
            corner[labels[:, task] == 1] = 255
        pixels = pa.FixedSizeListArray.from_arrays(images.ravel(), SAMPLE)
        targets = {f"target.corner{task}": labels[:, task] for task in range(TASKS)}
        return ComputedRows(pa.table({"id": ids, "input": pixels, **targets}))

    def finish(self, told: Any, problems: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, {}


def write(folder: Path, count: int) -> Path:
    names = [f"corner{task}" for task in range(TASKS)]
    tasks = tuple(Task(name=name, loss="bce", outputs=1, metrics=("error",)) for name in names)
    suite = TaskSuite(name="generated", tasks=tasks, inputs="shared", input_kind="image", input_shape=(3, SIDE, SIDE))
    folder.mkdir(parents=True)
    info = SourceInfo(description=f"{count} samples", fingerprint=str(count))
    write_prepared(folder, Generated(), info, Prepared(suite, {}, pieces=Pieces(count)))
    return folder


@dataclass(frozen=True)
class Part:
    """What one process does: train with several readers, an epoch of each in turns."""

    folders: dict[str, Path]  # reader -> folder, in the order of their turns
    steps: int
    width: int
    rounds: int
    private: bool = False  # whether private memory is limited
    ray: bool = False
    workers: int = 1
    rank: int = 0
    meeting: Path = Path()


def measure(part: Part) -> dict[str, Any]:
    """In a process of its own: what it saw."""
    import torch

    from mtlscale.data import Workers
    from mtlscale.training import Trainer

    stack, pieces = ExitStack(), None
    if part.ray:
        from mtlscale.execution.cluster import cluster
        from mtlscale.execution.preparing.streaming import RayPieces

        stack.enter_context(cluster.session("local"))
        pieces = RayPieces()
    torch.set_num_threads(1)
    if part.private:
        resource.setrlimit(resource.RLIMIT_DATA, (int(PRIVATE), int(PRIVATE)))
    if part.workers > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{part.meeting}", rank=part.rank, world_size=part.workers
        )
    highest, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            highest[0] = max(highest[0], memory_line("RssAnon"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    turns, opened, first = [], [], []
    for reader, folder in part.folders.items():
        started = time.perf_counter()
        run = run_of(reader, part.steps, part.width, part.rounds + 2)
        workers = Workers(part.rank, part.workers)
        turns.append(Trainer(run, load_prepared(folder), workers=workers, pieces=pieces).train())
        first.append(sum(next(turns[-1]).train_loss.values()))
        opened.append(time.perf_counter() - started)
    epochs = [[next(turn) for turn in turns] for _ in range(part.rounds)]
    done.set()
    watcher.join()
    found = {
        "seconds": [[epoch.seconds for epoch in of] for of in zip(*epochs, strict=True)],
        "waiting": [[epoch.traces["data_share"] for epoch in of] for of in zip(*epochs, strict=True)],
        "losses": first,
        "opened": opened,
        "private": highest[0],
        "mapped": memory_line("RssFile"),
        "cache": sum(path.stat().st_size for path in Path(os.environ[FOLDER]).rglob("*.npy")),
    }
    stack.close()
    return found


def run_of(reader: str, steps: int, width: int, epochs: int) -> Run:
    training = {
        "epochs": epochs,
        "batch_size": BATCH,
        "steps_per_epoch": steps,
        "reader": reader,
        "optimizer": "sgd",
        "evaluate_every": epochs,
    }
    experiment = Experiment.model_validate(
        {
            "name": "larger",
            "datasets": ["digits"],  # the label alone; the folder is given
            "floors": [],
            "methods": ["equal"],
            "model": {"encoder": {"name": "resnet18", "width": width}},
            "training": training,
        }
    )
    return next(experiment.runs({"digits": "0"}))


def start(options: argparse.Namespace, folders: dict[str, Path], prefix: tuple[str, ...] = (), **more: Any) -> Apart:
    """Start a process that trains. prefix: a command that starts it, whose errors are kept."""
    settings = {name: getattr(options, name) for name in ("steps", "width", "rounds")}
    part = Part(folders, **{**settings, **more})
    small = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    return Apart(measure, part, prefix=prefix, stderr=subprocess.PIPE if prefix else None, **small)


@contextmanager
def control_group(size: int) -> Iterator[tuple[str, ...]]:
    """Yield the command that starts a process which may use so many bytes, page cache included."""
    for folder, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(folder) / f"larger-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(size))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield "sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"
        finally:
            group.rmdir()
        return
    yield "systemd-run", "--user", "--scope", "--quiet", "-p", f"MemoryMax={size}"


def limited(home: Path, options: argparse.Namespace) -> bool:
    """Train on the whole set under a limit; return whether that went well, and `device` was refused."""
    size = int(options.limit * 1e9)
    large = write(home / "data" / "generated" / "large", int(options.gb * 1e9 / (SAMPLE + 4 * TASKS)))
    print(f"a set of {options.gb} GB in a control group of {options.limit} GB:", flush=True)
    with control_group(size) as prefix:
        fits = start(options, {"auto": large}, prefix)
        if not fits.wait():
            say(f"  auto: exit status {fits.status}\n{fits.errors}")
            return False
        report(fits.result(), ["all images, auto"], BATCH * options.steps)
        refused = start(options, {"device": large}, prefix)
        refused.wait()
    refusal = refused.errors.strip().splitlines()[-1] if refused.errors.strip() else ""
    say(f"  device: {refusal}")
    return refused.status > 0 and "training.reader" in refusal


def report(found: dict[str, Any], labels: list[str], samples: int) -> list[float]:
    """Print a line for each reader of a process; the median over rounds of its speed over that of the first."""
    ratios = []
    for place, label in enumerate(labels):
        seconds = found["seconds"][place]
        ratio = statistics.median(base / own for base, own in zip(found["seconds"][0], seconds, strict=True))
        ratios.append(ratio)
        waiting, opened = statistics.median(found["waiting"][place]), found["opened"][place]
        speed = samples / statistics.median(seconds)
        told = f"  {label:34}{speed:10.0f}{ratio:8.2f}{waiting:9.1%}{opened:9.1f}"
        say(told, per_second=speed, ratio=ratio, waiting=waiting, opened=opened)
    print(f"  {'':34}private {found['private'] / 1e9:.2f} GB, mapped {found['mapped'] / 1e9:.2f} GB\n", flush=True)
    return ratios


def drop_pages(root: Path) -> None:
    """Ask the kernel to forget the files of the cache, so that a disk is read."""
    for path in root.rglob("*.npy"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(options: argparse.Namespace) -> bool:
    home = Path(tempfile.mkdtemp(prefix="larger-", dir=options.folder))
    os.environ[FOLDER] = str(home / "cache")
    try:
        return limited(home, options) if options.limit else compare(home, options)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def compare(home: Path, options: argparse.Namespace) -> bool:
    count = int(options.gb * 1e9 / (SAMPLE + 4 * TASKS))
    started = time.perf_counter()
    large, small = (
        write(home / "data" / "generated" / "large", count),
        write(home / "data" / "generated" / "small", options.small),
    )
    written = sum(entry.bytes for entry in read_manifest(large).files)
    seconds = time.perf_counter() - started
    print(f"{count} images of {SIDE} x {SIDE}: {written / 1e9:.2f} GB of Parquet, written in {seconds:.0f} s")
    print(f"ResNet-18 of width {options.width}, batches of {BATCH}, one thread; {options.rounds} rounds of", end=" ")
    print(f"{options.steps} steps\neach; medians over rounds, ratios to the first line of each process\n")
    print(f"  {'':34}{'samples/s':>10}{'ratio':>8}{'waiting':>9}{'opened s':>9}\n", flush=True)
    samples = BATCH * options.steps

    part = start(options, {"memory": small, "device": small, "mapped": small}).result()
    labels = [f"{options.small} images, {name}" for name in ("memory", "device", "mapped")]
    of_part = report(part, labels, samples)

    both = {"memory": small, "mapped": large}
    labels = [f"{options.small} images, memory", "all images, mapped"]
    whole = start(options, both, private=True).result()
    ratios = [report(whole, labels, samples)[1]]
    drop_pages(home / "cache")
    cold = start(options, both, private=True).result()
    print("  the page cache was empty:")
    report(cold, labels, samples)
    print("  two workers of one run on this node:")
    more = {"private": True, "workers": 2, "meeting": home / "meeting"}
    pair = [started.result() for started in [start(options, both, **more, rank=rank) for rank in range(2)]]
    ratios.append(report(pair[0], labels, samples)[1])

    longer = argparse.Namespace(**{**vars(options), "steps": options.stream_steps, "rounds": options.stream_rounds})
    for who, more in (("the process itself", {}), ("tasks of Ray Data", {"ray": True})):
        print(f"  passing by, in epochs of {longer.steps} steps, read by {who}:")
        found = start(longer, {"memory": small, "stream": large}, **more).result()
        report(found, [labels[0], "all images, stream"], BATCH * longer.steps)

    one_copy = pair[0]["cache"] == whole["cache"]
    highest = max(found["private"] for found in (whole, cold, *pair))
    mapped = whole["cache"] - part["cache"]
    alike = len(set(part["losses"])) == 1
    print(f"  the whole set in its mapped form: {mapped / 1e9:.2f} GB; one copy for both workers: {one_copy}")
    print(f"  the readers of the part give the same losses: {alike}")
    little = target(f"  highest private memory {highest / 1e9:.2f} GB of {PRIVATE / 1e9:.1f}", highest <= PRIVATE)
    told = f"the part {of_part[2]:.2f}, all {ratios[0]:.2f}, two workers {ratios[1]:.2f}; target {TARGET}"
    enough = target(f"  mapped over memory: {told}", min(of_part[2], *ratios) >= TARGET)
    return enough and little and one_copy and alike


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gb", type=float, default=8.2, help="size of the set in its mapped form, in 10⁹ bytes")
    parser.add_argument("--steps", type=int, default=10, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each reader, in turns")
    parser.add_argument("--width", type=int, default=16, help="channels of the network's first layer")
    parser.add_argument("--stream-steps", type=int, default=400, help="of an epoch of the reader stream")
    parser.add_argument("--stream-rounds", type=int, default=3, help="its epochs")
    parser.add_argument("--small", type=int, default=20_000, help="samples of the part that fits: 246 MB")
    parser.add_argument("--folder", type=Path, help="where the set is written (default: the usual temporary folder)")
    parser.add_argument("--limit", type=float, help="GB that a process may use, page cache included")


QUICK = {"gb": 0.1, "rounds": 1, "steps": 2, "width": 2, "stream_steps": 4, "stream_rounds": 1, "small": 2000}
