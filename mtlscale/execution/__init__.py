"""Execution of experiments: data preparation, plans, warm Ray workers, worker groups, searches and jobs."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "ActorStart": ".workers.actor_start",
        "Batched": ".workers.jobs",
        "Datasets": ".planning.plan",
        "Interrupted": ".stopping",
        "Job": ".workers.jobs",
        "JobProgress": ".job_progress",
        "LocalCluster": ".cluster.local_cluster",
        "Options": ".workers.jobs",
        "Plan": ".planning.plan",
        "SweepPlan": ".tuning.sweep",
        "TrainStart": ".workers.train_start",
        "Trial": ".workers.trial",
        "execute": ".workers.trial",
        "execute_batched": ".workers.trial",
        "execute_jobs": ".workers.executor",
        "experiment_counts": ".planning.status",
        "make_plan": ".planning.plan",
        "own_board": ".finding.own_board",
        "read_data": ".workers.trial",
        "run": ".runner",
    },
)
