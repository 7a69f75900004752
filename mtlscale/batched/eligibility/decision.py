"""Decision whether trials are batched: what stands in the way, what it gains, whether there is memory for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtlscale.batched.eligibility import planning
from mtlscale.config import Run, UserError
from mtlscale.data.readers.cache import in_words
from mtlscale.data.readers.reader_selection import MEMORY_FRACTION, Free, OnDisk, bound, needed

_SMALL = 1 << 28  # bytes of a batch of trials and its data that every node has


@dataclass(frozen=True)
class Decision:
    """Way in which trials that fit together are trained, and the reason."""

    reason: str
    shares: tuple[tuple[Run, ...], ...] = ()  # those batched together; none if they are trained one by one
    seconds: float = 0.0  # of a batched step, for each trial


def decide(group: Sequence[Run], data: OnDisk, *, trials: int, processes: int, required: bool) -> Decision:
    """Decide how a group of trials is trained that fit together (`planning.groups`).

    Args:
        trials: The number of all trials that the workers have to do.
        processes: The number of processes on this node that hold a batch each.
        required: Whether the user wants them batched and nothing else, however little that gains.

    Raises:
        UserError: If batching is required and impossible.
    """
    run = group[0]
    cost, shares = None, []
    problem = planning.obstacle(run, data.manifest.suite)
    if problem is None:
        cost = planning.estimate(run, data.manifest, trials, processes)
        shares = planning.shares(group, cost.size)
        problem = too_large(run, data, cost.bytes * min(len(group), cost.size), processes)

    if cost is None or problem is not None:
        if required:
            raise UserError(f"search.executor batched: {run.method}: {problem}; set it to auto")
        return Decision(str(problem))

    gain = f"{cost.gain(len(group)):.1f} ×"
    if not required and not planning.worth_it(cost, len(group)):
        return Decision(f"batching would gain {gain}")

    seconds = cost.batched(len(group))
    speed = f"{seconds * 1e3:.2g} ms per trial and step, alone {cost.alone_seconds * 1e3:.2g} ms ({gain})"
    return Decision(speed, tuple(map(tuple, shares)), seconds)


def pays_alone(run: Run, data: OnDisk, *, steps: int, processes: int) -> bool:
    """Return whether a run of `steps` steps is batched by itself, with `processes` such runs on this node."""
    cost = planning.estimate_alone(run, data.manifest, steps)
    return cost is not None and too_large(run, data, cost.bytes, processes) is None


def too_large(run: Run, data: OnDisk, stack: float, processes: int) -> str | None:
    """Return why trials like this one cannot be held as a batch in memory; None if they can.

    Args:
        stack: The bytes of the networks of a batch.
        processes: The number of processes on this node that hold a batch each.
    """
    spec = run.training
    if spec.reader in ("mapped", "stream"):
        return f"reader {spec.reader} does not hold the whole set"

    need = bound(data.manifest)
    if processes * (3 * need.placed + stack) <= _SMALL:
        return None

    need = needed(data.folder, data.manifest, spec.dtype)
    # Tasks side by side are padded: a second copy.
    needed_bytes = processes * (need.stored + 2 * need.placed + stack)
    free_bytes = Free.of_this_node(gpu=False).host

    if needed_bytes <= MEMORY_FRACTION * free_bytes:
        return None
    return f"{processes} batches would hold {in_words(needed_bytes)}, {in_words(free_bytes)} are free"
