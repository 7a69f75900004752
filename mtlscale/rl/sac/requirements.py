"""The environments of a suite, for methods that act in them."""

from __future__ import annotations

from mtlscale.config import TaskSuite, UserError
from mtlscale.rl.environments import Simulated


def environments_of(suite: TaskSuite, method: str) -> Simulated:
    """Return the suite's environments; raise `UserError` if its tasks are none."""
    environments = Simulated.of(suite)
    if environments is None:
        raise UserError(f"{method} acts in environments, the tasks of {suite.name} are none; choose metaworld, or hps")
    return environments
