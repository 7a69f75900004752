"""What methods that act in environments ask of a suite."""

from __future__ import annotations

from mtlscale.environments import Simulated
from mtlscale.spec import TaskSuite, UserError


def environments_of(suite: TaskSuite, who: str) -> Simulated:
    """The suite's environments; `UserError` where its tasks are none."""
    told = Simulated.of(suite)
    if told is None:
        raise UserError(f"{who} acts in environments, the tasks of {suite.name} are none; choose metaworld, or hps")
    return told
