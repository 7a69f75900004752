"""Tracking: MLflow has a row per method and data set, its seeds' runs below it; other sinks stand beside it."""

from mtlscale.tracking.all_trackers import Trackers
from mtlscale.tracking.book import lacking
from mtlscale.tracking.entries import RunUpdate
from mtlscale.tracking.reader import experiments, read_experiment, read_records
from mtlscale.tracking.service import check_uri
from mtlscale.tracking.summary_runs import Row
from mtlscale.tracking.tracker import Tracker
from mtlscale.tracking.writer import Writer

__all__ = [
    "Row",
    "RunUpdate",
    "Tracker",
    "Trackers",
    "Writer",
    "check_uri",
    "experiments",
    "lacking",
    "read_experiment",
    "read_records",
]
