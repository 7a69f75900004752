"""Everything MLflow: one parent run per experiment, one child per run, written by one thread of the driver."""

from mtlscale.tracking.entries import Told
from mtlscale.tracking.tracker import Tracker
from mtlscale.tracking.writer import Writer, check_uri

__all__ = ["Told", "Tracker", "Writer", "check_uri"]
