"""Placement of workers on nodes: how many concurrent runs a cluster holds in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mtlscale.config import ResourceSpec, UserError

Amounts = Mapping[str, float]  # resource -> how much of it

_RESOLUTION = 10_000  # of one CPU or GPU: Ray counts in these, and whole numbers have no rounding errors


@dataclass(frozen=True)
class NodeType:
    """Node type that an autoscaler may start.

    Attributes:
        has: The resources of such a node.
        most: The most nodes of the type, including those that run; -1 for any number.
    """

    has: Amounts
    most: int


def needs(resources: ResourceSpec) -> dict[str, float]:
    """Return the resources that one worker takes of its node."""
    amounts = {"CPU": resources.cpus_per_worker, "GPU": resources.gpus_per_worker}
    return {kind: amount for kind, amount in amounts.items() if amount > 0}


def in_words(amounts: Amounts) -> str:
    """Return amounts as text, such as "2 CPUs and 0.5 GPUs"."""
    return " and ".join(f"{amount:g} {kind}{'' if amount == 1 else 's'}" for kind, amount in amounts.items())


def workers_on(has: Amounts, need: Amounts) -> int:
    """Return how many workers a node holds."""
    return min(
        round(has.get(kind, 0) * _RESOLUTION) // max(1, round(amount * _RESOLUTION)) for kind, amount in need.items()
    )


def runs_at_once(nodes: Sequence[Amounts], sorts: Iterable[NodeType], resources: ResourceSpec, runs: int) -> int:
    """Return how many runs fit at once, at most `runs` and at least one.

    A worker lies on one node, a run's workers may lie on several.

    Args:
        nodes: The resources of each node.
        sorts: The node types that an autoscaler may add.
        resources: The resources of a run.
        runs: The number of runs.

    Raises:
        UserError: If not one run fits.
    """
    need, sorts = needs(resources), list(sorts)
    worker_count = max(1, runs) * resources.workers

    current_room = sum(workers_on(node, need) for node in nodes)
    autoscaled_room = sum(
        workers_on(sort.has, need) * (sort.most if sort.most >= 0 else worker_count) for sort in sorts
    )
    room = max(current_room, autoscaled_room)

    if room >= resources.workers:
        return min(max(1, runs), room // resources.workers)

    advice = "lower `resources` in the experiment or use a larger cluster"
    if room == 0:
        largest = max([*nodes, *(sort.has for sort in sorts)], key=lambda has: _fill_key(has, need), default={})
        has = in_words({kind: largest.get(kind, 0) for kind in need})
        raise UserError(f"a worker needs {in_words(need)}, but the largest node has {has}; {advice}")
    raise UserError(
        f"a run needs {resources.workers} workers of {in_words(need)}, but the cluster's nodes have room for {room}; "
        f"{advice}"
    )


def _fill_key(has: Amounts, need: Amounts) -> tuple[float, float]:
    """Return a sort key: how near a node comes to holding a worker."""
    shares = [has.get(kind, 0) / amount for kind, amount in need.items()]
    return min(shares), sum(shares)
