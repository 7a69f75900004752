"""The tasks' own parameters side by side: what penalties on the differences between tasks look at."""

from __future__ import annotations

from torch import nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.spec import TaskSuite, UserError


def alike(name: str, suite: TaskSuite, model: MultiTaskModule, least: int = 1) -> list[tuple[nn.Parameter, ...]]:
    """The tasks' own parameters of the same shape in every task and at least that many dimensions, a tuple of [T] for
    each. `UserError` where there is none."""
    own = [model.task_parameters(task.name) for task in suite.tasks]
    rows = [row for row in zip(*own, strict=False) if row[0].ndim >= least and len({p.shape for p in row}) == 1]
    if not rows:
        raise UserError(
            f"{name} needs tasks with own parameters of one shape; use it with an architecture such as shared_bottom"
        )
    return rows
