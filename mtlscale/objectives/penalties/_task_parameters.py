"""The tasks' own parameters side by side, for penalties on the differences between tasks."""

from __future__ import annotations

from torch import nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, UserError


def alike(name: str, suite: TaskSuite, model: MultiTaskModule, least: int = 1) -> list[tuple[nn.Parameter, ...]]:
    """Return the tasks' own parameters that have the same shape in every task, as tuples of one per task.

    Args:
        name: Name of the objective, for messages.
        least: Least number of dimensions of a parameter.

    Raises:
        UserError: If there is no such parameter.
    """
    task_parameters = [model.task_parameters(task.name) for task in suite.tasks]
    rows = [
        row for row in zip(*task_parameters, strict=False) if row[0].ndim >= least and len({p.shape for p in row}) == 1
    ]
    if not rows:
        raise UserError(
            f"{name} needs tasks with own parameters of one shape; use it with an architecture such as shared_bottom"
        )
    return rows
