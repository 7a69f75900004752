"""Run the command line as `python -m mtlscale`."""

from mtlscale.cli import main

main()
