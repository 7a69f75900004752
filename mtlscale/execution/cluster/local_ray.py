"""Start of a local Ray: patient where the machine is busy, one line of error where Ray does not come up."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from mtlscale.config import UserError
from mtlscale.config.registry import import_order
from mtlscale.execution import ray_internals
from mtlscale.execution.faults import busy_machine
from mtlscale.execution.stopping import deaf_children
from mtlscale.records import is_full

ATTEMPTS = 2
NOTE_SECONDS = 15.0  # until the user hears that Ray is still starting
WAIT_VARIABLE = "MTLSCALE_RAY_START_SECONDS"
_LEAST_SECONDS, _MOST_SECONDS = 60, 600
_RETRY_SECONDS = 0.1
_SOCKET_BYTES = 107 if sys.platform.startswith("linux") else 103  # of a socket's path, at most
_SESSION_BYTES = len("/session_2026-01-31_23-59-59_123456_1234567/sockets/plasma_store.1")


class _RayletTimeoutError(Exception):
    """The raylet has not registered in time, or it has ended."""


def start_seconds() -> int:
    """Return how long one start of Ray may take: longer on a busy machine, unless the user has set it."""
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ[WAIT_VARIABLE])
    return round(min(_MOST_SECONDS, _LEAST_SECONDS * busy_machine.slowdown()))


def set_timeouts() -> None:
    """Give the parts of Ray as long to find each other, unless the environment says otherwise; call before import."""
    seconds = start_seconds()
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", str(seconds))
    os.environ.setdefault("RAY_agent_register_timeout_ms", str(1000 * seconds))


def start(note: Callable[[str], None], cpus: int | None = None) -> None:
    """Start Ray; clean up after a start that fails, and repeat it once.

    Args:
        note: Shows the user one line.
        cpus: How many it counts; None: those of this machine.

    Raises:
        UserError: If Ray does not come up.
    """
    import ray

    folder, remark = session_folder()
    if remark:
        note(remark)
    for attempt in range(1, ATTEMPTS + 1):
        before, began = _children(), time.monotonic()
        try:
            with _said_once(note), _patient_for_raylet(), deaf_children():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=str(folder),
                    runtime_env=import_order.worker_environment(),
                )
            busy_machine.note_ray_start(time.monotonic() - began)
            return
        except Exception as error:
            if not is_start_failure(error):
                if is_full(error) or not isinstance(error, OSError | ValueError):
                    raise
                raise UserError(f"Ray does not start on this machine: {' '.join(str(error).split())[:400]}") from None
            busy_machine.note_ray_start(time.monotonic() - began)  # the next start may take longer
            _clear_away(before)
            cause = " ".join(str(error).split())

        if attempt < ATTEMPTS:
            note(f"Ray did not start ({_first_sentence(cause)}); trying once more")

    raise UserError(
        f"Ray did not start in {ATTEMPTS} attempts ({_first_sentence(cause)}; {busy_machine.in_words()}): repeat the "
        f"command when the machine is less busy, or with {WAIT_VARIABLE}={2 * start_seconds() or _LEAST_SECONDS} for "
        f"more time; Ray's logs are in {folder}/session_latest/logs"
    )


def session_folder() -> tuple[Path, str]:
    """Return the folder for a local Ray's sessions, and a remark if it is another one than the environment says.

    Raises:
        UserError: If there is none that can be written and whose name leaves room for those of sockets.
    """
    variable = next((name for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)), "")
    usual = Path(os.environ.get(variable) or "/tmp", "ray").absolute()
    obstacle = _obstacle(usual)
    if not obstacle:
        return usual, ""

    named = f"{variable} = {usual.parent}" if variable else str(usual.parent)
    for parent in ("/tmp", "/var/tmp", "/dev/shm"):
        folder = Path(parent, f"ray-{os.getuid()}")
        if not _obstacle(folder):
            return folder, f"{named} {obstacle}; Ray's files are in {folder}"
    raise UserError(f"{named} {obstacle}; set RAY_TMPDIR to a short folder that can be written")


def _obstacle(folder: Path) -> str:
    """Return why Ray cannot keep its sessions in a folder; "" if it can."""
    if len(os.fsencode(folder)) > _SOCKET_BYTES - _SESSION_BYTES:
        return f"is too long for Ray's sockets (of {_SOCKET_BYTES} bytes at most)"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return "cannot be written"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "cannot be written"


def is_start_failure(error: Exception) -> bool:
    """Return whether Ray did not come up in time, so that another attempt may help."""
    import ray

    # Ray raises bare exceptions where a node or its GCS does not come up.
    failures = (RuntimeError, ConnectionError, TimeoutError, _RayletTimeoutError, ray.exceptions.RayError)
    return type(error) is Exception or isinstance(error, failures)


@contextlib.contextmanager
def _said_once(note: Callable[[str], None]) -> Iterator[None]:
    """Note that Ray is still starting, unless it is up before."""
    timer = threading.Timer(NOTE_SECONDS, lambda: note(f"Ray is still starting ({busy_machine.in_words()})"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _patient_for_raylet() -> Iterator[None]:
    """Wait `start_seconds` for the raylet to register; Ray gives up after 30 s, whatever its settings."""
    services = ray_internals.services()
    get_node = services.get_node
    seconds = start_seconds()
    deadline = time.monotonic() + seconds

    def get_node_patiently(gcs_address: str, node_id: str) -> Any:
        while True:
            try:
                return get_node(gcs_address, node_id)  # waits a while itself: $RAY_raylet_start_wait_time_s
            except RuntimeError as error:
                if not any(map(_is_raylet, psutil.Process().children())):
                    raise _RayletTimeoutError("its raylet ended") from error
                if time.monotonic() > deadline:
                    raise _RayletTimeoutError(f"its raylet did not register within {seconds} s") from error
            time.sleep(_RETRY_SECONDS)

    services.get_node = get_node_patiently
    try:
        yield
    finally:
        services.get_node = get_node


def _is_raylet(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(part.startswith("--raylet_socket_name=") for part in process.cmdline())  # none once it has ended
    return False


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _clear_away(before: set[psutil.Process]) -> None:
    """End what a failed start left behind: Ray has lost track of it, and it would slow the next start."""
    import ray

    ray.shutdown()
    for child in _children() - before:
        with contextlib.suppress(psutil.Error):
            if "/ray/" not in " ".join(child.cmdline()):
                continue
            for process in [*child.children(recursive=True), child]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            child.wait(_MOST_SECONDS)


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")[:200]
