"""Report on how runs will read their data, before anything starts, from what this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mtlscale.config import ResourceSpec, Run
from mtlscale.data.readers.cache import in_words
from mtlscale.data.readers.reader_selection import MEMORY_FRACTION, Free, OnDisk, bound, choose, needed
from mtlscale.execution.planning.plan import Plan

_SMALL = 1 << 28  # bytes of a batch of trials and its data that every node has


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
    for planned in plan.todo:
        run, spec = planned.run, planned.run.training
        key = (run.data, spec.reader, spec.dtype)
        if key not in reported_keys:
            reported_keys.add(key)
            data = OnDisk(plan.folders[run.data], plan.manifests[run.data])
            yield run.data, str(choose(data, spec.reader, spec.dtype, processes, gpu=gpu))


def too_large_to_batch(run: Run, plan: Plan, stack: float, processes: int) -> str | None:
    """Return why trials like this one cannot be held as a batch in memory; None if they can.

    Args:
        run: One of the trials.
        plan: The plan with the trials' data.
        stack: The bytes of the networks of a batch.
        processes: The number of processes on this node that hold a batch each.
    """
    spec, manifest = run.training, plan.manifests[run.data]
    if spec.reader in ("mapped", "stream"):
        return f"reader {spec.reader} does not hold the whole set"

    need = bound(manifest)
    if processes * (3 * need.placed + stack) <= _SMALL:
        return None

    need = needed(plan.folders[run.data], manifest, spec.dtype)
    # Tasks side by side are padded: a second copy.
    needed_bytes = processes * (need.stored + 2 * need.placed + stack)
    free_bytes = Free.of_this_node(gpu=False).host

    if needed_bytes <= MEMORY_FRACTION * free_bytes:
        return None
    return f"{processes} batches would hold {in_words(needed_bytes)}, {in_words(free_bytes)} are free"
