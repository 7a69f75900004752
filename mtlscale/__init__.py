"""mtlscale: a Ray-distributed benchmark runner for multi-task learning."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Experiment": ".config",
        "ExportedModel": ".inference",
        "Results": ".report.results",
        "TaskBalancer": ".training.task_balancer",
        "UserError": ".config",
        "__version__": ".version",
        "compare": ".api.comparison",
        "load_experiment": ".config",
        "load_model": ".inference",
        "load_records": ".api.sources",
        "run": ".api.running",
    },
)
