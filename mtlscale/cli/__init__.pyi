# Written by `python tests/house/stubs.py`.
from mtlscale.cli.program import app as app
from mtlscale.cli.program import main as main
