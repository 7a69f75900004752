"""How runs will read their data: said before anything starts, from what this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mtlscale.data.cache import in_words
from mtlscale.data.choice import SHARE, Free, OnDisk, bound, choose, needed
from mtlscale.execution.plan import Plan
from mtlscale.spec import ResourceSpec, Run

_SMALL = 1 << 28  # bytes of a batch of trials and its data that every node has


def processes_per_node(resources: ResourceSpec, gpus: int | None = None) -> int:
    """How many processes of these resources this node holds at once. gpus: it has."""
    count = int((os.cpu_count() or 1) // resources.cpus_per_worker)
    if gpus is not None and resources.gpus_per_worker > 0:
        count = min(count, int(gpus // resources.gpus_per_worker))
    return max(1, count)


def reading(plan: Plan) -> Iterator[tuple[str, str]]:
    """Each data set that is still to be trained on, and which reader its runs get and why."""
    resources = plan.experiment.resources
    gpu = resources.gpus_per_worker > 0
    processes = min(processes_per_node(resources), max(1, len(plan.todo)) * resources.workers)
    seen = set()
    for planned in plan.todo:
        run, spec = planned.run, planned.run.training
        key = (run.data, spec.reader, spec.dtype)
        if key not in seen:
            seen.add(key)
            data = OnDisk(plan.folders[run.data], plan.manifests[run.data])
            yield run.data, str(choose(data, spec.reader, spec.dtype, processes, gpu=gpu))


def too_large_to_batch(run: Run, plan: Plan, stack: float, processes: int) -> str | None:
    """Why trials like this one cannot hold their data and so many bytes of networks as a batch; None where they can."""
    spec, manifest = run.training, plan.manifests[run.data]
    if spec.reader in ("mapped", "stream"):
        return f"reader {spec.reader} does not hold the whole set"
    need = bound(manifest)
    if processes * (3 * need.placed + stack) <= _SMALL:
        return None
    need = needed(plan.folders[run.data], manifest, spec.dtype)
    # Tasks side by side are padded: a second copy.
    wanted = processes * (need.stored + 2 * need.placed + stack)
    free = Free.here(gpu=False).host
    if wanted <= SHARE * free:
        return None
    return f"{processes} batches would hold {in_words(wanted)}, {in_words(free)} are free"
