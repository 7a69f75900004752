"""Break a cluster on purpose, again and again, and see whether every experiment still ends complete and correct.

    python benchmarks/run.py fault_drill --rounds 24  # three of each kind, a table for docs/evidence.md at the end
    python benchmarks/run.py fault_drill --rounds 8 --seed 7 --keep
    python benchmarks/run.py fault_drill --rounds 2 --kinds second disk

Three real Ray nodes on this machine and an MLflow server. Every round submits the same experiment on digits as a job
into a folder of its own, and at a random moment (seeded) does one thing to it:

    worker, node, driver, mlflow    ends it with kill -9
    checkpoint                      cuts off a run's checkpoint and ends the workers with kill -9
    sigterm                         tells the driver to stop, as `mtlscale stop` does
    second                          starts a second driver of the same experiment
    disk                            lets a worker write no more files, as on a node whose disk is full

Then the same command goes on, where the first does not. A round passes when the leaderboard is that of the undisturbed
experiment, no finished run was repeated, and MLflow, after `mtlscale sync`, has every run once. Exit status 1 where one
did not.
Needs the job server: pip install 'mtlscale[cluster]'.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from harness import say

from mtlscale.config import load_experiment
from mtlscale.execution.cluster.local_cluster import LocalCluster
from mtlscale.records import Home, Ledger, RunRecord

KINDS = ("worker", "node", "driver", "mlflow", "checkpoint", "sigterm", "second", "disk")
EXPERIMENT = """\
name: drill
datasets: [digits]
methods: [stl, equal, mgda]
floors: []  # what takes no time to train cannot be hit
seeds: [0, 1, 2]
model: {{encoder: {{name: mlp, hidden: [32]}}}}
training: {{epochs: {epochs}, batch_size: 32, lr: 3e-3, checkpoint_seconds: 0.5}}
resources: {{max_failures: 5}}
tracking: {{uri: '{uri}'}}
"""
SAME = ("run_id", "dataset", "method", "seed", "status", "metrics", "last", "chosen_epoch", "steps", "samples")
PATIENCE = 900.0  # seconds that any one thing may take
END_SECONDS = 60.0  # that a driver may take to end when it is told to


class Drill(AssertionError):
    """A round that did not pass."""


class Mlflow:
    """An MLflow server on loopback that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = "import sys; from mlflow.cli import cli; sys.argv[0] = 'mlflow'; cli()"
        command = [sys.executable, "-c", code, "server", "--host", "127.0.0.1", "--port", str(self._port)]
        store = ["--workers", "1", "--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.db'}"]
        place = ["--artifacts-destination", str(self._folder / "artefacts")]
        with (self._folder / "mlflow.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *store, *place], stdout=log, stderr=log, start_new_session=True)
        until(self._answers, "the MLflow server answers")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urlopen(f"{self.uri}/health", timeout=5):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            for process in tree(self._process.pid):
                kill(process)
            self._process.wait()


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise Drill(f"waited {PATIENCE:g} s for: {what}")
        time.sleep(0.05)


def tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    return []


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def named(cluster: LocalCluster, *words: str) -> list[psutil.Process]:
    """Processes of the cluster whose command has all the words."""
    found = []
    for node in cluster.processes:
        for process in tree(node.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                command = " ".join(process.cmdline())
                if all(word in command for word in words) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


@dataclass
class Bench:
    """What all rounds share."""

    folder: Path
    cluster: LocalCluster
    mlflow: Mlflow
    file: Path

    def command(self, home: Path) -> list[str]:
        mine = [sys.executable, "-m", "mtlscale.cli", "submit", str(self.file), "--with-code"]
        return [*mine, "--address", self.cluster.url, "--home", str(home)]

    def submit(self, home: Path) -> subprocess.Popen[bytes]:
        with (home.parent / f"{home.name}.log").open("ab") as log:
            return subprocess.Popen(self.command(home), stdout=log, stderr=log, env=self.cluster.environment())

    def tracked(self) -> Counter[tuple[str, str]]:
        """(run_id, status) of the runs in MLflow -> how often."""
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self.mlflow.uri)
        experiment = client.get_experiment_by_name("drill")
        kind = "tags.`mtlscale.kind` = 'run'"
        runs = [] if experiment is None else client.search_runs([experiment.experiment_id], kind)
        return Counter((run.data.tags["mtlscale.run_id"], run.info.status) for run in runs)

    def forget_tracked(self) -> None:
        """Rounds have the same run ids: what MLflow has of the last one is set aside."""
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=self.mlflow.uri)
        experiment = client.get_experiment_by_name("drill")
        if experiment is not None:
            client.rename_experiment(experiment.experiment_id, f"drill-{time.time_ns()}")


@dataclass
class Round:
    number: int
    kind: str
    done_before: int  # runs finished when it happened
    recovery: float = float("nan")  # seconds until the next run finished
    total: float = float("nan")  # seconds until everything was there
    problem: str = ""


def drivers(bench: Bench) -> list[psutil.Process]:
    """The shell that started the driver, and itself last."""
    found = named(bench.cluster, "mtlscale.cli", "run")
    if not found:
        raise Drill("no driver found")
    return sorted(found, key=lambda process: process.name().startswith("python"))


def workers(bench: Bench) -> list[psutil.Process]:
    """The processes that train, as soon as there is one."""
    found: list[psutil.Process] = []
    until(lambda: bool(found.extend(named(bench.cluster, "ray::", " · seed ")) or found), "a training worker")
    return found


def break_something(bench: Bench, kind: str, home: Path, rng: random.Random) -> subprocess.Popen[bytes] | None:
    """The second driver, where that is what is done."""
    if kind == "worker":
        kill(rng.choice(workers(bench)))
    elif kind == "node":
        alive = [n for n, process in enumerate(bench.cluster.processes) if n > 0 and process.poll() is None]
        bench.cluster.kill_node(rng.choice(alive))
    elif kind == "driver":
        for process in drivers(bench):
            kill(process)
    elif kind == "mlflow":
        bench.mlflow.kill()
    elif kind == "checkpoint":
        until(lambda: cut_off(bench, home, rng), "a checkpoint")
    elif kind == "sigterm":
        driver = drivers(bench)[-1]
        driver.terminate()
        try:
            driver.wait(timeout=END_SECONDS)
        except psutil.TimeoutExpired:
            raise Drill(f"the driver went on for {END_SECONDS:g} s after SIGTERM") from None
    elif kind == "second":
        return bench.submit(home)
    else:
        full = rng.choice(workers(bench))
        with contextlib.suppress(psutil.NoSuchProcess):
            full.rlimit(psutil.RLIMIT_FSIZE, (0, psutil.RLIM_INFINITY))
    return None


def cut_off(bench: Bench, home: Path, rng: random.Random) -> bool:
    """Whether there was a checkpoint to cut off; nobody reads or writes it until its worker is dead."""
    found = workers(bench)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    paths = sorted(home.glob("runs/*/checkpoint.pt"))
    if paths:
        os.truncate(path := rng.choice(paths), path.stat().st_size // 2)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL if paths else signal.SIGCONT)
    return bool(paths)


def told(kind: str, home: Path) -> None:
    """What must have been said; `Drill` where it was not."""
    said = home.with_name(f"{home.name}.log").read_text() + (home / "logs" / "drill.jsonl").read_text()
    wanted = {
        "checkpoint": "checkpoint.pt cannot be read",
        "sigterm": "the same command resumes",
        "second": "watching it, Ctrl-C leaves it alone",
        "disk": "no space left below",
    }
    if wanted.get(kind, "") not in said:
        raise Drill(f"nobody said {wanted[kind]!r}; see {home}.log")


def play(bench: Bench, one: Round, rng: random.Random, calm: list[dict[str, Any]], pace: float) -> None:
    """One round; raises `Drill` where something is not as it should be."""
    home = bench.folder / f"round{one.number}"
    ledger = Ledger(Home(home).ledger("drill"))
    bench.forget_tracked()
    wanted = 0 if one.kind == "second" else rng.randint(1, len(calm) - 3)  # its start takes a while
    delay = rng.uniform(0, pace)
    job = bench.submit(home)
    until(lambda: len(ledger.latest()) >= wanted or job.poll() is not None, f"{wanted} runs")
    time.sleep(delay)
    before = ledger.latest()
    one.done_before = len(before)
    broken = time.monotonic()
    second = break_something(bench, one.kind, home, rng)
    more_than = len(before)

    def again() -> bool:
        """The same command, where the job ended without the end of the experiment."""
        nonlocal job
        if job.poll() not in (None, 0):
            if len(ledger.latest()) > more_than and one.recovery != one.recovery:
                return True
            job = bench.submit(home)
        return len(ledger.latest()) > more_than or job.poll() == 0

    until(again, "the next run")
    one.recovery = time.monotonic() - broken
    until(lambda: job.poll() is not None, "the end of the job")
    while job.returncode != 0:
        if time.monotonic() - broken > PATIENCE:
            raise Drill(f"the job ends with exit status {job.returncode}; see {home}.log")
        job = bench.submit(home)
        job.wait(timeout=PATIENCE)
    if second is not None and second.wait(timeout=PATIENCE) != 0:
        raise Drill(f"the second driver ends with exit status {second.returncode}; see {home}.log")
    one.total = time.monotonic() - broken
    told(one.kind, home)
    if one.kind == "mlflow":
        bench.mlflow.start()
    # A driver that dies may take with it what it had not yet written to MLflow; the ledger has it.
    mine = [sys.executable, "-m", "mtlscale.cli", "sync", str(bench.file), "--home", str(home)]
    subprocess.run(mine, check=True, stdout=subprocess.DEVNULL)
    if one.kind == "node":
        bench.cluster.add_node()
        bench.cluster.wait()
    judge(bench, ledger, before, calm)


def judge(bench: Bench, ledger: Ledger, before: dict[str, RunRecord], calm: list[dict[str, Any]]) -> None:
    after = ledger.latest()
    if results(after) != calm:
        raise Drill("the results are not those of the undisturbed experiment")
    for run_id, record in before.items():
        if record.status == "finished" and after[run_id].finished != record.finished:
            raise Drill(f"run {run_id} was finished and has been repeated")
    times = Counter(record.run_id for record in ledger if record.status == "finished")
    if set(times.values()) != {1}:
        raise Drill(f"finished more than once: {[run_id for run_id, n in times.items() if n > 1]}")
    if (tracked := bench.tracked()) != Counter((run_id, "FINISHED") for run_id in after):
        raise Drill(f"MLflow does not have every run once: {dict(tracked)}")


def results(records: dict[str, RunRecord]) -> list[dict[str, Any]]:
    """What must not depend on faults, in a fixed order."""
    found = [{key: getattr(record, key) for key in SAME} for record in records.values()]
    return sorted(found, key=lambda entry: str(entry["run_id"]))


def markdown(rounds: list[Round], calm_seconds: float) -> str:
    lines = [
        f"The undisturbed experiment took {calm_seconds:.0f} s. "
        f"{sum(not one.problem for one in rounds)} of {len(rounds)} rounds passed.",
        "",
        "| round | what | runs done before | next run after (s) | complete after (s) | result |",
        "| ---: | --- | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {r.number} | {r.kind} | {r.done_before} | {r.recovery:.1f} | {r.total:.1f} | {r.problem or 'equal'} |"
        for r in rounds
    ]
    return "\n".join(lines)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=150, help="of a run: longer ones are hit in the middle")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--keep", action="store_true", help="keep the folder of ledgers and logs")


QUICK = {"rounds": 1, "kinds": ["worker"]}


def run(options: argparse.Namespace) -> bool:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    rng = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="drill-"))
    rounds: list[Round] = []
    mlflow = Mlflow(folder / "mlflow")
    file = folder / "drill.yaml"
    file.write_text(EXPERIMENT.format(epochs=options.epochs, uri=mlflow.uri))
    load_experiment(file)
    try:
        mlflow.start()
        with LocalCluster(folder / "cluster") as cluster:
            cluster.wait()
            bench = Bench(folder, cluster, mlflow, file)
            started = time.monotonic()
            if bench.submit(folder / "calm").wait(timeout=PATIENCE) != 0:
                raise Drill(f"the undisturbed experiment failed; see {folder}/calm.log")
            calm_seconds = time.monotonic() - started
            records = Ledger(Home(folder / "calm").ledger("drill")).latest()
            calm = results(records)
            pace = sum(record.seconds for record in records.values()) / len(records)
            for number in range(1, options.rounds + 1):
                # Every kind equally often, in an order of chance within each eight.
                if (number - 1) % len(options.kinds) == 0:
                    order = rng.sample(options.kinds, len(options.kinds))
                one = Round(number, order[(number - 1) % len(options.kinds)], 0)
                rounds.append(one)
                try:
                    play(bench, one, rng, calm, pace)
                except (Drill, subprocess.SubprocessError) as error:
                    one.problem = str(error).splitlines()[0]
                print(markdown([one], calm_seconds).splitlines()[-1], file=sys.stderr, flush=True)
                if one.problem:
                    break  # what it left behind would spoil the rounds after it
        say(markdown(rounds, calm_seconds), rounds=[asdict(one) for one in rounds])
    finally:
        mlflow.kill()
        if options.keep or any(one.problem for one in rounds):
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return len(rounds) == options.rounds and not any(one.problem for one in rounds)
