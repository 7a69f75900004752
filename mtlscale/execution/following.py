"""What becomes of the workers' events: the board lists each record, then everybody who listens hears of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

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
        begun = Begun(board, is_trial=score is not None)
        for event in events:
            begun.say(event, told)
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


class Begun:
    """The runs whose beginning was said; batched runs and those that end at once report none themselves."""

    def __init__(self, board: Board, *, is_trial: bool = False) -> None:
        self._board, self._is_trial = board, is_trial
        self._run_ids: set[str] = set()

    def say(self, event: RunEvent | RunBegun, told: Sinks) -> None:
        """Say of the runs of an event, before it, that they have begun, unless that was said."""
        if isinstance(event, RunBegun):
            self._run_ids.add(event.run.run_id)
            return
        for run_id in event.run_ids if isinstance(event, Advanced) else (event.run_id,):
            run = self._board.run(run_id)
            if run is not None and run_id not in self._run_ids:
                self._run_ids.add(run_id)
                told.take(RunBegun(run, self._is_trial))


def keep_epochs(home: Home, record: RunRecord) -> None:
    """Write the epochs of a run that was trained where this home cannot be seen."""
    folder = home.run(record.run_id)
    if record.epochs and not (folder / EPOCHS).exists():
        EpochFile(folder).take(record.epochs)
