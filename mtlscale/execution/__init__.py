"""Everything Ray: preparation, plans, pools of warm workers, groups, searches, jobs on clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.execution.events import Advanced, EpochEnded, Event, Noted, RunEnded
    from mtlscale.execution.job_progress import JobProgress
    from mtlscale.execution.jobs import Batched, Job, Options
    from mtlscale.execution.local_cluster import LocalCluster
    from mtlscale.execution.observer import Observer, Silent
    from mtlscale.execution.plan import Datasets, Plan, PlannedRun, make_plan, records_of
    from mtlscale.execution.pool import execute_pool
    from mtlscale.execution.runner import Recorder, run
    from mtlscale.execution.standing import Standing, standings
    from mtlscale.execution.stopping import Interrupted
    from mtlscale.execution.sweep import SweepPlan
    from mtlscale.execution.trial import Trial, execute, execute_batched, read_data

_HOMES = {
    "mtlscale.execution.events": ["Advanced", "EpochEnded", "Event", "Noted", "RunEnded"],
    "mtlscale.execution.job_progress": ["JobProgress"],
    "mtlscale.execution.jobs": ["Batched", "Job", "Options"],
    "mtlscale.execution.local_cluster": ["LocalCluster"],
    "mtlscale.execution.observer": ["Observer", "Silent"],
    "mtlscale.execution.plan": ["Datasets", "Plan", "PlannedRun", "make_plan", "records_of"],
    "mtlscale.execution.pool": ["execute_pool"],
    "mtlscale.execution.runner": ["Recorder", "run"],
    "mtlscale.execution.standing": ["Standing", "standings"],
    "mtlscale.execution.stopping": ["Interrupted"],
    "mtlscale.execution.sweep": ["SweepPlan"],
    "mtlscale.execution.trial": ["Trial", "execute", "execute_batched", "read_data"],
}

__all__ = [
    "Advanced",
    "Batched",
    "Datasets",
    "EpochEnded",
    "Event",
    "Interrupted",
    "Job",
    "JobProgress",
    "LocalCluster",
    "Noted",
    "Observer",
    "Options",
    "Plan",
    "PlannedRun",
    "Recorder",
    "RunEnded",
    "Silent",
    "Standing",
    "SweepPlan",
    "Trial",
    "execute",
    "execute_batched",
    "execute_pool",
    "make_plan",
    "read_data",
    "records_of",
    "run",
    "standings",
]

__getattr__ = lazily(__name__, _HOMES)
