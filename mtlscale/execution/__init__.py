"""Everything Ray: preparation, plans, pools of warm workers, groups, searches, jobs on clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.execution.job_progress import JobProgress
    from mtlscale.execution.local_cluster import LocalCluster
    from mtlscale.execution.plan import Datasets, Plan, PlannedRun, make_plan, records_of
    from mtlscale.execution.pool import Batched, Job, Options, execute_pool
    from mtlscale.execution.runner import Observer, Recorder, Silent, run
    from mtlscale.execution.standing import Standing, standings
    from mtlscale.execution.sweep import SweepPlan

__all__ = [
    "Batched",
    "Datasets",
    "Job",
    "JobProgress",
    "LocalCluster",
    "Observer",
    "Options",
    "Plan",
    "PlannedRun",
    "Recorder",
    "Silent",
    "Standing",
    "SweepPlan",
    "execute_pool",
    "make_plan",
    "records_of",
    "run",
    "standings",
]

__getattr__ = lazily(
    __name__,
    {
        "mtlscale.execution.job_progress": ["JobProgress"],
        "mtlscale.execution.local_cluster": ["LocalCluster"],
        "mtlscale.execution.plan": ["Datasets", "Plan", "PlannedRun", "make_plan", "records_of"],
        "mtlscale.execution.pool": ["Batched", "Job", "Options", "execute_pool"],
        "mtlscale.execution.runner": ["Observer", "Recorder", "Silent", "run"],
        "mtlscale.execution.standing": ["Standing", "standings"],
        "mtlscale.execution.sweep": ["SweepPlan"],
    },
)
