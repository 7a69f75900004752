"""Run the command line as `python -m mtlscale.cli`."""

from mtlscale.cli import main

main()
