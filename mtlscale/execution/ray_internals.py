"""What is used of Ray that Ray does not promise to keep, in one place.

There is no public name for these in Ray 2.60: an autoscaler's node groups, the accelerators and CPUs that a local Ray
would find, the wait for a raylet, the command line that a cluster's users see, and a callback before a worker group
starts (`ray.train.UserCallback` hears of reports and exceptions alone).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mtlscale.config import UserError

NAMES = (
    "ray._private.accelerators.get_all_accelerator_managers",
    "ray._private.services.get_node",
    "ray._private.state.state",
    "ray._private.utils.get_entrypoint_name",
    "ray._private.utils.get_num_cpus",
    "ray.train.v2._internal.execution.callback.WorkerGroupCallback",
)


def internal(name: str) -> Any:
    """Return one of the `NAMES`.

    Raises:
        UserError: If the installed Ray has moved or removed it.
    """
    assert name in NAMES, name
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        import ray

        raise UserError(
            f"Ray {ray.__version__} has no {name}, which mtlscale needs; install the version in constraints.txt"
        ) from None


def services() -> Any:
    """Return Ray's module of processes, whose `get_node` waits for a raylet."""
    internal("ray._private.services.get_node")
    return importlib.import_module("ray._private.services")


@contextmanager
def shown_entrypoint(shown: Callable[[str], str]) -> Iterator[None]:
    """Have Ray keep, and show to all users of a cluster, `shown(command line)` in place of this program's."""
    entrypoint = internal("ray._private.utils.get_entrypoint_name")
    utils: Any = importlib.import_module("ray._private.utils")
    try:
        utils.get_entrypoint_name = lambda: shown(entrypoint())
        yield
    finally:
        utils.get_entrypoint_name = entrypoint
