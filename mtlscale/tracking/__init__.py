"""MLflow tracking: a row per method and data set, its seeds' runs below it, written by one thread."""

from mtlscale.tracking.entries import Told
from mtlscale.tracking.reader import experiments, read_experiment, read_records
from mtlscale.tracking.service import check_uri
from mtlscale.tracking.summary_runs import Row
from mtlscale.tracking.tracker import Tracker
from mtlscale.tracking.writer import Writer

__all__ = ["Row", "Told", "Tracker", "Writer", "check_uri", "experiments", "read_experiment", "read_records"]
