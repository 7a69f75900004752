"""SLURM's scripts, run: the array with eight tasks, three of them killed; the allocation under a scheduler made up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mtlscale.records import Home, read_record

ROOT = Path(__file__).parents[2]
VENV = Path(sys.executable).parents[1]
EXPERIMENT = """
name: array
description: Runs that the tasks of an array divide.
datasets: [digits]
methods: [equal, mgda, pcgrad, uncertainty]
seeds: [0, 1, 2, 3]
model: {encoder: {name: mlp, hidden: [32]}}
training: {epochs: 6, batch_size: 64, lr: 3e-3}
floors: []
tracking: {enabled: false}
"""
RUNS, TASKS = 16, 8


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RAY", "MTLSCALE"))}
    return inherited | {"VENV": str(VENV), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def start(task: int, folder: Path, log: str) -> subprocess.Popen[bytes]:
    """Start a task of the array as SLURM does."""
    command = ["bash", str(ROOT / "cluster" / "slurm_array.sh"), "experiment.yaml", "--json"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=(folder / f"{log}-{task}.log").open("wb"),
        stderr=subprocess.STDOUT,
        env=environment(SLURM_ARRAY_TASK_ID=str(task), SLURM_CPUS_PER_TASK="1", MTLSCALE_HOME=str(folder / "home")),
    )


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a task; its last line may have been cut off."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def trained(logs: list[Path]) -> Counter[str]:
    """How many tasks have trained each run to its end; one that was killed behind the last epoch has not."""
    count: Counter[str] = Counter()
    for log in logs:
        seen = events(log)
        finished = {event["run"] for event in seen if event["event"] == "finished"}
        count.update(
            event["run"]
            for event in seen
            if event["event"] == "epoch" and event["epochs"] == event["of"] and event["run"] in finished
        )
    return count


def results(home: Path) -> dict[str, Any]:
    records = [read_record(folder) for folder in (home / "runs").iterdir()]
    return {record.run_id: record.metrics for record in records if record is not None}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_eight_tasks_train_every_run_once_though_three_are_killed(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    tasks = [start(number, tmp_path, "first") for number in range(TASKS)]
    deadline = time.monotonic() + 600
    while sum(trained(list(tmp_path.glob("first-*.log"))).values()) < 1:
        assert time.monotonic() < deadline and all(task.poll() is None for task in tasks)
        time.sleep(0.2)
    for task in tasks[:3]:
        task.kill()
    assert [task.wait() for task in tasks] == [-signal.SIGKILL] * 3 + [0] * 5
    first = trained(list(tmp_path.glob("first-*.log")))
    assert len(first) == RUNS and set(first.values()) == {1}, "others took over what the killed ones had claimed"

    again = [start(number, tmp_path, "second") for number in range(3)]
    assert [task.wait() for task in again] == [0, 0, 0]
    assert not trained(list(tmp_path.glob("second-*.log"))), "nothing is trained twice"

    alone = subprocess.run(
        [VENV / "bin" / "mtlscale", "work", "experiment.yaml", "--home", "alone", "--quiet"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    assert results(tmp_path / "home") == results(tmp_path / "alone") and len(results(tmp_path / "home")) == RUNS
    assert not list((tmp_path / "home").glob("experiments/*.task*")), "locks are given back"
    assert Home(tmp_path / "home").root.is_dir()


@pytest.mark.slow
def test_what_an_array_cannot_divide_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    for setting, line in {
        "resources.workers=2": "a task trains in one process",
        "search={budget: 2}": "whose trials depend on each other",
    }.items():
        done = subprocess.run(
            [VENV / "bin" / "mtlscale", "work", "experiment.yaml", "--home", "home", "--set", setting],
            cwd=tmp_path, env=environment(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2 and line in " ".join(done.stderr.split()), done.stderr


SRUN = """#!/usr/bin/env bash
echo "srun $*" >>"$CALLS"
while [[ $1 == --* ]]; do shift; done
if [[ $1 == hostname ]]; then echo 127.0.0.1; exit; fi
exec "$@"
"""
SCONTROL = """#!/usr/bin/env bash
echo "scontrol $*" >>"$CALLS"
echo node1
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_an_allocation_starts_ray_runs_and_ends_both(tmp_path: Path) -> None:
    """With `srun` and `scontrol` of our own, which start everything on this machine."""
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", ROOT / "cluster" / "slurm.sh", "experiment.yaml", "--set", "seeds=[0]", "--set", "methods=[equal]"],
        cwd=tmp_path, capture_output=True, text=True,
        env=environment(
            PATH=f"{programs}:{os.environ['PATH']}", CALLS=str(tmp_path / "calls"), SLURM_CPUS_ON_NODE="1",
            SLURM_JOB_ID=str(os.getpid()), SLURM_JOB_NODELIST="node[1]", MTLSCALE_HOME=str(tmp_path / "home"),
        ),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(results(tmp_path / "home")) == 1
    calls = (tmp_path / "calls").read_text()
    assert "scontrol show hostnames node[1]" in calls
    assert "--nodelist=node1 --overlap ray start --head --node-ip-address=127.0.0.1" in calls
    assert not list((tmp_path / "home").glob(".ray-token-*")), "the token goes with the job"
