"""Two real processes joined by gloo on loopback, for tests of "workers don't matter"."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mtlscale.data import Workers
from mtlscale.spec import load_plugin

_HERE = Path(__file__).parent
PLUGINS = sorted([*(_HERE / "plugins").glob("*.py"), *(_HERE.parent / "docs" / "examples").glob("*.py")])


def two_workers(
    task: Callable[[Any, Workers], Any], jobs: list[Any], folder: Path, *, count: int = 2
) -> list[list[Any]]:
    """What each of two processes, or of so many, finds for every job: `[rank][job]`, as `task(job, workers)` gave
    it."""
    torch.multiprocessing.spawn(_worker, (count, task, jobs, str(folder)), nprocs=count)
    return [torch.load(folder / f"found_{rank}.pt", weights_only=True) for rank in range(count)]


def _worker(rank: int, count: int, task: Callable[[Any, Workers], Any], jobs: list[Any], folder: str) -> None:
    for plugin in PLUGINS:
        load_plugin(plugin)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    found = []
    for number, job in enumerate(jobs):
        try:
            found.append(task(job, Workers(rank, count)))
        except Exception as error:
            raise RuntimeError(f"job {number}: {getattr(job, 'method', job)}") from error
    torch.save(found, f"{folder}/found_{rank}.pt")
    torch.distributed.barrier()
    # No teardown: gloo's threads, torn down while the other process still talks, abort the interpreter now and then.
    os._exit(0)
