"""Two million rows of a wide table: prepared through Ray Data, beside pandas, and trained on from mapped files.

    python benchmarks/run.py wide_table                    # CSV and Parquet, a few GB of disk, some minutes
    python benchmarks/run.py wide_table --rows 200000

The program writes a table of numbers with empty cells, dates and categories, some of which have many values, with three
targets. Then, each in a process of its own: `pandas.read_csv` alone; the whole preparation of the CSV and of the
Parquet file (types, splits, statistics of the training rows, conversion, writing) by Ray Data on two cores. Printed:
seconds and CPU seconds, workers included, rows per second of both, the highest private memory of any one process,
which should not exceed 1.5 GB, and the plan in Ray's log. At last an epoch of a small network from `memory` and from
`mapped`, in turns: `mapped` should reach 0.9 of the speed.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from harness import Sheet, apart, local_ray, say, target

NUMBERS, CATEGORIES, MANY = 45, 12, 3  # input columns; MANY have tens of thousands of values
TARGETS = {"bought": "class", "stage": "class", "spent": "regression"}
CHUNK = 100_000
MEMORY_TARGET, SPEED_TARGET = 1.5e9, 0.9
BATCH = 1024
PLAN = re.compile(r"Execution plan of Dataset \S+: (.*)")


def chunks(rows: int) -> Iterator[pa.Table]:
    """Yield the table, some rows at a time."""
    weights = np.random.default_rng(0).normal(size=(NUMBERS, 2))
    for start in range(0, rows, CHUNK):
        rng = np.random.default_rng([1, start])
        count = min(CHUNK, rows - start)
        numbers = rng.normal(size=(count, NUMBERS)).astype(np.float32).round(4).astype(float)
        scores = numbers @ weights + rng.normal(size=(count, 2))
        columns: dict[str, Any] = {f"number {place}": numbers[:, place] for place in range(NUMBERS)}
        for place in range(0, NUMBERS, 5):
            columns[f"number {place}"] = pa.array(numbers[:, place], mask=rng.random(count) < 0.05)
        days = np.datetime64("2020-01-01") + rng.integers(0, 2000, count)
        columns["day"] = pa.array(days.astype("datetime64[s]"), pa.timestamp("s")).cast(pa.date32())
        for place in range(CATEGORIES):
            columns[f"category {place}"] = np.char.add("value ", rng.integers(0, 10 + 5 * place, count).astype(str))
        for place in range(MANY):
            columns[f"many {place}"] = np.char.add("item ", rng.integers(0, 50_000, count).astype(str))
        columns["bought"] = np.where(scores[:, 0] > 3, "yes", "no")
        columns["stage"] = np.char.add("stage ", np.digitize(scores[:, 1], [-5, 0, 5]).astype(str))
        columns["spent"] = scores.sum(1).round(4)
        yield pa.table(columns)


def write(folder: Path, rows: int) -> dict[str, Path]:
    paths = {kind: folder / f"wide.{kind}" for kind in ("csv", "parquet")}
    schema = next(chunks(1)).schema
    with pyarrow.csv.CSVWriter(paths["csv"], schema) as text, pq.ParquetWriter(paths["parquet"], schema) as packed:
        for table in chunks(rows):
            text.write(table)
            packed.write_table(table)
    return paths


def with_pandas(path: Path) -> dict[str, Any]:
    import pandas as pd

    started, before = time.perf_counter(), time.process_time()
    rows = len(pd.read_csv(path))
    spent = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - before}
    return {**spent, "rows": rows, "peak": {"pandas": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}}


def prepared(path: Path, home: Path) -> dict[str, Any]:
    """Prepare in this process with a Ray of its own; CPU time and memory are those of the preparation."""
    import ray

    from mtlscale.data.readers.prepared import read_manifest
    from mtlscale.execution.preparing.prepare import prepare

    driver, done = psutil.Process(), threading.Event()
    spent, peak = dict[int, float](), dict[str, int]()

    def look() -> None:
        for process in [driver, *driver.children(recursive=True)]:
            try:
                name = "driver" if process == driver else process.name()
                if name != "driver" and not name.startswith("ray::"):
                    continue
                memory = process.memory_info()
                name = name.split("(")[0]
                peak[name] = max(peak.get(name, 0), memory.rss - memory.shared)
                spent[process.pid] = sum(process.cpu_times()[:2])
            except psutil.Error:
                continue

    def watch() -> None:
        while not done.wait(0.25):
            look()

    with local_ray(2):
        log = Path(ray._private.worker._global_node.get_session_dir_path(), "logs", "ray-data", "ray-data.log")
        look()
        before = dict(spent)
        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        folder = prepare("table", {"targets": TARGETS, "most_categories": 100}, path, home, engine="ray")
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        plans = list(dict.fromkeys(PLAN.findall(log.read_text()))) if log.exists() else []
    cpu = sum(value - before.get(pid, 0.0) for pid, value in spent.items())
    rows = sum(entry.rows for entry in read_manifest(folder).files)
    return {"seconds": seconds, "cpu": cpu, "rows": rows, "peak": peak, "folder": str(folder), "plans": plans}


def trained(folder: Path, rounds: int, steps: int) -> dict[str, Any]:
    """Return samples per second of `memory` and `mapped`, trained on in turns."""
    import torch

    from mtlscale.config import Experiment
    from mtlscale.data.readers.prepared import load_prepared
    from mtlscale.training import Trainer

    torch.set_num_threads(1)
    turns = {}
    for reader in ("memory", "mapped"):
        training = {"epochs": rounds + 2, "batch_size": BATCH, "steps_per_epoch": steps, "reader": reader,
                    "evaluate_every": rounds + 2}  # fmt: skip
        experiment = Experiment.model_validate(
            {"name": "wide", "datasets": ["digits"], "floors": [], "methods": ["equal"],  # the folder is given
             "model": {"encoder": {"name": "mlp", "hidden": [256, 128]}}, "training": training}
        )  # fmt: skip
        turns[reader] = Trainer(next(experiment.runs({"digits": "0"})), load_prepared(folder)).train()
        next(turns[reader])  # opens the files
    seconds = {reader: list[float]() for reader in turns}
    for _ in range(rounds):
        for reader, epochs in turns.items():
            seconds[reader].append(next(epochs).seconds)
    return {reader: [BATCH * steps / each for each in values] for reader, values in seconds.items()}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each reader, in turns")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--folder", type=Path, help="where everything is written; default: a temporary folder")


QUICK = {"rows": 20_000, "rounds": 2, "steps": 5}


def run(options: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        paths = write(folder, options.rows)
        sizes = ", ".join(f"{path.stat().st_size / 1e9:.2f} GB as {kind}" for kind, path in paths.items())
        say(f"{options.rows} rows, {NUMBERS + CATEGORIES + MANY + 1} inputs, {len(TARGETS)} targets; {sizes}")
        parts = {"pandas.read_csv": apart(with_pandas, paths["csv"])}
        for kind, path in paths.items():
            parts[f"prepared from {kind}"] = apart(prepared, path, folder / f"home-{kind}")
        speeds = apart(trained, Path(parts["prepared from parquet"]["folder"]), options.rounds, options.steps)

    sheet = Sheet("preparing", "what", "seconds", "CPU s", "rows/s", "rows/CPU s", "GB of the largest process", "in")
    for name, part in parts.items():
        process, most = max(part["peak"].items(), key=lambda item: item[1])
        rates = (round(part["rows"] / part["seconds"]), round(part["rows"] / part["cpu"]))
        sheet.row(name, part["seconds"], part["cpu"], *rates, most / 1e9, process)
    sheet.show()
    for name, part in parts.items():
        peaks = "; ".join(f"{process}: {size / 1e6:.0f} MB" for process, size in sorted(part["peak"].items()))
        say(f"{name}: {peaks}{''.join(f'; plan: {plan}' for plan in part.get('plans', ()))}")
    memory, mapped = (statistics.median(speeds[reader]) for reader in ("memory", "mapped"))
    ratio = statistics.median(m / k for k, m in zip(speeds["memory"], speeds["mapped"], strict=True))
    say(f"training: memory {memory:.0f} samples/s, mapped {mapped:.0f}, median ratio {ratio:.2f}", ratio=ratio)
    ours = [part for name, part in parts.items() if name != "pandas.read_csv"]
    small = all(max(part["peak"].values()) <= MEMORY_TARGET and part["rows"] == options.rows for part in ours)
    return target("1.5 GB a process", small) & target(f"mapped {SPEED_TARGET} of memory", ratio >= SPEED_TARGET)
