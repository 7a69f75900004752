"""Where the workers of a run meet: over a file and loopback where they are on one node, else over the network."""

from __future__ import annotations

import datetime
import os
import socket
import tempfile

from mtlscale.execution import leftovers

MEETING_SECONDS = 300


def node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def place(*, one_node: bool) -> str:
    """A new address at which workers meet, of the first one's choice.

    torch's own rendezvous store listens on all interfaces without authentication, which only several nodes need.
    """
    if one_node:
        folder = tempfile.mkdtemp(prefix=leftovers.prefix("meeting"))
        return f"file://{folder}/rendezvous"
    import ray

    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def join(address: str, rank: int, size: int, *, gpu: bool) -> None:
    """Become worker `rank` of `size`; returns when all are there."""
    import torch

    if address.startswith("file:"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=address,
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=MEETING_SECONDS),
    )
