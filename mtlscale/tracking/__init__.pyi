# Written by `python tests/house/stubs.py`.
from mtlscale.tracking.mark import lacking as lacking
from mtlscale.tracking.reader import epoch_reader as epoch_reader
from mtlscale.tracking.reader import experiments as experiments
from mtlscale.tracking.reader import read_experiment as read_experiment
from mtlscale.tracking.reader import read_records as read_records
from mtlscale.tracking.rows import Row as Row
from mtlscale.tracking.service import check_uri as check_uri
from mtlscale.tracking.sink import trackers as trackers
from mtlscale.tracking.tracker import Tracker as Tracker
from mtlscale.tracking.writer import Writer as Writer
