"""Ray Train's torch backend, with a rendezvous that stays on this machine where the whole group does."""

from __future__ import annotations

from typing import Any

from mtlscale.execution.workers import rendezvous


def torch_config(use_gpu: bool) -> Any:
    """Return the backend's settings for a group of workers."""
    from ray.train.torch import TorchConfig

    torch_backend: type[Any] = TorchConfig().backend_cls

    class LoopbackBackend(torch_backend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            if use_gpu or len(set(worker_group.execute(rendezvous.node_id))) > 1:
                super().on_start(worker_group, backend_config)
                return
            import ray

            address, size = worker_group.execute_single(0, rendezvous.place, one_node=True), len(worker_group)
            ray.get(
                [
                    worker_group.execute_single_async(rank, rendezvous.join, address, rank, size, gpu=False)
                    for rank in range(size)
                ]
            )

    class LoopbackTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type:
            return LoopbackBackend

    return LoopbackTorchConfig(timeout_s=round(rendezvous.patience().total_seconds()))
