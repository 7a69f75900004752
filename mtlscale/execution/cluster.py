"""Joining or starting Ray, and saying what it cannot give before anything starts."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from mtlscale.execution import token
from mtlscale.execution.packing import Sort, runs_at_once
from mtlscale.execution.stopping import handle_again
from mtlscale.spec import ResourceSpec, UserError

CONNECT_SECONDS = 8.0


def check_address(address: str, what: str = "Ray", default_port: int = 6379) -> None:
    """Open and close a TCP connection; `UserError` within ten seconds where nobody answers."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port or default_port
    except ValueError:
        raise UserError(f"{what} address {address!r} is not HOST:PORT") from None
    if not host:
        raise UserError(f"{what} address {address!r} is not HOST:PORT")
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            pass
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UserError(f"no {what} answers at {host}:{port} ({reason}); check the address and that it runs") from None


def named(address: str | None) -> str | None:
    """The cluster to join: the argument, else $RAY_ADDRESS; None for a local one. `UserError` where it does not
    answer."""
    address = address or os.environ.get("RAY_ADDRESS")
    if address in (None, "", "local"):
        return None
    if address != "auto":
        check_address(address)
    return address


def _settings(address: str | None) -> None:
    # Plain settings for a plain run; each may still be set from outside. Ray reads them when it is imported.
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray would lower its local workers by 15: on a machine in use they then take ten times as long, and the user's own
    # programs hardly notice.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a thread of Tune's would start a new one after the end
    token.make_absolute()
    if "ray" not in sys.modules:
        if address or os.environ.get("RAY_ADDRESS"):
            token.use_token()
        else:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # a single node that listens on loopback


@contextlib.contextmanager
def session(address: str | None = None) -> Iterator[None]:
    """Ray for the duration: the one already joined, the cluster at `address` (or $RAY_ADDRESS), or a local one.

    A local one listens on loopback and ends with the block.
    """
    _settings(address)
    import ray

    if ray.is_initialized():
        yield
        return
    address = named(address)
    if address not in (None, "auto"):
        token.check_token(str(address))
    try:
        if address is not None:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                text = " ".join(str(error).split())  # Ray tells versions that differ on lines of their own
                raise UserError(f"cannot join Ray at {address}: {text[:400]}") from None
        else:
            try:
                ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:  # Ray raises no type of its own here
                if "timed out during startup" not in str(error):
                    raise
                raise UserError(
                    "Ray did not come up on this machine in time, which may be too busy; the same command tries again"
                ) from error
        handle_again()
        yield
    finally:
        ray.shutdown()


def slots(resources: ResourceSpec, runs: int) -> int:
    """How many runs fit on the joined cluster at once, at most `runs`; `UserError` where not even one does."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    config = ray._private.state.state.get_cluster_config()  # an autoscaler's, which adds nodes once runs wait for them
    sorts = [] if config is None else [Sort(dict(one.resources), one.max_count) for one in config.node_group_configs]
    return runs_at_once(nodes, sorts, resources, runs)


def check_fits(resources: ResourceSpec, address: str | None = None) -> None:
    """`UserError` where a run of these resources does not fit on this machine, or on the cluster at `address` (or
    $RAY_ADDRESS), which is joined for the time to ask it."""
    if named(address) is not None or _joined():
        with session(address):
            slots(resources, 1)
    elif resources.workers * resources.cpus_per_worker > 1 or resources.gpus_per_worker:
        # What every machine has, nobody waits for Ray's import to be told.
        _settings(address)
        runs_at_once([_this_machine()], (), resources, 1)


def _joined() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _this_machine() -> dict[str, float]:
    """The CPUs and GPUs that a local Ray would find."""
    from ray._private.accelerators import get_all_accelerator_managers
    from ray._private.utils import get_num_cpus

    gpus = 0
    for manager in get_all_accelerator_managers():
        if manager.get_resource_name() == "GPU":
            count, visible = (
                manager.get_current_node_num_accelerators(),
                manager.get_current_process_visible_accelerator_ids(),
            )
            gpus += count if visible is None else min(count, len(visible))
    return {"CPU": float(get_num_cpus()), "GPU": float(gpus)}
