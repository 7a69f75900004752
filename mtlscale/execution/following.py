"""What becomes of the workers' events: the board lists each record, then everybody who listens hears of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator

from mtlscale.execution.sinks import Sinks
from mtlscale.records import EPOCHS, Board, EpochFile, Home, RunRecord, Score
from mtlscale.records.events import Advanced, RunBegun, RunEnded, RunEvent


def follow(
    events: Iterator[RunEvent | RunBegun],
    board: Board,
    home: Home,
    told: Sinks,
    check: Callable[[], None],
    score: Callable[[RunRecord], Score | None] | None = None,
) -> None:
    """Hand the workers' events to the board and the sinks.

    Whoever listens hears of a run before anything else of it. `check` raises where this process should not go on;
    `score` is that of trials.
    """
    with contextlib.closing(events):  # type: ignore[type-var]
        for event in with_beginnings(events, board, is_trial=score is not None):
            if isinstance(event, RunBegun):
                board.want(event.run)
            elif isinstance(event, RunEnded):
                if score is None:
                    keep_epochs(home, event.record)
                board.take(event.record.model_copy(update={"epochs": []}))
                if score is not None:
                    event = dataclasses.replace(event, score=score(event.record))
            told.take(event)
            check()


def with_beginnings(
    events: Iterable[RunEvent | RunBegun], board: Board, *, is_trial: bool = False
) -> Iterator[RunEvent | RunBegun]:
    """Yield events, each run's after its beginning; batched runs and those that end at once report none."""
    begun: set[str] = set()
    for event in events:
        if isinstance(event, RunBegun):
            begun.add(event.run.run_id)
            yield event
            continue
        for run_id in event.run_ids if isinstance(event, Advanced) else (event.run_id,):
            run = board.run(run_id)
            if run is not None and run_id not in begun:
                begun.add(run_id)
                yield RunBegun(run, is_trial)
        yield event


def keep_epochs(home: Home, record: RunRecord) -> None:
    """Write the epochs of a run that was trained where this home cannot be seen."""
    folder = home.run(record.run_id)
    if record.epochs and not (folder / EPOCHS).exists():
        EpochFile(folder).take(record.epochs)
