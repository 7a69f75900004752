"""Errors of Ray in one line: a module that a node lacks, an object store that is full."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mtlscale.config import UserError

_MODULE = re.compile(r"No module named '([\w.]+)'")


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raise `UserError` in place of an error of Ray that a cluster's operator can mend; leave others as they are."""
    try:
        yield
    except Exception as error:
        import ray.exceptions

        if isinstance(error, UserError | OSError) and not isinstance(error, ray.exceptions.RayError):
            raise
        chain = list(_chain(error))
        problem = _problem(chain)
        if problem is not None:
            raise UserError(problem) from error
        of_the_task = [cause for cause in chain if not isinstance(cause, ray.exceptions.RayError)]
        task_error = next((cause for cause in of_the_task if isinstance(cause, UserError | OSError)), None)
        if task_error is not None:
            raise task_error from error
        raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it; of an error in a task also the task's own."""
    visited: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        task_error = getattr(cause, "cause", None)
        causes = (task_error, cause.__cause__, cause.__context__)
        waiting += [candidate for candidate in causes if isinstance(candidate, BaseException)]


def _problem(chain: list[BaseException]) -> str | None:
    import ray.exceptions as errors

    missing = next((match[1] for cause in chain if (match := _MODULE.search(str(cause)))), None)
    if missing is not None:
        return f"a node of the cluster has no Python module {missing}; install mtlscale there as it is installed here"

    full = (errors.ObjectStoreFullError, errors.OutOfDiskError)
    names = tuple(error.__name__ for error in full)
    if any(isinstance(cause, full) or any(name in str(cause) for name in names) for cause in chain):
        return (
            "Ray's object store is full, and it cannot spill to disk; start Ray with a larger --object-store-memory, "
            "or free some of the disk below its --temp-dir"
        )

    if any(isinstance(cause, errors.OutOfMemoryError) for cause in chain):
        return "a node of the cluster has run out of memory; prepare on nodes with more, or with fewer CPUs each"
    return None
