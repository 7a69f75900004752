"""Execution of experiments: data preparation, plans, warm Ray workers, worker groups, searches and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.execution.cluster.local_cluster import LocalCluster
    from mtlscale.execution.events import Advanced, EpochEnded, Event, Noted, RunEnded
    from mtlscale.execution.job_progress import JobProgress
    from mtlscale.execution.observer import Observer, Silent
    from mtlscale.execution.planning.own_records import OwnRecords, own_records
    from mtlscale.execution.planning.plan import Datasets, Plan, PlannedRun, make_plan
    from mtlscale.execution.planning.status import ExperimentStatus, experiment_statuses
    from mtlscale.execution.runner import Recorder, run
    from mtlscale.execution.stopping import Interrupted
    from mtlscale.execution.tuning.sweep import SweepPlan
    from mtlscale.execution.workers.jobs import Batched, Job, Options
    from mtlscale.execution.workers.pool import execute_pool
    from mtlscale.execution.workers.trial import Trial, execute, execute_batched, read_data

__all__ = [
    "Advanced",
    "Batched",
    "Datasets",
    "EpochEnded",
    "Event",
    "ExperimentStatus",
    "Interrupted",
    "Job",
    "JobProgress",
    "LocalCluster",
    "Noted",
    "Observer",
    "Options",
    "OwnRecords",
    "Plan",
    "PlannedRun",
    "Recorder",
    "RunEnded",
    "Silent",
    "SweepPlan",
    "Trial",
    "execute",
    "execute_batched",
    "execute_pool",
    "experiment_statuses",
    "make_plan",
    "own_records",
    "read_data",
    "run",
]

__getattr__ = lazily(__name__)
