"""Choice of the executor: a pool of warm workers, or Ray Train groups for runs of several workers and on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.pool import execute_pool
from mtlscale.records import Home
from mtlscale.records.events import RunEvent


def execute_jobs(jobs: Sequence[Job | Batched], slots: int, options: Options, home: Home) -> Iterator[RunEvent]:
    """Work through the jobs, `slots` runs at once, each to its end."""
    resources = options.resources
    if resources.workers == 1 and not resources.train:
        return execute_pool(jobs, slots, options)
    from mtlscale.execution.workers.group import execute_groups

    return execute_groups(jobs, slots, options, home.root / "ray_train")
