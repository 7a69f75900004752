"""Connection to Ray: join a cluster or start a local one, and refuse early what it cannot provide."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from mtlscale.config import ResourceSpec, UserError, without_secrets
from mtlscale.config.registry import import_order
from mtlscale.execution.cluster import local_ray, token
from mtlscale.execution.placement import NodeType, runs_at_once
from mtlscale.execution.ray_internals import internal, shown_entrypoint
from mtlscale.execution.stopping import handle_again

CONNECT_SECONDS = 8.0


def check_address(address: str, role: str = "Ray", default_port: int = 6379) -> None:
    """Open and close a TCP connection to an address.

    Args:
        address: `HOST:PORT` or a URL.
        role: The service's name in error messages.
        default_port: The port of an address without one.

    Raises:
        UserError: If nobody answers within ten seconds.
    """
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port or default_port
    except ValueError:
        raise UserError(f"{role} address {address!r} is not HOST:PORT") from None

    if not host:
        raise UserError(f"{role} address {address!r} is not HOST:PORT")

    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            pass
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UserError(f"no {role} answers at {host}:{port} ({reason}); check the address and that it runs") from None


def named(address: str | None) -> str | None:
    """Return the address of the cluster to join: the argument, else $RAY_ADDRESS; None for a local Ray.

    Raises:
        UserError: If the cluster does not answer.
    """
    setting = "--address" if address else "RAY_ADDRESS"
    address = address or os.environ.get("RAY_ADDRESS")
    if address in (None, "", "local"):
        return None
    if address.startswith(("http://", "https://")):
        host = urlsplit(address).hostname or "HOST"
        raise UserError(
            f"{setting} {without_secrets(address)} is the address of a job server, which `mtlscale submit` takes; to "
            f"join the cluster write HOST:PORT, such as {host}:6379, or ray://{host}:10001"
        )
    if address != "auto":
        check_address(address)
    return address


def _settings(address: str | None) -> None:
    # Defaults that the environment may override. Ray reads them when it is imported.
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    # Ray lowers the priority of its local workers by 15: on a busy machine they then take ten times as long, while the
    # user's own programs hardly gain.
    os.environ.setdefault("RAY_worker_niceness", "0")
    local_ray.set_timeouts()
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a thread of Tune starts a new Ray after the end

    token.make_absolute()
    if "ray" not in sys.modules:
        if address or os.environ.get("RAY_ADDRESS"):
            token.use_token()
        else:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # a single node that listens on loopback
            token.provide()


def to_stderr(text: str) -> None:
    """Show one line on standard error."""
    print(f"mtlscale: {text}", file=sys.stderr)


@contextlib.contextmanager
def session(address: str | None = None, note: Callable[[str], None] = to_stderr) -> Iterator[None]:
    """Hold Ray for the duration: the one already joined, the cluster at `address` (or $RAY_ADDRESS), or a local one.

    A local one listens on loopback and ends with the block.

    Args:
        address: HOST:PORT of the cluster to join.
        note: Shows the user one line, such as that a local Ray is still starting.

    Raises:
        UserError: If the cluster cannot be joined, or the local Ray does not come up.
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
        with shown_entrypoint(without_secrets):
            _join(address, note)
        handle_again()
        yield
    finally:
        ray.shutdown()


def _join(address: str | None, note: Callable[[str], None]) -> None:
    """Join the Ray at the address, or start one on this machine."""
    import ray

    if address is None:
        local_ray.start(note)
        return
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=import_order.worker_environment(),
        )
    except Exception as error:
        if not (isinstance(error, ValueError) or local_ray.is_start_failure(error)):
            raise
        text = " ".join(str(error).split())  # Ray puts versions that differ on separate lines
        raise UserError(f"cannot join Ray at {address}: {text[:400]}") from None


def slots(resources: ResourceSpec, runs: int) -> int:
    """Return how many runs fit on the joined cluster at once, at most `runs`.

    Raises:
        UserError: If not even one run fits.
    """
    nodes, node_types = _nodes()
    return runs_at_once(nodes, node_types, resources, runs)


def check_cpus(work: str, note: Callable[[str], None]) -> None:
    """Check that tasks of one CPU can run on the joined cluster, now or once the CPUs are free again.

    Args:
        work: What needs them, for messages.
        note: Shows the user that the work waits.

    Raises:
        UserError: If no node, present or added by an autoscaler, has a CPU.
    """
    import ray

    nodes, node_types = _nodes()
    if all(has.get("CPU", 0) < 1 for has in (*nodes, *(node_type.has for node_type in node_types))):
        raise UserError(
            f"{work} needs a CPU, and no node of the Ray cluster has one; start Ray with --num-cpus, or join another"
        )
    if not node_types and ray.available_resources().get("CPU", 0) < 1:
        total = sum(has.get("CPU", 0) for has in nodes)
        note(f"{work} waits: all CPUs of the Ray cluster ({total:g}) are in use")


def _nodes() -> tuple[list[dict[str, float]], list[NodeType]]:
    """Return what each node of the joined cluster has, and the nodes that an autoscaler may add."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # An autoscaler, which adds nodes once runs wait, has set it.
    config = internal("ray._private.state.state").get_cluster_config()
    node_types = (
        []
        if config is None
        else [NodeType(dict(node_group.resources), node_group.max_count) for node_group in config.node_group_configs]
    )
    return nodes, node_types


def check_fits(resources: ResourceSpec, address: str | None = None) -> None:
    """Raise `UserError` if a run of these resources does not fit on this machine or on the named cluster.

    The cluster at `address` (or $RAY_ADDRESS), if there is one, is joined for the duration of the check.
    """
    if named(address) is not None or _joined():
        with session(address):
            slots(resources, 1)
    elif resources.workers * resources.cpus_per_worker > 1 or resources.gpus_per_worker:
        # One CPU and no GPU fit every machine: such runs do not wait for Ray's import.
        _settings(address)
        runs_at_once([_this_machine()], (), resources, 1)


def _joined() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _this_machine() -> dict[str, float]:
    """Return the CPUs and GPUs that a local Ray would find."""
    gpus = 0
    for manager in internal("ray._private.accelerators.get_all_accelerator_managers")():
        if manager.get_resource_name() == "GPU":
            count, visible = (
                manager.get_current_node_num_accelerators(),
                manager.get_current_process_visible_accelerator_ids(),
            )
            gpus += count if visible is None else min(count, len(visible))

    return {"CPU": float(internal("ray._private.utils.get_num_cpus")()), "GPU": float(gpus)}
