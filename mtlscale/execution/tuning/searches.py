"""Searches by Ray Tune side by side, each in a process of its own: Tune keeps a search's state in globals."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config import SearchSpec, UserError, budget_of
from mtlscale.execution.tuning.tune import execute_tune, stop_file
from mtlscale.execution.tuning.tune_setup import Setup
from mtlscale.execution.workers.worker import setup
from mtlscale.records import RunRecord
from mtlscale.records.events import RunBegun, RunEvent

_STOP_SECONDS = 60.0  # for Tune to end the trials of a search


@dataclass(frozen=True)
class MethodSearch:
    """Search of one method and data set.

    Attributes:
        spec: What the experiment's file says of the search.
        shared: The settings that its trials share.
        finished: The records of its trials that are over.
        folder: The folder for Tune's own files.
    """

    spec: SearchSpec
    shared: Setup
    finished: tuple[RunRecord, ...]
    folder: Path

    @property
    def remaining(self) -> int:
        """The number of trials it still has."""
        if self.finished and self.spec.scheduler == "pbt":
            return 0  # members of a population may end with the same settings
        return max(0, budget_of(self.spec, self.shared.base) - len(self.finished))


def execute_searches(searches: Sequence[MethodSearch], lanes: Sequence[int]) -> Iterator[RunEvent | RunBegun]:
    """Work through the searches, as many at once as there are lanes, and yield the events of their trials.

    A lane is a number of trials that its search runs at once. A search that fails stops no other; its error is raised
    when all are over.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # On the driver's node: it can write there, and is lost no sooner than the driver itself.
    driver_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming", scheduling_strategy=driver_node)(_search)

    waiting, free_lanes = list(searches), list(lanes)
    busy: dict[Any, tuple[MethodSearch, int]] = {}  # by its stream of events
    errors: list[UserError] = []

    try:
        while waiting or busy:
            while waiting and free_lanes:
                search, trials_at_once = waiting.pop(0), free_lanes.pop(0)
                stop_file(search.folder).unlink(missing_ok=True)
                busy[remote.remote(search, trials_at_once)] = (search, trials_at_once)

            ready, _ = ray.wait(list(busy), num_returns=1, fetch_local=False)
            for stream in ready:
                try:
                    event: RunEvent | RunBegun = ray.get(next(stream))
                except StopIteration:
                    free_lanes.append(busy.pop(stream)[1])
                    continue
                except ray.exceptions.RayError as error:
                    search, trials_at_once = busy.pop(stream)
                    free_lanes.append(trials_at_once)
                    errors.append(_search_error(search, error))
                    continue
                yield event
    finally:
        _stop({stream: search.folder for stream, (search, _) in busy.items()})

    if errors:
        raise errors[0]


def _stop(folders: Mapping[Any, Path]) -> None:
    """End the searches behind these streams of events, which nobody reads any more."""
    # Tune is asked to: the places that it reserved belong to the driver's job and would outlive a search that is only
    # cancelled, and the next search of this process would wait for them for ever.
    import ray

    for folder in folders.values():
        folder.parent.mkdir(parents=True, exist_ok=True)
        stop_file(folder).touch()

    deadline, running = time.monotonic() + _STOP_SECONDS, dict(folders)
    while running and time.monotonic() < deadline:
        ready, _ = ray.wait(list(running), num_returns=1, timeout=1, fetch_local=False)
        for stream in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                if next(stream, None) is not None:
                    continue
            del running[stream]

    for stream in running:
        ray.cancel(stream, force=True)
    for folder in folders.values():
        stop_file(folder).unlink(missing_ok=True)


def _search(search: MethodSearch, together: int) -> Iterator[RunEvent | RunBegun]:
    setup(1, search.shared.plugins)
    yield from execute_tune(search.spec, search.shared, search.finished, search.remaining, together, search.folder)


def _search_error(search: MethodSearch, error: Exception) -> UserError:
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, UserError):
        return cause
    base, text = search.shared.base, (str(cause).strip().splitlines() or [type(cause).__name__])[-1]
    return UserError(f"the search for {base.method} on {base.dataset} ended early: {text}; the same command goes on")
