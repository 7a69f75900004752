"""Report on how runs will read their data, before anything starts, from what this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mtlscale.config import ResourceSpec
from mtlscale.data.readers.reader_selection import choose
from mtlscale.execution.planning.plan import Plan
from mtlscale.records.events import Planned


def processes_per_node(resources: ResourceSpec, gpus: int | None = None) -> int:
    """Return how many processes of these resources this node holds at once.

    `gpus` is the number of its GPUs; None leaves them out of account.
    """
    count = int((os.cpu_count() or 1) // resources.cpus_per_worker)
    if gpus is not None and resources.gpus_per_worker > 0:
        count = min(count, int(gpus // resources.gpus_per_worker))
    return max(1, count)


def reading(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each data set that is still to be trained on, with the reader its runs get and the reason."""
    resources = plan.experiment.resources
    gpu = resources.gpus_per_worker > 0
    processes = min(processes_per_node(resources), max(1, len(plan.todo)) * resources.workers)

    reported_keys = set()
    for run in plan.todo:
        spec = run.training
        key = (run.data, spec.reader, spec.dtype)
        if key not in reported_keys:
            reported_keys.add(key)
            yield run.data, str(choose(plan.data.on_disk(run.data), spec.reader, spec.dtype, processes, gpu=gpu))


def planned(plan: Plan, slots: int) -> Planned:
    """Return the event with which the runs begin."""
    lines = tuple(f"{name}: {text}" for name, text in reading(plan)) if slots else ()
    return Planned(plan.experiment.name, plan.board, slots, len(plan.board.distinct), lines=lines)
