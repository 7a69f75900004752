"""What Ray's own tools show of experiments that go on: whose process it is, and which run it trains."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest

from mtlscale.execution import Batched, Job
from mtlscale.execution.cluster.local_cluster import LocalCluster

SECONDS = 400.0  # that two drivers may take on a busy machine until their runs train
# Ray's state API, asked until the names are there; it needs the cluster's token before Ray is imported.
ASKS = """
import json, sys, time
from ray.util.state import list_actors, list_tasks

url, wanted, until = sys.argv[1], json.loads(sys.argv[2]), time.monotonic() + float(sys.argv[3])
while True:
    actors = [(actor.name, actor.class_name, actor.repr_name, actor.state) for actor in list_actors(url, detail=True)]
    tasks = [(task.name, task.state) for task in list_tasks(url, limit=1000)]
    names = [row[0] for row in actors + tasks if row[-1] != "DEAD"]
    if all(any(name.startswith(part) for name in names) for part in wanted) or time.monotonic() > until:
        break
    time.sleep(1)
print(json.dumps([actors, tasks]))
"""


def job(dataset: str, method: str, seed: int, **trial: float) -> Job:
    run = SimpleNamespace(dataset=dataset, method=method, seed=seed, trial=trial, run_id="1f")
    return Job(cast(Any, run), Path(), Path())


@pytest.mark.parametrize(
    ("jobs", "title"),
    [
        ([job("digits", "mgda", 0)], "digits · mgda · seed 0"),
        ([job("digits", "mgda", 0, lr=0.1)], "digits · mgda · seed 0 · trial 1f"),
        ([job("digits", "mgda", seed) for seed in range(5)], "digits · mgda · 5 seeds"),
        ([job("digits", "mgda", 0, lr=rate) for rate in (0.1, 0.2)], "digits · mgda · 2 trials"),
        ([job("digits/0", "mgda", 0), job("digits/1", "equal", 1)], "2 data sets · 2 methods · 2 runs"),
    ],
)
def test_jobs_are_called_as_their_runs_are(jobs: list[Job], title: str) -> None:
    assert Batched(tuple(jobs)).title == title
    if len(jobs) == 1:
        assert jobs[0].title == title


@pytest.mark.ray
def test_no_two_actors_of_an_experiment_have_one_name(local_ray: None) -> None:
    from mtlscale.execution.workers.names import actor_name

    first, second = actor_name("worker", "small"), actor_name("worker", "small")
    assert first != second
    assert first.startswith("mtlscale worker ") and first.endswith(" of small, job 01000000")


@pytest.mark.skipif(importlib.util.find_spec("aiohttp_cors") is None, reason="no dashboard: pip install 'ray[default]'")
@pytest.mark.slow
@pytest.mark.ray
def test_ray_lists_two_experiments_of_one_name_by_what_they_train(
    experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    """One keeps its workers warm, the other has a run of Ray Train for each of its own."""
    training = "{epochs: 1000000, batch_size: 16, lr: 1e-2}"
    lines = {"methods": "[mgda]", "training": training, "tracking": "{enabled: false}"}
    path = experiment_file(**lines)
    run, trained = "uneven · mgda · seed 0", "small - uneven - mgda - seed 0"
    wanted = ["mtlscale worker", "mtlscale queue", run, "start · small · worker 1", f"report · {run}"]

    with LocalCluster(tmp_path / "cluster", nodes=1, cpus=2) as cluster:
        cluster.wait()
        with (
            driver(path, cluster, tmp_path / "pool"),
            driver(path, cluster, tmp_path / "train", "--set", "resources.train=true"),
        ):
            asked = [sys.executable, "-c", ASKS, cluster.url, json.dumps(wanted), str(SECONDS)]
            listed = subprocess.run(asked, env=cluster.environment(), capture_output=True, text=True)
            assert listed.returncode == 0, listed.stderr[-2000:]
            actors, tasks = json.loads(listed.stdout.splitlines()[-1])
            until, runs = time.monotonic() + SECONDS, train_runs(cluster)
            while [found["status"] for found in runs] != ["RUNNING"]:
                assert time.monotonic() < until, runs
                time.sleep(1)
                runs = train_runs(cluster)

    named = [name for name, *_ in actors if name]
    assert len(set(named)) == len(named)
    workers = [actor for actor in actors if actor[0].startswith("mtlscale worker ")]
    assert [(kind, shown, state) for _, kind, shown, state in workers] == [
        ("RunWorker", "mtlscale worker of small", "ALIVE")
    ]
    queues = [name.split(" of ")[1].split(",")[0] for name in named if name.startswith("mtlscale queue ")]
    assert queues == ["small", "small"]
    assert (run, "RUNNING") in map(tuple, tasks)
    assert any(name == f"report · {run}" for name, _ in tasks)
    assert [found["name"] for found in runs] == [trained]


@contextmanager
def driver(path: Path, cluster: LocalCluster, home: Path, *options: str) -> Iterator[None]:
    """A process that runs the experiment on the cluster until it is told to end."""
    command = [sys.executable, "-m", "mtlscale.cli", "run", str(path), "--home", str(home), *options]
    with (home.parent / f"{home.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--address", cluster.address], env=cluster.environment(), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


def train_runs(cluster: LocalCluster) -> list[dict[str, Any]]:
    """The runs on the Train page of Ray's dashboard."""
    request = Request(f"{cluster.url}/api/train/v2/runs/v1")
    request.add_header("Authorization", f"Bearer {cluster.token.read_text()}")
    with urlopen(request, timeout=60) as answer:
        return list(json.loads(answer.read())["train_runs"])
