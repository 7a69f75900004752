"""How many runs a cluster holds at once: workers are packed node by node, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mtlscale.spec import ResourceSpec, UserError

Amounts = Mapping[str, float]  # resource -> how much of it

_PARTS = 10_000  # of one CPU or GPU: Ray counts in these, and whole numbers have no rounding errors


@dataclass(frozen=True)
class Sort:
    """A sort of node an autoscaler may start. most: of them, those that run included; -1: any number."""

    has: Amounts
    most: int


def needs(resources: ResourceSpec) -> dict[str, float]:
    """What one worker takes of its node."""
    wanted = {"CPU": resources.cpus_per_worker, "GPU": resources.gpus_per_worker}
    return {kind: amount for kind, amount in wanted.items() if amount > 0}


def in_words(amounts: Amounts) -> str:
    """ "2 CPUs and 0.5 GPUs"."""
    return " and ".join(f"{amount:g} {kind}{'' if amount == 1 else 's'}" for kind, amount in amounts.items())


def workers_on(has: Amounts, need: Amounts) -> int:
    """How many workers a node holds."""
    return min(round(has.get(kind, 0) * _PARTS) // max(1, round(amount * _PARTS)) for kind, amount in need.items())


def runs_at_once(nodes: Sequence[Amounts], sorts: Iterable[Sort], resources: ResourceSpec, runs: int) -> int:
    """How many runs fit at once, at most `runs` and at least one. A worker lies on one node, a run's workers may lie on
    several. sorts: what an autoscaler may make of the cluster. Raises `UserError` where not one run fits."""
    need, sorts = needs(resources), list(sorts)
    wanted = max(1, runs) * resources.workers
    here = sum(workers_on(node, need) for node in nodes)
    grown = sum(workers_on(sort.has, need) * (sort.most if sort.most >= 0 else wanted) for sort in sorts)
    room = max(here, grown)
    if room >= resources.workers:
        return min(max(1, runs), room // resources.workers)
    mend = "lower `resources` in the experiment or use a larger cluster"
    if room == 0:
        largest = max([*nodes, *(sort.has for sort in sorts)], key=lambda has: _share(has, need), default={})
        has = in_words({kind: largest.get(kind, 0) for kind in need})
        raise UserError(f"a worker needs {in_words(need)}, but the largest node has {has}; {mend}")
    raise UserError(
        f"a run needs {resources.workers} workers of {in_words(need)}, but the cluster's nodes have room for {room}; "
        f"{mend}"
    )


def _share(has: Amounts, need: Amounts) -> tuple[float, float]:
    """How near a node comes to holding a worker."""
    shares = [has.get(kind, 0) / amount for kind, amount in need.items()]
    return min(shares), sum(shares)
