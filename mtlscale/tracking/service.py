"""Connection to MLflow: the check that one answers, its version, and its client."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from mtlscale.config import UserError

_SECONDS = 8  # time limit of a server's answer
_TABLES_SECONDS = (
    300  # time limit of another process that makes a database's tables; on a busy machine it takes a minute
)


def check_uri(uri: str) -> str | None:
    """Check that MLflow answers at a URI.

    Returns:
        A remark on a server that answers, if any: that its version is another.

    Raises:
        UserError: No server answers within ten seconds, or MLflow does not have the scheme.
    """
    parts = urlsplit(uri)

    if parts.scheme in ("http", "https"):
        try:
            with urlopen(f"{uri.rstrip('/')}/health", timeout=_SECONDS) as answer:
                answer.read()
        except HTTPError as error:
            if error.code in (401, 403):
                return None  # it is there; credentials come from MLflow's own environment variables
            raise UserError(f"{uri} answers, but not as an MLflow server (HTTP {error.code})") from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UserError(f"no MLflow answers at {uri} ({reason}); start it or correct tracking.uri") from None
        return _other_version(uri)

    if parts.scheme in ("", "file"):
        raise UserError(f"tracking.uri {uri!r}: MLflow keeps no plain folders any more; write sqlite:///PATH.db")
    if parts.scheme.split("+")[0] not in ("sqlite", "postgresql", "mysql", "mssql", "databricks"):
        raise UserError(
            f"tracking.uri {uri!r}: unknown scheme {parts.scheme!r}; use sqlite:///, http:// or postgresql://"
        )

    return None


def _other_version(uri: str) -> str | None:
    """Return a remark if the server's major version is not ours, since it may drop what it does not know."""
    try:
        with urlopen(f"{uri.rstrip('/')}/version", timeout=2) as answer:
            server_version = answer.read(100).decode().strip()
    except (URLError, OSError, ValueError):
        return None  # an old server, or one behind a gate, does not say

    client_version = version("mlflow")
    if not server_version[:1].isdigit() or server_version.split(".")[0] == client_version.split(".")[0]:
        return None
    return (
        f"MLflow at {uri} is version {server_version}, and {client_version} here: "
        "what one of them does not know may be missing"
    )


def client_of(uri: str) -> Any:
    """Return MLflow's client, without its messages and its minutes of retries."""
    for name, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("GIT_PYTHON_REFRESH", "quiet"),
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "15"),
        ("MLFLOW_LOGGING_LEVEL", "ERROR"),
        ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false"),
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"),  # two lines and two calls a run
    ):
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    from mlflow import MlflowClient

    file = database_file(uri)
    if file is None:
        return MlflowClient(tracking_uri=uri)
    file.parent.mkdir(parents=True, exist_ok=True)
    return _alone(lambda: MlflowClient(tracking_uri=uri), file)


def _alone(connected: Callable[[], Any], file: Path) -> Any:
    """Connect to a database while no other process does: MLflow makes its tables where there are none.

    Of two processes that make them at once one would fail, and its runs would be missing. A process that may not write
    beside the database takes no lock, and makes no tables either.

    Raises:
        UserError: If another process does not come to an end with it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file.with_name(f".{file.name}.lock"), timeout=_TABLES_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{lock.lock_file} has been held for {_TABLES_SECONDS} s by a process that makes the tables of {file}; end "
            "that process, then `mtlscale sync`"
        ) from None
    except (OSError, NotImplementedError):
        return connected()

    try:
        return connected()
    finally:
        lock.release()


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite URI."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None
