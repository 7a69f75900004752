"""Do the six large sets go through Ray Data, and do they end with the same bytes as before?

Each set is prepared through Ray on two cores: Amazon, 20 Newsgroups, CelebA and NYUv2 from $MTLSCALE_DATA, CityScapes
and Taskonomy from small generated files in their official layout. For each: the plan that Ray Data notes in its log,
seconds and rows, the fingerprint, the driver's share of the CPU time and its memory. `--against` does the same, in
turns, with another tree of this project. `--kill` kills one of Ray's workers every so many seconds,
which have to be more than a task takes.

Example:
    python benchmarks/ray_data_sets.py --against ../older --kill 10
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

REAL = {"amazon": "fdu_mtl", "newsgroups": "20newsgroups", "celeba": "celeba", "nyuv2": "nyuv2"}
OPTIONS: dict[str, dict[str, Any]] = {"celeba": {"split": "own"}, "cityscapes": {"validation": 0.3}}
RATIO_TARGET, SHARE_TARGET, DRIVER_MB = 1.15, 0.1, 300
PLAN = re.compile(r"Execution plan of Dataset \S+: (.*)")


def sources(folder: Path, only: list[str]) -> dict[str, Path]:
    """Return data set -> its raw files, those generated that cannot be had."""
    data = Path(os.environ.get("MTLSCALE_DATA", "/nowhere"))
    found = {name: data / real for name, real in REAL.items() if (data / real).is_dir()}
    root = Path(__file__).parents[1]
    sys.path[:0] = [str(root), str(root / "tests" / "support")]
    from data_sets import DATA_SETS

    found |= {name: DATA_SETS[name].write(folder / name) for name in ("cityscapes", "taskonomy")}
    return {name: source for name, source in found.items() if not only or name in only}


def measure(name: str, source: Path, kill: float) -> None:
    """In a process of its own: prepare a set twice, print what the second time took, as JSON."""
    import ray

    from mtlscale.data.readers.prepared import read_manifest
    from mtlscale.execution.cluster.cluster import session
    from mtlscale.execution.preparing.prepare import prepare

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    log = Path(ray._private.worker._global_node.get_session_dir_path(), "logs", "ray-data", "ray-data.log")
    driver, done, killed = psutil.Process(), threading.Event(), [0]
    spent: dict[int, float] = {}
    peak = [0]

    def workers() -> list[tuple[psutil.Process, str]]:
        named = []
        for child in driver.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                named.append((child, child.name()))
        return [(child, name) for child, name in named if name.startswith("ray::")]

    def busy() -> list[psutil.Process]:
        """Workers that prepare: Ray names them by their task; others serve the node and end with it."""
        return [child for child, name in workers() if "map" in name.lower() or "_prepare" in name]

    def look() -> None:
        for child, _ in workers():
            with contextlib.suppress(psutil.Error):
                spent[child.pid] = sum(child.cpu_times()[:2])
        peak[0] = max(peak[0], driver.memory_info().rss - driver.memory_info().shared)

    def watch() -> None:
        last, rng = time.perf_counter(), random.Random(0)
        while not done.wait(0.5):
            look()
            if kill and time.perf_counter() - last > kill and (running := busy()):
                last = time.perf_counter()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(running).pid, signal.SIGKILL)
                    killed[0] += 1

    with session(), tempfile.TemporaryDirectory() as home:
        prepare(name, OPTIONS.get(name, {}), source, Path(home, "first"), engine="ray")  # workers start and import
        look()
        before, own, noted = dict(spent), sum(driver.cpu_times()[:2]), log.read_text() if log.exists() else ""
        watcher = threading.Thread(target=watch)
        watcher.start()
        started = time.perf_counter()
        folder = prepare(name, OPTIONS.get(name, {}), source, Path(home, "second"), engine="ray")
        seconds = time.perf_counter() - started
        done.set()
        watcher.join()
        look()
        own = sum(driver.cpu_times()[:2]) - own
        others = sum(value - before.get(pid, 0.0) for pid, value in spent.items())
        manifest = read_manifest(folder)
        plans = PLAN.findall(log.read_text()[len(noted) :]) if log.exists() else []
        found = {
            "seconds": seconds, "share": own / (own + others), "driver_mb": peak[0] / 1e6, "killed": killed[0],
            "fingerprint": manifest.fingerprint, "files": {entry.path: entry.sha256 for entry in manifest.files},
            "rows": sum(entry.rows for entry in manifest.files), "plans": list(dict.fromkeys(plans)),
        }  # fmt: skip
    ray.shutdown()
    print(json.dumps(found))


def measured(tree: Path, name: str, source: Path, kill: float) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", name, str(source), str(kill)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(options: argparse.Namespace, folder: Path) -> bool:
    here, good = Path(__file__).parents[1], True
    print(f"{'':12}{'seconds':>9}{'rows':>8}{'driver':>8}{'MB':>6}{'kills':>7}{'ratio':>7}  same bytes")
    for name, source in sources(folder, options.only).items():
        mine, theirs, dead = [], [], []
        for _ in range(options.repeats):
            mine.append(measured(here, name, source, 0.0))
            if options.against:
                theirs.append(measured(options.against.absolute(), name, source, 0.0))
        if options.kill:
            dead.append(measured(here, name, source, options.kill))

        found = min(mine, key=lambda result: result["seconds"])
        ratio = found["seconds"] / min(result["seconds"] for result in theirs) if theirs else float("nan")
        same = all(
            (result["fingerprint"], result["files"]) == (found["fingerprint"], found["files"])
            for result in (*mine, *theirs, *dead)
        )
        kills = sum(result["killed"] for result in dead)
        print(
            f"{name:12}{found['seconds']:9.2f}{found['rows']:8}{found['share']:8.1%}{found['driver_mb']:6.0f}{kills:7}"
            f"{ratio:7.2f}  {'yes' if same else 'NO'}"
        )
        print("".join(f"{'':12}{plan}\n" for plan in found["plans"]), end="", flush=True)
        good &= same and bool(found["plans"]) and not ratio > RATIO_TARGET
    print(
        f"targets: ratio {RATIO_TARGET}, driver {SHARE_TARGET:.0%} and {DRIVER_MB} MB: {'met' if good else 'see above'}"
    )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="data sets; default: all six")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout")
    parser.add_argument("--kill", type=float, default=0.0, metavar="SECONDS", help="between two killed workers")
    parser.add_argument("--repeats", type=int, default=2, help="the fastest counts")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, source, kill = options.measure
        measure(name, Path(source), float(kill))
        return
    with tempfile.TemporaryDirectory() as folder:
        if not compare(options, Path(folder)):
            sys.exit(1)


if __name__ == "__main__":
    main()
