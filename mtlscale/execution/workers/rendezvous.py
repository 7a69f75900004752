"""Rendezvous of the workers of a run: over a file and loopback on one node, else over the network."""

from __future__ import annotations

import datetime
import os
import socket
import tempfile

from mtlscale.execution import temp_files
from mtlscale.execution.faults import busy_machine

_SECONDS = 300  # on an idle machine


def patience() -> datetime.timedelta:
    """Return how long workers wait for each other: longer on a busy machine."""
    return datetime.timedelta(seconds=_SECONDS * busy_machine.slowdown())


def node_id() -> str:
    """Return the id of the Ray node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def place(*, one_node: bool) -> str:
    """Return a new rendezvous address, chosen by the first worker.

    torch's own rendezvous store listens on all interfaces without authentication, which only several nodes need.
    """
    if one_node:
        folder = tempfile.mkdtemp(prefix=temp_files.prefix("meeting"))
        return f"file://{folder}/rendezvous"
    import ray

    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def join(address: str, rank: int, size: int, *, gpu: bool) -> None:
    """Join the process group as worker `rank` of `size`; return when all workers are there."""
    import torch

    if address.startswith("file:"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=address,
        rank=rank,
        world_size=size,
        timeout=patience(),
    )
