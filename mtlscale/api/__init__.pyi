# Written by `python tests/house/stubs.py`.
from mtlscale.api.comparison import compare as compare
from mtlscale.api.running import run as run
from mtlscale.api.running import sweep as sweep
from mtlscale.api.sources import load_records as load_records
from mtlscale.api.sources import sources_of as sources_of
