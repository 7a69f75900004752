"""Version check between a submitted job and the machine it was submitted from."""

from __future__ import annotations

import os
from importlib.metadata import version

from mtlscale.config import UserError

CLIENT = "MTLSCALE_CLIENT"  # set in a job: the version of the mtlscale that submitted it


def check_client() -> None:
    """Raise `UserError` in a submitted job if the cluster's mtlscale differs from the submitting machine's."""
    job_version, cluster_version = os.environ.get(CLIENT), version("mtlscale")
    if job_version is not None and job_version != cluster_version:
        raise UserError(
            f"this cluster has mtlscale {cluster_version}, the job comes from {job_version}; "
            f"install {job_version} there or submit --with-code"
        )
