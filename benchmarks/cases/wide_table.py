"""Two million rows of a wide table: prepared through Ray Data, beside pandas, and trained on from mapped files.

    python benchmarks/wide_table.py                    # CSV and Parquet, a few GB of disk, some minutes
    python benchmarks/wide_table.py --rows 200000

The program writes a table of numbers with empty cells, dates and categories, some of which have many values, with three
targets. Then, each in a process of its own: `pandas.read_csv` alone; the whole preparation of the CSV and of the
Parquet file (types, splits, statistics of the training rows, conversion, writing) by Ray Data on two cores. Printed:
seconds and CPU seconds, workers included, rows per second of both, the highest private memory of any one process,
which should not exceed 1.5 GB, and the plan in Ray's log. At last an epoch of a small network from `memory` and from
`mapped`, in turns: `mapped` should reach 0.9 of the speed.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
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


def child(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


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
    from mtlscale.execution.cluster.cluster import session
    from mtlscale.execution.preparing.prepare import prepare

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    log = Path(ray._private.worker._global_node.get_session_dir_path(), "logs", "ray-data", "ray-data.log")
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

    with session():
        look()
        before = dict(spent)
        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        folder = prepare("table", {"targets": TARGETS, "most_categories": 100}, path, home, engine="ray")
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
    cpu = sum(value - before.get(pid, 0.0) for pid, value in spent.items())
    plans = list(dict.fromkeys(PLAN.findall(log.read_text()))) if log.exists() else []
    ray.shutdown()
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


def line(label: str, result: dict[str, Any]) -> None:
    process, most = max(result["peak"].items(), key=lambda item: item[1])
    print(
        f"  {label:24}{result['seconds']:9.1f}{result['cpu']:9.1f}{result['rows'] / result['seconds']:10.0f}"
        f"{result['rows'] / result['cpu']:12.0f}{most / 1e9:9.2f}  {process}",
        flush=True,
    )


def compare(folder: Path, options: argparse.Namespace) -> bool:
    paths = write(folder, options.rows)
    sizes = ", ".join(f"{path.stat().st_size / 1e9:.2f} GB as {kind}" for kind, path in paths.items())
    print(f"{options.rows} rows, {NUMBERS + CATEGORIES + MANY + 1} inputs, {len(TARGETS)} targets; {sizes}\n")
    print(f"  {'':24}{'seconds':>9}{'CPU s':>9}{'rows/s':>10}{'rows/CPU s':>12}{'GB most':>9}  in", flush=True)
    line("pandas.read_csv", child("--pandas", paths["csv"]))
    good, result = True, dict[str, Any]()
    for kind, path in paths.items():
        result = child("--prepare", path, folder / f"home-{kind}")
        line(f"prepared from {kind}", result)
        good &= max(result["peak"].values()) <= MEMORY_TARGET and result["rows"] == options.rows
        print("".join(f"{'':26}{name}: {size / 1e6:.0f} MB\n" for name, size in sorted(result["peak"].items())), end="")
    print("".join(f"  plan: {plan}\n" for plan in result["plans"]), end="")

    speeds = child("--train", result["folder"], options.rounds, options.steps)
    memory, mapped = (statistics.median(speeds[reader]) for reader in ("memory", "mapped"))
    ratio = statistics.median(m / k for k, m in zip(speeds["memory"], speeds["mapped"], strict=True))
    print(f"\n  training: memory {memory:.0f} samples/s, mapped {mapped:.0f}, median ratio {ratio:.2f}")
    good &= ratio >= SPEED_TARGET
    print(f"  targets: 1.5 GB a process, mapped {SPEED_TARGET} of memory: {'met' if good else 'MISSED'}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=15, help="epochs of each reader, in turns")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--folder", type=Path, help="where everything is written; default: a temporary folder")
    parser.add_argument("--pandas", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pandas:
        print(json.dumps(with_pandas(options.pandas)))
    elif options.prepare:
        print(json.dumps(prepared(*options.prepare)))
    elif options.train:
        print(json.dumps(trained(Path(options.train[0]), int(options.train[1]), int(options.train[2]))))
    else:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            if not compare(Path(folder), options):
                sys.exit(1)


if __name__ == "__main__":
    main()
