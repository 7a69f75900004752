"""Execution of experiments: data preparation, plans, warm Ray workers, worker groups, searches and jobs."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Advanced": ".events",
        "Batched": ".workers.jobs",
        "Datasets": ".planning.plan",
        "EpochEnded": ".events",
        "Event": ".events",
        "ExperimentStatus": ".planning.status",
        "Interrupted": ".stopping",
        "Job": ".workers.jobs",
        "JobProgress": ".job_progress",
        "LocalCluster": ".cluster.local_cluster",
        "Noted": ".events",
        "Observer": ".observer",
        "Options": ".workers.jobs",
        "OwnRecords": ".finding.own_records",
        "Plan": ".planning.plan",
        "PlannedRun": ".planning.plan",
        "Recorder": ".runner",
        "RunEnded": ".events",
        "Silent": ".observer",
        "SweepPlan": ".tuning.sweep",
        "Trial": ".workers.trial",
        "execute": ".workers.trial",
        "execute_batched": ".workers.trial",
        "execute_pool": ".workers.pool",
        "experiment_statuses": ".planning.status",
        "make_plan": ".planning.plan",
        "own_records": ".finding.own_records",
        "read_data": ".workers.trial",
        "run": ".runner",
    },
)
