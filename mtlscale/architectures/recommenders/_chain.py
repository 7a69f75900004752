"""The order in which the tasks of a recommender follow each other, such as click, then purchase."""

from __future__ import annotations

from collections.abc import Sequence

from mtlscale.config import TaskSuite, UserError, nearest

CHAIN_HELP = "the tasks in the order in which they follow each other; none: the suite's order"


def chain_of(name: str, chain: Sequence[str], suite: TaskSuite) -> list[int]:
    """Return the positions of the suite's tasks in the order of the chain.

    Raises:
        UserError: If the chain has other tasks than the suite.
    """
    task_names = [task.name for task in suite.tasks]
    for task in chain:
        if task not in task_names:
            raise UserError(f"{name}: `chain` names {task!r}; {nearest(task, task_names)}")
    if chain and sorted(chain) != sorted(task_names):
        missing = next((task for task in task_names if task not in chain), None)
        problem = "names a task twice" if missing is None else f"lacks task {missing!r}"
        raise UserError(f"{name}: `chain` {problem}; name every task of {suite.name} once")
    return [task_names.index(task) for task in chain or task_names]
