"""Connection to MLflow: the check that one answers, its version, and its client."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mtlscale.config import Experiment, UserError, without_secrets
from mtlscale.records import Home, is_full

if TYPE_CHECKING:
    import requests

VARIABLE = "MLFLOW_TRACKING_URI"  # MLflow's own
# Databases of servers, and what installs the driver that an address without one means.
_DATABASES = {"postgresql": "'mtlscale[cluster]'", "mysql": "mysqlclient"}
# Kinds of places where a server keeps files, and the module and package that write there.
_STORES = {
    "s3": [("boto3", "boto3")],
    "gs": [("google.cloud.storage", "google-cloud-storage")],
    "wasbs": [("azure.storage.blob", "azure-storage-blob")],
    "abfss": [("azure.storage.filedatalake", "azure-storage-file-datalake")],
}
_SECONDS = 8  # time limit of a server's answer
_LOCK_SECONDS = 300  # time limit of another process that makes a database's tables: a minute on a busy machine


def uri_of(experiment: Experiment, home: Home) -> str:
    """Return the address of an experiment's MLflow: that of its file, else $MLFLOW_TRACKING_URI, else the home's."""
    return experiment.tracking.uri or os.environ.get(VARIABLE) or home.tracking_uri


def check_uri(uri: str) -> str | None:
    """Check that MLflow answers at a URI, as its client would ask.

    Returns:
        A remark on a server that answers, if any: that its version is another.

    Raises:
        UserError: No server or database answers within ten seconds, its driver is missing, or MLflow does not have the
            scheme.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        return _check_server(uri)

    if parts.scheme in ("", "file"):
        raise UserError(f"{_setting(uri)} {uri!r}: MLflow keeps no plain folders any more; write sqlite:///PATH.db")
    database = parts.scheme.split("+")[0]
    if database not in ("sqlite", *_DATABASES, "mssql", "databricks"):
        raise UserError(
            f"{_setting(uri)} {uri!r}: unknown scheme {parts.scheme!r}; use sqlite:///, http:// or postgresql://"
        )
    if database in _DATABASES:
        _check_database(uri)
    return None


def _setting(uri: str) -> str:
    """Return the name of what an address was set by."""
    return f"${VARIABLE}" if os.environ.get(VARIABLE) == uri else "tracking.uri"


def _check_server(uri: str) -> str | None:
    import requests

    try:
        answer = _ask(uri, "health", _SECONDS)
    except (requests.RequestException, OSError, ValueError) as error:
        raise UserError(f"no MLflow answers at {uri} ({_cause(error)}); start it or correct {_setting(uri)}") from None

    if answer.status_code in (401, 403):
        return None  # it is there; MLflow's client says more of the credentials
    if not answer.ok:
        raise UserError(f"{uri} answers, but not as an MLflow server (HTTP {answer.status_code})")
    return _other_version(uri)


def _cause(error: Exception) -> str:
    """Return why nobody answers, in the words of a person; what urllib3 puts around the cause is no help."""
    reason = " ".join(str(error).split())
    for words, sign in (
        ("connection refused", "refused"),
        ("no answer in time", "timed out"),
        ("unknown host", "resolve"),
    ):
        if sign in reason:
            return words
    return (reason.rpartition("Caused by ")[2].rstrip(")") if "Caused by " in reason else reason)[:200]


def _ask(uri: str, route: str, seconds: float) -> requests.Response:
    """Return a server's answer, asked for with the certificates that MLflow's own variables name."""
    import requests
    import urllib3

    insecure = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1")
    certificate: bool | str = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        return requests.get(
            f"{uri.rstrip('/')}/{route}",
            timeout=seconds,
            verify=False if insecure else certificate,
            cert=os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH") or None,
        )


def _check_database(uri: str) -> None:
    """Connect once: MLflow tries for an hour."""
    import sqlalchemy

    scheme = urlsplit(uri).scheme
    try:
        engine = sqlalchemy.create_engine(with_driver(uri), connect_args={"connect_timeout": _SECONDS})
    except ModuleNotFoundError as error:
        package = error.name if "+" in scheme else _DATABASES[scheme]
        raise UserError(
            f"{_setting(uri)} {uri!r} needs the Python package {error.name}; pip install {package}"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:
        raise UserError(f"{_setting(uri)} {uri!r} is no address of a database ({_first_line(error)})") from None

    try:
        engine.connect().close()
    except Exception as error:  # every driver has errors of its own
        raise UserError(
            f"no MLflow answers at {uri} ({_first_line(getattr(error, 'orig', error))}); start the database or correct "
            f"{_setting(uri)}"
        ) from None
    finally:
        engine.dispose()


def with_driver(uri: str) -> str:
    """Return a PostgreSQL address with the driver that is installed, if it names none."""
    scheme, separator, rest = uri.partition("://")
    if scheme == "postgresql" and find_spec("psycopg") is None and find_spec("psycopg2") is not None:
        return f"{scheme}+psycopg2{separator}{rest}"
    return uri


def _first_line(error: Exception) -> str:
    text = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:200]
    return f"{text}; `mlflow db upgrade` mends it" if "schema" in text else text


@contextlib.contextmanager
def in_one_line(uri: str, what: str = "cannot be read") -> Iterator[None]:
    """Turn what MLflow, its server or its database raises into a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:  # of a database, or of a store of artifacts
        raise UserError(f"MLflow at {uri} {what}: it needs the Python package {error.name}; pip install it") from None
    except OSError as error:  # includes those of requests
        if is_full(error):
            raise
        raise UserError(f"MLflow at {uri} {what}: {_first_line(error)}") from None
    except Exception as error:
        if not type(error).__module__.startswith(("mlflow.", "sqlalchemy.", "botocore.", "google.", "azure.")):
            raise
        raise UserError(f"MLflow at {uri} {what}: {_first_line(error)}") from None


def _other_version(uri: str) -> str | None:
    """Return a remark if the server's major version is not ours, since it may drop what it does not know."""
    import requests

    try:
        answer = _ask(uri, "version", 2)
    except (requests.RequestException, OSError, ValueError):
        return None
    server_version = answer.text[:100].strip() if answer.ok else ""  # an old server, or one behind a gate

    client_version = version("mlflow")
    if not server_version[:1].isdigit() or server_version.split(".")[0] == client_version.split(".")[0]:
        return None
    return without_secrets(
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
        return MlflowClient(tracking_uri=with_driver(uri))
    with alone(file):  # MLflow makes missing tables; of two processes that make them at once, one would fail
        return MlflowClient(tracking_uri=uri)


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Keep other processes from making the same file."""
    from filelock import FileLock, Timeout

    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file.with_name(f".{file.name}.lock"), timeout=_LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{lock.lock_file} has been held for {_LOCK_SECONDS} s by a process that makes {file}; end that process, "
            "then `mtlscale sync`"
        ) from None
    except (OSError, NotImplementedError):
        pass  # a process that may not write beside the file makes nothing either

    try:
        yield
    finally:
        lock.release()


def database_file(uri: str) -> Path | None:
    """Return the file of an SQLite URI."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None


def check_artifact_store(location: str) -> None:
    """Raise `UserError` if this machine lacks the package that writes files where MLflow keeps an experiment's."""
    scheme = urlsplit(location).scheme
    for module, package in _STORES.get(scheme, ()):
        with contextlib.suppress(ModuleNotFoundError):  # of a parent package
            if find_spec(module) is not None:
                continue
        raise UserError(f"MLflow keeps the files at {scheme}://, which needs the Python package {package}; install it")


def relocate(uri: str, old: str, new: str) -> None:
    """Name the folder of files anew in a home's own database: the home was moved, and MLflow has no call for it."""
    with contextlib.closing(sqlite3.connect(str(database_file(uri)), timeout=60)) as database, database:
        for table, column in (
            ("experiments", "artifact_location"),
            ("runs", "artifact_uri"),
            ("logged_models", "artifact_location"),
        ):
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )
