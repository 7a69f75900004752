"""Experiments as jobs of a real cluster of three nodes, submitted from outside."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from mtlscale.config import UserError
from mtlscale.execution.cluster.local_cluster import LocalCluster
from mtlscale.execution.cluster.submit import JobState, _check_version, _LineSplitter, address_of
from mtlscale.execution.job_progress import JobProgress
from mtlscale.records import Home, Ledger

needs_job_server = pytest.mark.skipif(
    importlib.util.find_spec("aiohttp_cors") is None, reason="no job server: pip install 'ray[default]'"
)
AGENT_PORT = 52365  # of the agent that starts jobs, unless another one is named


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with socket.socket() as other_ray:
        with contextlib.suppress(OSError):  # there is one already
            other_ray.bind(("127.0.0.1", AGENT_PORT))
            other_ray.listen()
        with LocalCluster(tmp_path_factory.mktemp("c"), nodes=3) as cluster:
            cluster.wait()
            yield cluster


def mtlscale(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mtlscale.cli", *arguments], capture_output=True, text=True, env=env, timeout=280
    )


@needs_job_server
@pytest.mark.slow
@pytest.mark.ray
def test_a_job_on_three_nodes_ends_as_a_local_run(
    three_nodes: LocalCluster, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment_file(tracking="{enabled: false}")
    env, there = three_nodes.environment(), str(tmp_path / "there")
    submitted = ["submit", str(path), "--address", three_nodes.url, "--with-code", "--home", there]
    first = mtlscale(*submitted, env=env)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "mean" in first.stdout and "succeeded" in first.stdout
    local = mtlscale("run", str(path), "--home", str(tmp_path / "here"), env={**env, "RAY_AUTH_MODE": "disabled"})
    assert local.returncode == 0, local.stderr
    mine, theirs = (Ledger(Home(tmp_path / home).ledger("small")).latest() for home in ("here", "there"))
    keys = ("status", "metrics", "last", "chosen_epoch", "steps", "samples")
    assert len(mine) == 3
    assert {i: [getattr(r, k) for k in keys] for i, r in mine.items()} == {
        i: [getattr(r, k) for k in keys] for i, r in theirs.items()
    }

    # Ray's own command does the same, and finds everything done.
    plain = subprocess.run(
        [
            *(sys.executable, "-c", "from ray.scripts.scripts import main; main()", "job", "submit"),
            *("--address", three_nodes.url, "--working-dir", str(path.parent), "--"),
            *("python", "-m", "mtlscale.cli", "run", path.name, "--home", there),
        ],
        capture_output=True,
        text=True,
        env=env,
        timeout=280,
    )
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert "3 of 3 runs are done already" in plain.stdout
    counts = mtlscale("status", "--home", there, env=env)
    assert "small" in counts.stdout and counts.stdout.split("small")[1].replace("│", " ").split()[:5] == list("33000")


@needs_job_server
@pytest.mark.slow
@pytest.mark.ray
def test_the_jobs_own_exit_status_comes_back(
    three_nodes: LocalCluster, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment_file(name="greedy", resources="{gpus_per_worker: 4}", tracking="{enabled: false}")
    arguments = ["submit", str(path), "--address", three_nodes.url, "--home", str(tmp_path / "home"), "--with-code"]
    done = mtlscale(*arguments, env=three_nodes.environment())
    assert done.returncode == 2
    assert "a worker needs 1 CPU and 4 GPUs, but the largest node has 1 CPU and 0 GPUs" in done.stdout
    assert "exit status 2" in done.stdout


@needs_job_server
@pytest.mark.slow
@pytest.mark.ray
def test_a_job_is_followed_asked_after_and_stopped(
    three_nodes: LocalCluster, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    training = "{epochs: 100000, batch_size: 4, lr: 1e-3}"
    path = experiment_file(name="long", methods="[stl, equal]", training=training, tracking="{enabled: false}")
    env, at = three_nodes.environment(), ["--address", three_nodes.url]
    arguments = ["submit", str(path), *at, "--home", str(tmp_path / "home"), "--with-code", "--no-wait"]
    arguments += ["--only", "equal", "--dataset", "uneven"]
    said = mtlscale(*arguments, env=env)
    assert said.returncode == 0, said.stderr
    job = said.stdout.split(":")[0]
    deadline = time.monotonic() + 200
    while "progress: " not in mtlscale("logs", job, *at, env=env).stdout:
        assert time.monotonic() < deadline
    state = mtlscale("status", job, *at, env=env).stdout
    assert "running" in state and "/100000 epochs, 0/1 runs" in state
    assert _listening_elsewhere(three_nodes) == []
    assert "stopping" in mtlscale("stop", job, *at, env=env).stdout
    followed = mtlscale("logs", job, "--follow", *at, env=env)
    assert followed.returncode != 0 and "stopped" in followed.stdout
    assert job in mtlscale("status", *at, env=env).stdout


def _listening_elsewhere(cluster: LocalCluster) -> list[tuple[str, object]]:
    """Sockets of the cluster's processes that listen on more than loopback."""
    found: list[tuple[str, object]] = []
    listening = 0
    for node in cluster.processes:
        for process in [psutil.Process(node.pid), *psutil.Process(node.pid).children(recursive=True)]:
            try:
                sockets = process.net_connections()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            open_ = [s for s in sockets if s.status == psutil.CONN_LISTEN]
            listening += len(open_)
            found += [
                (process.name(), s.laddr) for s in open_ if s.laddr.ip.rpartition(":")[2] not in ("127.0.0.1", "1")
            ]
    assert listening > 3
    return found


@needs_job_server
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": ""}, "wants a token: set RAY_AUTH_TOKEN_PATH"),
        ({"RAY_AUTH_TOKEN": "not-the-clusters-token"}, "refuses the token"),
    ],
)
def test_a_job_without_the_token_is_refused(
    changed: dict[str, str], expected: str, three_nodes: LocalCluster, experiment_file: Callable[..., Path]
) -> None:
    env = three_nodes.environment() | changed
    done = mtlscale("submit", str(experiment_file()), "--address", three_nodes.url, env=env)
    assert done.returncode == 2 and expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "not-the-clusters-token" not in done.stdout + done.stderr
    jobs = mtlscale("status", "--address", three_nodes.url, env=three_nodes.environment())
    assert jobs.returncode == 0 and "--with-code" not in jobs.stdout


@needs_job_server
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0,
    reason="no mount namespaces for this user",
)
def test_a_folder_that_one_node_does_not_see_is_named(
    three_nodes: LocalCluster, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = experiment_file(tracking="{enabled: false}")
    blind = three_nodes.add_node("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {home}; exec "$0" "$@"')
    try:
        three_nodes.wait()
        arguments = ["submit", str(path), "--address", three_nodes.url, "--home", str(home), "--with-code"]
        done = mtlscale(*arguments, env=three_nodes.environment())
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"{home} is not shared: node 127.0.0.1 (" in done.stdout.replace("\n", " ")
        assert not (home / "runs").exists() and not list(home.glob(".probe*"))
    finally:
        three_nodes.kill_node(blind)


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"hello": "another service"}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow  # another service has to come up
def test_another_service_is_no_cluster(experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        done = mtlscale("submit", str(experiment_file()), "--address", address, env=dict(os.environ))
        server.shutdown()
    assert done.returncode == 2 and "answers, but not as a Ray job server" in done.stderr
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = mtlscale("submit", str(experiment_file()), "--address", address, env=dict(os.environ))
    assert done.returncode == 2 and "TimeoutError" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    done = mtlscale("submit", "quickstart", "--address", "http://127.0.0.1:1", env=dict(os.environ))
    assert done.returncode == 2 and "no Ray job server answers at 127.0.0.1:1" in done.stderr


def test_versions_that_differ_are_named() -> None:
    _check_version("http://h", "2.60.0", "2.60.3")
    with pytest.raises(UserError, match=r"runs Ray 2\.58\.1, this machine has 2\.60\.0"):
        _check_version("http://h", "2.60.0", "2.58.1")


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert address_of(None) == "http://127.0.0.1:8265"
    assert address_of("head:8265/") == "http://head:8265"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # of the cluster, not of its job server
    assert address_of(None) == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "https://head")
    assert address_of(None) == "https://head"
    with pytest.raises(UserError, match="over HTTP"):
        address_of("ray://head:10001")


def test_a_log_that_is_read_again_is_told_once() -> None:
    told: list[str] = []
    lines = _LineSplitter(told.append)
    lines.restart()
    lines.add("one\ntw")
    lines.add("o\nthr")
    lines.restart()  # the connection broke
    lines.add("one\ntwo\nthree\n")
    lines.end("one\ntwo\nthree\nfour")
    assert told == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("status", "exit_code", "code"),
    [("SUCCEEDED", 0, 0), ("FAILED", 2, 2), ("FAILED", -9, 137), ("FAILED", None, 1), ("STOPPED", None, 130)],
)
def test_the_exit_status_that_is_passed_on(status: str, exit_code: int | None, code: int) -> None:
    assert JobState("job", status, "", "", exit_code, None, None).code == code


def test_progress_is_read_as_it_is_written() -> None:
    progress = JobProgress(3, 120, 1, 40)
    assert JobProgress.read(f"{progress}\n") == progress
    assert JobProgress.read("progress: none") is None
