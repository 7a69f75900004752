"""Tracking: MLflow has a row per method and data set, its seeds' runs below it; other sinks stand beside it."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "Row": ".rows",
        "Tracker": ".tracker",
        "Writer": ".writer",
        "check_uri": ".service",
        "epoch_reader": ".reader",
        "experiments": ".reader",
        "lacking": ".mark",
        "read_experiment": ".reader",
        "read_records": ".reader",
        "trackers": ".sink",
    },
)
