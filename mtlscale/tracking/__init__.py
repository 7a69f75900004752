"""Everything MLflow: one parent run per experiment, one child per run, written by one thread of the driver."""

from mtlscale.tracking.entries import Told
from mtlscale.tracking.reader import experiments, read_experiment, read_records
from mtlscale.tracking.service import check_uri
from mtlscale.tracking.tracker import Tracker
from mtlscale.tracking.writer import Writer

__all__ = ["Told", "Tracker", "Writer", "check_uri", "experiments", "read_experiment", "read_records"]
