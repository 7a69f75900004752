"""Jobs on a Ray cluster, from outside: submit an experiment, follow it, ask after it, stop it.

Ray's own client talks to the cluster. What it reports badly or waits for without end is reported here in one line: an
address where nobody answers, another service there, a token that is missing or wrong, another version of Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from mtlscale.config import UserError
from mtlscale.execution import temp_files
from mtlscale.execution.cluster.client import CLIENT
from mtlscale.execution.cluster.cluster import check_address
from mtlscale.execution.cluster.job_bundle import Package
from mtlscale.execution.cluster.token import use_token
from mtlscale.execution.job_progress import PROGRESS

DEFAULT_ADDRESS = "http://127.0.0.1:8265"

_ANSWER_SECONDS = 4.0
_LOST_SECONDS = 60.0  # a cluster that does not answer for so long is given up
_POLL_SECONDS = 0.5
_ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
_STOP_SECONDS = 30  # that a driver has to end in good order when its job is stopped; Ray's own three are too few
_READY_SECONDS = 180.0  # that a new cluster may need until it takes jobs; on a busy machine a minute is too short


@dataclass(frozen=True)
class JobState:
    """State of a job, as the cluster reports it."""

    job: str
    status: str  # PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
    message: str
    entrypoint: str
    exit_code: int | None  # of the job's own command, where it has one
    started: float | None  # seconds since 1970
    ended: float | None

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDED

    @property
    def code(self) -> int:
        """The exit status to pass on: the job's own; 128 + the signal that ended it; 1 where it never ran."""
        if self.exit_code is None:
            return 0 if self.status == "SUCCEEDED" else 130 if self.status == "STOPPED" else 1
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code


def address_of(address: str | None) -> str:
    """Return the URL of the job server.

    It is the argument, else $RAY_API_SERVER_ADDRESS, else $RAY_ADDRESS if it is a URL, else this machine's.
    """
    url = address or os.environ.get("RAY_API_SERVER_ADDRESS")
    if not url and os.environ.get("RAY_ADDRESS", "").startswith(("http://", "https://")):
        url = os.environ["RAY_ADDRESS"]
    url = (url or DEFAULT_ADDRESS).rstrip("/")
    url = url if "://" in url else f"http://{url}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"jobs are submitted over HTTP: write --address http://HEAD:8265 instead of {url}")
    return url


def connect(address: str | None) -> Jobs:
    """Return the jobs of the cluster at this address.

    Raises:
        UserError: Within ten seconds, for an address or token that is wrong.
    """
    url = address_of(address)
    use_token()
    port = 443 if url.startswith("https") else 80
    check_address(url, "Ray job server", port)
    _check_is_ray(url)

    import ray
    from ray.job_submission import JobSubmissionClient

    for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env"):
        logging.getLogger(name).setLevel(logging.WARNING)

    with _own_address(), _one_line(url):
        client = JobSubmissionClient(url)
    _check_version(url, ray.__version__, client._server_ray_version)
    return Jobs(url, client)


def _check_is_ray(url: str) -> None:
    try:
        with urlopen(Request(f"{url}/api/version"), timeout=_ANSWER_SECONDS) as answer:
            if "ray_version" in json.loads(answer.read(10_000)):
                return
        reason = "its answer is another service's"
    except HTTPError as error:
        if error.code in (401, 403):
            return  # it wants a token, which Ray's client sends
        reason = f"HTTP {error.code}"
    except (HTTPException, URLError, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", "")) or type(error).__name__

    raise UserError(
        f"{url} answers, but not as a Ray job server ({reason}); name the dashboard's port: --address http://HEAD:8265"
    )


def _check_version(url: str, local: str, remote: str | None) -> None:
    if remote is not None and local.split(".")[:2] != remote.split(".")[:2]:
        raise UserError(
            f"the cluster at {url} runs Ray {remote}, this machine has {local}; install the cluster's version here: "
            f"pip install 'ray[default]=={remote}'"
        )


@contextlib.contextmanager
def _own_address() -> Iterator[None]:
    """Hide the variables that Ray puts before the address it is given."""
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def _one_line(url: str) -> Iterator[None]:
    """Turn errors of Ray's client into errors a user can mend; no message holds the token."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        if "required" in str(error):
            raise UserError(
                f"the cluster at {url} wants a token: set RAY_AUTH_TOKEN_PATH to a file with it (or RAY_AUTH_TOKEN)"
            ) from None
        raise UserError(
            f"the cluster at {url} refuses the token; set RAY_AUTH_TOKEN_PATH to a file with the cluster's own"
        ) from None
    except (ConnectionError, requests.RequestException) as error:
        raise UserError(f"{url} does not answer any more ({type(error).__name__}); try again") from None
    except RuntimeError as error:
        if "does not exist" in str(error):
            raise UserError(f"the cluster at {url} knows no such job; `mtlscale status --address` lists them") from None
        raise UserError(f"{url}: {str(error).strip().splitlines()[-1][:300]}") from None


class Jobs:
    """The jobs of one cluster."""

    def __init__(self, url: str, client: Any) -> None:
        self.url, self._client = url, client

    def submit(self, package: Package, arguments: Sequence[str], *, with_code: bool = False) -> str:
        """Start `mtlscale run` on the packed experiment and return the job's id.

        The environment of the cluster is used as it is; nothing of this machine's goes along, tokens and passwords
        least of all.

        Args:
            package: The packed experiment.
            arguments: Further arguments of that command.
            with_code: Run the mtlscale in the package.
        """
        command = ["python", "-m", "mtlscale.cli"] if with_code else ["mtlscale"]
        entrypoint = shlex.join([*command, "run", package.file, *arguments])

        with tempfile.TemporaryDirectory(prefix=temp_files.prefix("package")) as folder, _one_line(self.url):
            package.write(Path(folder))
            return self._when_ready(
                lambda: self._client.submit_job(
                    entrypoint=entrypoint,
                    runtime_env={
                        "working_dir": folder,
                        "env_vars": {
                            PROGRESS: "lines",
                            CLIENT: importlib.metadata.version("mtlscale"),
                            "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
                        },
                    },
                    metadata={"mtlscale.experiment": package.experiment.name},
                )
            )

    @staticmethod
    def _when_ready(submit: Callable[[], str]) -> str:
        """Submit, and repeat for a while: a cluster that has just started answers before it takes jobs."""
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                return submit()
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def state(self, job: str) -> JobState:
        with _one_line(self.url):
            return _state(self._client.get_job_info(job))

    def submitted(self) -> list[JobState]:
        """Return the jobs that were submitted, the newest first."""
        with _one_line(self.url):
            states = [_state(info) for info in self._client.list_jobs() if info.submission_id]
        return sorted(states, key=lambda state: -(state.started or 0))

    def logs(self, job: str) -> str:
        with _one_line(self.url):
            return str(self._client.get_job_logs(job))

    def stop(self, job: str) -> bool:
        """Stop a job; return whether there was something to stop."""
        with _one_line(self.url):
            return bool(self._client.stop_job(job))

    def follow(self, job: str, line: Callable[[str], None]) -> JobState:
        """Hand on every line of the log as it comes, and return how the job ended.

        A connection that breaks is made again, without telling a line twice.

        Raises:
            UserError: After a minute without an answer.
        """
        lines = _LineSplitter(line)
        silent_since: float | None = None

        async def tail() -> None:
            lines.restart()
            async for text in self._client.tail_job_logs(job):
                lines.add(text)

        while True:
            try:
                asyncio.run(tail())
                state = self.state(job)
                silent_since = None
                if state.has_ended:
                    lines.end(self.logs(job))
                    return state
            except (TimeoutError, UserError, RuntimeError, OSError) as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _LOST_SECONDS:
                    raise UserError(
                        f"{self.url} has not answered for a minute ({type(error).__name__}); the job may go on: "
                        f"mtlscale logs {job} --follow --address {self.url}"
                    ) from None
            time.sleep(_POLL_SECONDS)


class _LineSplitter:
    """Splitter of a stream into lines, which knows how many have been handed on when the stream begins anew."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._printed = self._skip = 0
        self._partial = ""

    def restart(self) -> None:
        """Begin again at the start of the stream, and skip the lines that were handed on."""
        self._skip, self._partial = self._printed, ""

    def add(self, text: str) -> None:
        *complete_lines, self._partial = (self._partial + text).split("\n")
        for line in complete_lines:
            if self._skip > 0:
                self._skip -= 1
            else:
                self._printed += 1
                self._line(line)

    def end(self, everything: str) -> None:
        """Hand on the part of the complete text that has not been handed on."""
        self.restart()
        self.add(everything if everything.endswith("\n") or not everything else f"{everything}\n")


def _state(info: Any) -> JobState:
    seconds = [None if value is None else value / 1000 for value in (info.start_time, info.end_time)]
    return JobState(
        job=info.submission_id or info.job_id,
        status=str(getattr(info.status, "value", info.status)),
        message=(info.message or "").strip(),
        entrypoint=info.entrypoint,
        exit_code=info.driver_exit_code,
        started=seconds[0],
        ended=seconds[1],
    )
