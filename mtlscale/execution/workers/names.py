"""Names of the actors of an experiment, as `ray list actors` and Ray's dashboard show them."""

from __future__ import annotations

import itertools

_NUMBERS = itertools.count(1)  # of the actors that this process has named


def actor_name(kind: str, experiment: str) -> str:
    """Return a new name of an actor: "mtlscale worker 3 of quickstart, job 01000000".

    No two actors of a cluster have the same, since Ray gives every driver another job id: Ray refuses a name that is
    taken in its namespace, and several drivers may share one.
    """
    import ray

    job = ray.get_runtime_context().get_job_id()
    return f"mtlscale {kind} {next(_NUMBERS)} of {experiment}, job {job}"
