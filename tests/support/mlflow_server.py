"""Real MLflow servers and PostgreSQL on loopback for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psutil

POSTGRES = next(
    (
        folder
        for folder in (Path("/usr/local/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
        if (folder / "postgres").exists() and (folder / "initdb").exists()
    ),
    None,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class MlflowServer:
    """`mlflow server` with one worker; `kill` is kill -9 of all of it, `start` brings it back on the same port."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store, self.port = folder, store, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> MlflowServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        code = "import sys; from mlflow.cli import cli; sys.argv[0] = 'mlflow'; cli()"
        command = [sys.executable, "-c", code, "server", "--host", "127.0.0.1", "--port", str(self.port)]
        options = [
            "--workers",
            "1",
            "--backend-store-uri",
            self.store,
            "--artifacts-destination",
            str(self.folder / "art"),
        ]
        with (self.folder / "mlflow.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ
                | {
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # eight processes that nobody here needs
                    "PYTHONWARNINGS": "ignore",
                },
            )
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), urlopen(f"{self.uri}/health", timeout=5):
                return self
            assert self._process.poll() is None and time.monotonic() < deadline, (
                self.folder / "mlflow.log"
            ).read_text()
            time.sleep(0.2)

    def kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(self._process.pid)
            for process in [*whole.children(recursive=True), whole]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait()

    def __enter__(self) -> MlflowServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of its own on loopback, as a user who is not root: its SQLAlchemy URI."""
    assert POSTGRES is not None
    folder.mkdir(parents=True, exist_ok=True)
    data, port = folder / "pg", free_port()
    data.mkdir()
    as_user: dict[str, object] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses root
        as_user = {"user": "nobody", "extra_groups": []}
        shutil.chown(data, "nobody")
        for parent in [folder, *folder.parents]:
            with contextlib.suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
    log = folder / "postgres.log"
    with log.open("wb") as out:
        init = [
            POSTGRES / "initdb",
            "-D",
            data,
            "-U",
            "mtlscale",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        ]
        subprocess.run(init, check=True, stdout=out, stderr=out, cwd="/", **as_user)  # type: ignore[call-overload]
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "unix_socket_directories="]
        server = subprocess.Popen(  # type: ignore[call-overload]
            [POSTGRES / "postgres", "-D", data, *options, "-c", "fsync=off"], stdout=out, stderr=out, cwd="/", **as_user
        )
        try:
            deadline = time.monotonic() + 60
            while b"ready to accept connections" not in log.read_bytes():
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield f"postgresql+psycopg2://mtlscale@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # a fast shutdown, whoever is still connected
            server.wait(timeout=60)
