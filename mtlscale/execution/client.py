"""What a submitted job knows of the machine it was submitted from."""

from __future__ import annotations

import os
from importlib.metadata import version

from mtlscale.spec import UserError

CLIENT = "MTLSCALE_CLIENT"  # set in a job: the version of the mtlscale that submitted it


def check_client() -> None:
    """In a submitted job: `UserError` where the cluster has another mtlscale than the machine it was submitted from."""
    there, here = os.environ.get(CLIENT), version("mtlscale")
    if there is not None and there != here:
        raise UserError(
            f"this cluster has mtlscale {here}, the job comes from {there}; install {there} there or submit --with-code"
        )
