"""Local Ray cluster of several real nodes on this machine, for trials, fault drills and tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil

from mtlscale.config import UserError

START_SECONDS = 180.0
# `ray start` without its check, which refuses further nodes where Ray listens on loopback alone, as all do here.
_START = """
import sys, types
from ray.scripts import scripts
scripts.ray_constants = types.SimpleNamespace(**{**vars(scripts.ray_constants), "ENABLE_RAY_CLUSTER": True})
sys.argv[0] = "ray"
scripts.main()
"""
_FIRST_PORT, _LAST_PORT = 21000, 29000  # outside the ports that Ray gives its workers


@dataclass
class LocalCluster:
    """Context manager of `nodes` Ray nodes with `cpus` logical CPUs each, their own temporary folder and token.

    Node 0 is the head. Everything listens on loopback.
    """

    folder: Path
    nodes: int = 3
    cpus: int = 1
    prefix: tuple[str, ...] = ()  # of the nodes' commands, such as ("nice",)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()  # jobs start in other folders, and have to find the token from there
        self.port, self.dashboard = _free_port(), _free_port()
        self.token = self.folder / "token"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._temporary = Path(
            tempfile.mkdtemp(prefix="ray-")
        )  # short: the paths of sockets have at most 107 characters
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))

    @property
    def url(self) -> str:
        """The URL of the job server."""
        return f"http://127.0.0.1:{self.dashboard}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the environment that a process needs to join the cluster, or to talk to its job server."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return {
            **inherited,
            "RAY_AUTH_MODE": "token",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{START_SECONDS:.0f}",  # Ray's own minute is too short if all is busy
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # everything listens on loopback
            "RAY_TRAIN_V2_ENABLED": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
        }

    def __enter__(self) -> LocalCluster:
        try:
            self.add_node()
            self._wait_for_head()
            for _ in range(self.nodes - 1):
                self.add_node()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def add_node(self, *before: str) -> int:
        """Start a node, the head first, and return its number; `before` is a command to start it with."""
        number = len(self.processes)
        head = [f"--port={self.port}", "--head", "--dashboard-host=127.0.0.1", f"--dashboard-port={self.dashboard}"]
        role_options = [*head, "--include-dashboard=true"] if number == 0 else [f"--address={self.address}"]

        command = [*before, *self.prefix, sys.executable, "-c", _START, "start", *role_options]
        options = [
            f"--num-cpus={self.cpus}",
            "--node-ip-address=127.0.0.1",
            # Its usual port may be that of another Ray on this machine; no job is taken without it.
            f"--dashboard-agent-listen-port={_free_port()}",
            # Nodes with a common folder would remove each other's copy of a job's working folder.
            f"--temp-dir={self._temporary / str(number)}",
            "--object-store-memory=157286400",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--disable-usage-stats",
            "--block",
        ]

        with (self.folder / f"node{number}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [*command, *options],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=self.environment(),
                    start_new_session=True,
                )
            )

        return number

    def alive(self) -> int:
        """Return how many nodes have reported that they are up, and still are."""
        return sum(
            process.poll() is None and b"Ray runtime started" in (self.folder / f"node{number}.log").read_bytes()
            for number, process in enumerate(self.processes)
        )

    def wait(self) -> None:
        """Wait until all nodes that were started and not killed are up."""
        deadline = time.monotonic() + START_SECONDS
        while self.alive() < sum(process.poll() is None for process in self.processes):
            if time.monotonic() > deadline:
                raise UserError(f"a Ray node did not start within {START_SECONDS:g} s; see {self.folder}/node*.log")
            time.sleep(0.2)

    def kill_node(self, number: int) -> None:
        """Kill all processes of one node by SIGKILL."""
        _kill(self.processes[number])

    def stop(self) -> None:
        """End all nodes, the head last."""
        for process in reversed(self.processes):
            _kill(process)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _wait_for_head(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.processes[0].poll() is not None:
                log_lines = (self.folder / "node0.log").read_text().strip().splitlines() or [""]
                raise UserError(
                    f"the head node did not start ({log_lines[-1]}); pip install 'ray[default]' brings its job server"
                )

            with contextlib.suppress(OSError):
                try:
                    with urlopen(f"{self.url}/api/version", timeout=2):
                        return
                except HTTPError as error:
                    if error.code == 401:
                        return  # it asks for the token, so it is up
            time.sleep(0.2)

        raise UserError(f"the head node did not answer within {START_SECONDS:g} s; see {self.folder}/node0.log")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        node_process = psutil.Process(process.pid)
        for target in [*node_process.children(recursive=True), node_process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                target.send_signal(signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    """Return a port of loopback that is free now."""
    for _ in range(100):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise UserError(f"no free port between {_FIRST_PORT} and {_LAST_PORT}")
