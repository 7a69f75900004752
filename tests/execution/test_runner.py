"""Whole experiments through Ray, the ledger and MLflow: skipping, failing, dying, resuming."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest
import torch
from command import refused
from listening import Listening
from processes import run_workers, wait_until_gone

from mtlscale.api import run
from mtlscale.config import Experiment, UserError, load_experiment
from mtlscale.data import PreparedData
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.records.events import EpochEnded, Event
from mtlscale.training import train

pytestmark = pytest.mark.ray

ONE_WORKER = "{cpus_per_worker: 4}"  # of the four of `local_ray`: each is a process that imports torch first
UNTRACKED = "{enabled: false}"


def comparable(records: Iterable[RunRecord]) -> list[dict[str, object]]:
    """Return what must not depend on interruptions, machines or time."""
    keys = (
        "run_id",
        "method",
        "seed",
        "status",
        "metrics",
        "last",
        "chosen_epoch",
        "chosen_epochs",
        "steps",
        "samples",
    )
    return [{key: getattr(record, key) for key in keys} for record in records]


def trained_here(experiment: Experiment, data: PreparedData) -> list[RunRecord]:
    """Train the runs of an experiment on one data set undisturbed, one after the other in this process.

    They have as many threads as a worker: some libraries of linear algebra add up in another order with others.
    """
    fingerprints, threads = dict.fromkeys(experiment.data(), data.manifest.fingerprint), torch.get_num_threads()
    torch.set_num_threads(int(experiment.resources.cpus_per_worker))
    try:
        return [train(run, data) for run in experiment.runs(fingerprints)]
    finally:
        torch.set_num_threads(threads)


def test_an_experiment_runs_once_and_is_tracked(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    import mlflow

    experiment = load_experiment(experiment_file(seeds="[0, 1]", resources=ONE_WORKER))
    home = tmp_path / "home"
    first, second = Listening(), Listening()
    results = run(experiment, home=home, sinks=[first])
    assert sorted(first.ended) == ["equal", "equal", "mgda", "mgda", "stl", "stl"]
    assert len(first.epochs) == 6 * 3
    again = run(experiment, home=home, sinks=[second])
    assert second.ended == [] and comparable(again.records) == comparable(results.records)

    frame = results.to_pandas()
    assert set(frame["split"]) == {"train", "val", "test"}
    assert len(frame[(frame["split"] == "test") & (frame["metric"] == "accuracy")]) == 6 * 2

    client = mlflow.MlflowClient(tracking_uri=Home(home).tracking_uri)
    found = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    parents = [r for r in found if r.data.tags["mtlscale.kind"] == "experiment"]
    children = [r for r in found if r.data.tags["mtlscale.kind"] == "run"]
    rows = {r.info.run_id: r for r in found if r.data.tags["mtlscale.kind"] == "row"}
    assert len(parents) == 1 and len(children) == 6
    for child in children:
        row = rows[child.data.tags["mlflow.parentRunId"]]
        assert row.info.run_name == f"{child.data.params['method']} · uneven"
    board = results.leaderboard().tables["uneven"].rows
    for row in rows.values():
        told = board.loc[row.data.params["method"]]
        assert "test.mean" not in row.data.metrics  # the tasks share no metric
        assert row.data.metrics["test.accuracy.a"] == pytest.approx(told["a.accuracy"])
        assert row.data.metrics["delta"] == pytest.approx(told["delta_i"])
        assert row.data.metrics["mean_rank"] == told["mean_rank"]
        assert row.data.tags["mtlscale.model"].startswith("models:/m-")
        assert (row.data.metrics["seeds_finished"], row.data.metrics["seeds_failed"]) == (2, 0)
    assert {r.info.status for r in found} == {"FINISHED"}
    one = next(r for r in children if r.data.tags["mtlscale.run_id"] == results.records[0].run_id)
    assert one.data.metrics["test.accuracy.a"] == pytest.approx(results.records[0].metrics["test"]["a"]["accuracy"])
    assert one.data.params["training.epochs"] == "3" and one.data.tags["version.torch"]
    assert [m.step for m in client.get_metric_history(one.info.run_id, "val.accuracy.a")] == [1, 2, 3]
    assert {f.path for f in client.list_artifacts(one.info.run_id)} == {"record.json", "epochs.jsonl", "model.pt"}
    assert any(f.path == "leaderboard.html" for f in client.list_artifacts(parents[0].info.run_id))


def test_a_run_on_many_small_tasks_is_batched_and_tracked_like_any(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    import mlflow

    many = "[{name: synthetic, options: {tasks: 40, samples: 20, special: 1}}]"
    experiment = load_experiment(experiment_file(datasets=many, methods="[equal, graddrop]", resources=ONE_WORKER))
    home, watching = tmp_path / "home", Listening()
    results = run(experiment, home=home, sinks=[watching])
    batched, alone = results.records
    assert (batched.method, batched.status, alone.status) == ("equal", "finished", "finished")
    assert set(watching.epochs) == {"graddrop"}  # epochs one by one come from runs that are not batched
    assert [epoch.epoch for epoch in results.epochs(batched.run_id)] == [1, 2, 3]
    assert (home / "runs" / batched.run_id / "model.pt").is_file()
    client = mlflow.MlflowClient(tracking_uri=Home(home).tracking_uri)
    found = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    one = next(r for r in found if r.data.tags.get("mtlscale.run_id") == batched.run_id)
    assert [m.step for m in client.get_metric_history(one.info.run_id, "epoch_val_mean")] == [1, 2, 3]


WILD = {"stl": "architecture: stl", "equal": "balancer: equal", "mgda": "balancer: mgda"}


def test_a_failing_and_a_diverging_run_leave_the_others_alone(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    """Train others before and after them in the same worker.

    A method that raises after some steps fails; a learning rate that goes too far diverges every method.
    """
    folder = Path(__file__).parents[1] / "plugins"
    plugins = f"[{folder / 'uneven.py'}, {folder / 'tired.py'}]"
    far = "training: {epochs: 2, lr: 1e300, optimizer: sgd}"
    wild = [f"{{label: wild {name}, {what}, {far}}}" for name, what in WILD.items()]
    methods = f"[equal, tired, {', '.join(wild)}, mgda]"
    path = experiment_file(methods=methods, plugins=plugins, resources=ONE_WORKER, tracking=UNTRACKED)
    results = run(load_experiment(path), home=tmp_path / "home")
    assert [r.status for r in results.records] == ["finished", "failed", *["diverged"] * len(wild), "finished"]
    assert "after five steps" in str(results.records[1].error) and "\n" not in str(results.records[1].error)
    assert results.leaderboard().to_markdown().count("diverged") >= len(wild)


def test_a_killed_worker_is_replaced_and_its_run_goes_on(
    experiment_file: Callable[..., Path], uneven: Callable[..., PreparedData], tmp_path: Path, local_ray: None
) -> None:
    training = "{epochs: 12, batch_size: 4, lr: 1e-2, dtype: float64, checkpoint_seconds: 0}"
    settings = {"methods": "[aamtrl, mgda]", "training": training, "resources": ONE_WORKER, "tracking": UNTRACKED}
    experiment = load_experiment(experiment_file(**settings))

    def kill(event: Event) -> None:
        if isinstance(event, EpochEnded) and len(listening.epochs) == 3:
            _kill_a_run_worker()

    listening = Listening(kill)
    results = run(experiment, home=tmp_path / "home", sinks=[listening])
    assert comparable(results.records) == comparable(trained_here(experiment, uneven()))


def _kill_a_run_worker() -> None:
    workers = run_workers(psutil.Process())
    assert workers, "no worker process found"
    workers[0].send_signal(signal.SIGKILL)


def test_kill_9_of_the_driver_loses_nothing(
    experiment_file: Callable[..., Path], uneven: Callable[..., PreparedData], tmp_path: Path, local_ray: None
) -> None:
    """The same experiment goes on: finished runs are not repeated, the broken one resumes, the end is the same."""
    path = experiment_file(
        methods="[equal, aamtrl, pcgrad]",
        training="{epochs: 12, batch_size: 4, lr: 1e-2, checkpoint_seconds: 0}",
        tracking=UNTRACKED,
        resources=ONE_WORKER,
    )
    home = tmp_path / "home"
    command = [sys.executable, "-m", "mtlscale.cli", "run", str(path), "--home", str(home)]
    command += ["--set", f"resources.cpus_per_worker={os.cpu_count()}"]  # one worker there, too
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    ledger = Ledger(Home(home).ledger("small"))

    def broken_now() -> set[str]:
        """Runs that have a checkpoint and no end."""
        return {p.parent.name for p in home.glob("runs/*/checkpoint.pt")} - set(ledger.latest())

    # The workers stand still while we look, so that what is in the middle of its run when the driver dies stays there.
    deadline = time.monotonic() + 120
    while True:
        assert driver.poll() is None and time.monotonic() < deadline
        workers = run_workers(psutil.Process(driver.pid)) if ledger.latest() and broken_now() else []
        for worker in workers:
            worker.suspend()
        if workers and broken_now():
            break
        for worker in workers:
            worker.resume()
        time.sleep(0.02)
    daemons = [p for p in psutil.Process(driver.pid).children(recursive=True) if p.name() in ("raylet", "gcs_server")]
    os.kill(driver.pid, signal.SIGKILL)
    for worker in workers:
        worker.kill()
    driver.wait()
    assert daemons
    wait_until_gone([*daemons, *workers])  # Ray's processes go with their driver
    before = {run_id: line.finished for run_id, line in ledger.latest().items()}
    assert before and broken_now()

    experiment = load_experiment(path)
    results = run(experiment, home=home)
    after = ledger.latest()
    assert {run_id: after[run_id].finished for run_id in before} == before
    assert [r.run_id for r in ledger].count(next(iter(before))) == 1
    assert comparable(results.records) == comparable(trained_here(experiment, uneven()))


def test_what_the_cluster_cannot_give_is_said_before_anything_starts(
    small: Callable[..., Experiment], tmp_path: Path, local_ray: None
) -> None:
    with pytest.raises(UserError, match="a worker needs 64 CPUs, but the largest node has 4 CPUs"):
        run(small(resources="{cpus_per_worker: 64}"), home=tmp_path)
    with pytest.raises(UserError, match="needs 1 CPU and 1 GPU, but the largest node has 4 CPUs and 0 GPUs"):
        run(small(resources="{gpus_per_worker: 1}"), home=tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--address", "127.0.0.1:1"], "no Ray answers at 127.0.0.1:1"),
        (["--set", "tracking.uri=http://127.0.0.1:1"], "no MLflow answers at http://127.0.0.1:1"),
        (["--set", "tracking.uri=file:///tmp/x"], "MLflow keeps no plain folders"),
    ],
)
def test_services_that_do_not_answer_are_named_before_anything_starts(
    arguments: list[str], expected: str, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    assert expected in refused("run", experiment_file(), "--home", tmp_path / "home", *arguments)
    assert not list(tmp_path.glob("home/runs/*")) and not list(tmp_path.glob("home/*.db"))
