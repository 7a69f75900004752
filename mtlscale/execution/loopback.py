"""Ray Train's torch backend, with a rendezvous that stays on this machine where the whole group does.

torch's own rendezvous store listens on all interfaces without authentication; a group on one node meets over a file
instead and talks over loopback.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any


def torch_config(use_gpu: bool) -> Any:
    """The backend's settings for a group of workers."""
    from ray.train.torch import TorchConfig
    from ray.train.torch.config import _TorchBackend

    class LoopbackBackend(_TorchBackend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            size = len(worker_group)
            nodes = set(worker_group.execute(_node_id))
            if use_gpu or len(nodes) > 1:
                super().on_start(worker_group, backend_config)
                return
            meeting = worker_group.execute_single(0, _meeting_file)
            import ray

            ray.get(
                [
                    worker_group.execute_single_async(rank, _join, meeting, rank, size, backend_config.timeout_s)
                    for rank in range(size)
                ]
            )

    class LoopbackTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type:
            return LoopbackBackend

    return LoopbackTorchConfig(timeout_s=300)


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _meeting_file() -> str:
    return str(Path(tempfile.mkdtemp(prefix="mtlscale-")) / "rendezvous")


def _join(meeting: str, rank: int, size: int, timeout_s: int) -> None:
    import datetime

    import torch

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout_s),
    )
