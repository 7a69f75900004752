"""Runs of several workers on a cluster of three nodes: as many groups at once as fit, beside one at a time.

    python benchmarks/run.py groups                         # eight runs of two workers, 12 CPUs, a trial search
    python benchmarks/run.py groups --epochs 400 --cpus 2   # longer runs, three at once

Three real Ray nodes on this machine. (a) `mtlscale run` of eight runs on digits; (b) the same runs by one group. From
the records' times: how many trained at once at most, and the wall clock from the first start to the last end; the
records have to be equal. How much faster (a) is depends on the cores that are really there. (c) On two nodes of one CPU
a run that wants two CPUs in one worker: seconds until it is refused. (d) A search with two workers a trial. Exit status
1 where records differ, fewer than --least ran at once, or the refusal takes more than ten seconds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from harness import Apart, say

from mtlscale.execution.cluster.local_cluster import LocalCluster
from mtlscale.records import Home, Ledger, RunRecord

EXPERIMENT = """\
name: groups
datasets: [digits]
methods: [equal, mgda]
seeds: [0, 1, 2, 3]
model: {{encoder: {{name: mlp, hidden: [64]}}}}
training: {{epochs: {epochs}, batch_size: 64}}
resources: {{workers: 2}}
tracking: {{enabled: false}}
"""
SEARCH = "search: {budget: 4, space: {training.lr: {low: 1e-3, high: 1e-2, scale: log}}}\n"
SAME = ("run_id", "status", "error", "metrics", "last", "chosen_epoch", "steps", "samples")
REFUSED_SECONDS = 10.0


def mtlscale(command: str, file: Path, home: Path, cluster: LocalCluster) -> subprocess.CompletedProcess[str]:
    mine = [sys.executable, "-m", "mtlscale.cli", command, str(file), "--home", str(home), "--address", cluster.address]
    return subprocess.run(mine, env=cluster.environment(), stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)


def one_group(file: Path, home: Path, address: str) -> None:
    """In a process of its own, which has the cluster's token: all runs by a single group."""

    from mtlscale.config import load_experiment
    from mtlscale.execution import Job, Options, Plan, TrainStart, execute_jobs
    from mtlscale.execution.cluster import cluster
    from mtlscale.execution.rehearsal.dry_run import plan
    from mtlscale.records.events import RunEnded

    experiment, place = load_experiment(file), Home(home)
    found = plan(experiment, place)
    assert isinstance(found, Plan)
    jobs = [Job(run, found.data.folders[run.data], place.run(run.run_id)) for run in found.todo]
    ledger = Ledger(place.ledger(experiment.name))
    with cluster.session(address):
        options = Options(experiment.resources)
        for event in execute_jobs(jobs, 1, options, TrainStart(options, home / "ray_train", experiment.name)):
            if isinstance(event, RunEnded):
                ledger.append(event.record)


def times(records: dict[str, RunRecord]) -> tuple[int, float]:
    """How many trained at once at most, and seconds from the first start to the last end."""
    spans = [(datetime.fromisoformat(one.started), datetime.fromisoformat(one.finished)) for one in records.values()]
    most = max(sum(start <= at < end for start, end in spans) for at, _ in spans)
    return most, (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()


def told(name: str, records: dict[str, RunRecord], whole: float) -> tuple[int, float]:
    most, wall = times(records)
    alone = sum(record.seconds for record in records.values()) / len(records)
    say(
        f"{name}: {len(records)} runs of {alone:.0f} s each, at most {most} at once; {wall:.0f} s from the first start "
        f"to the last end, {whole:.0f} s with the start of everything",
        most=most, wall=wall, whole=whole,
    )  # fmt: skip
    return most, wall


def same(one: dict[str, RunRecord], other: dict[str, RunRecord]) -> bool:
    return {key: [getattr(record, name) for name in SAME] for key, record in one.items()} == {
        key: [getattr(record, name) for name in SAME] for key, record in other.items()
    }


def runs_side_by_side(folder: Path, epochs: int, cpus: int, least: int) -> list[str]:
    """(a), (b) and (d); what is not as it should be."""
    file, search = folder / "groups.yaml", folder / "search.yaml"
    file.write_text(EXPERIMENT.format(epochs=epochs))
    search.write_text(EXPERIMENT.format(epochs=10) + SEARCH)
    wrong = []
    with LocalCluster(folder / "three", nodes=3, cpus=cpus) as cluster:
        cluster.wait()
        started = time.monotonic()
        done = mtlscale("run", file, folder / "many", cluster)
        whole = time.monotonic() - started
        if done.returncode != 0:
            return [f"the runs end with exit status {done.returncode}:\n{done.stdout}"]
        print(next(line for line in done.stdout.splitlines() if "at a time" in line))
        many = Ledger(Home(folder / "many").ledger("groups")).latest()
        most, wall = told("as many as fit", many, whole)
        started = time.monotonic()
        Apart(one_group, file, folder / "one", cluster.address, **cluster.environment()).result()
        one = Ledger(Home(folder / "one").ledger("groups")).latest()
        _, alone = told("one at a time", one, time.monotonic() - started)
        equal = same(many, one)
        say(f"wall time of one at a time / as many as fit: {alone / wall:.2f}; records equal: {equal}")
        done = mtlscale("sweep", search, folder / "searched", cluster)
        trials = Ledger(Home(folder / "searched").trials("groups")).latest() if done.returncode == 0 else {}
        workers = {record.workers for record in trials.values()}
        say(f"search: exit status {done.returncode}, {len(trials)} trials of {workers or '?'} workers")
    if not equal:
        wrong.append("the records differ")
    if most < least:
        wrong.append(f"at most {most} runs at once")
    if done.returncode != 0 or workers != {2}:
        wrong.append(f"the search has not run:\n{done.stdout}")
    return wrong


def what_fits_nowhere(folder: Path) -> list[str]:
    """(c)"""
    file = folder / "wide.yaml"
    file.write_text(EXPERIMENT.format(epochs=1).replace("workers: 2", "cpus_per_worker: 2"))
    with LocalCluster(folder / "two", nodes=2, cpus=1) as cluster:
        cluster.wait()
        shutil.copytree(folder / "many" / "data", folder / "wide" / "data")  # preparing is not what is timed
        started = time.monotonic()
        done = mtlscale("run", file, folder / "wide", cluster)
        seconds = time.monotonic() - started
    say(f"two nodes of one CPU: refused after {seconds:.1f} s with status {done.returncode}: {done.stdout.strip()}")
    return [] if done.returncode == 2 and seconds <= REFUSED_SECONDS else ["not refused in time"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, default=300, help="of a run: long enough to outlast the others' start")
    parser.add_argument("--cpus", type=int, default=4, help="logical CPUs of each of the three nodes")
    parser.add_argument("--least", type=int, default=4, help="runs that have to train at once")
    parser.add_argument("--keep", action="store_true", help="keep the folder of records and logs")


QUICK = {"epochs": 20, "cpus": 2, "least": 1}


def run(options: argparse.Namespace) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="groups-"))
    try:
        wrong = runs_side_by_side(folder, options.epochs, options.cpus, options.least)
        wrong += what_fits_nowhere(folder)
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(wrong), file=sys.stderr)
    return not wrong
