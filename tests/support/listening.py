"""A sink that keeps what it hears, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtlscale.cli.output.json_events import labelled_note
from mtlscale.config import Run
from mtlscale.records import Board, Counts, Ledger, Wanted
from mtlscale.records.events import DatasetPrepared, EpochEnded, Event, Noted, Planned, RunBegun, RunEnded, Watching


class Listening:
    """A sink that keeps all events and may act on each."""

    def __init__(self, act: Callable[[Event], object] = lambda event: None) -> None:
        self.events: list[Event] = []
        self._act = act

    def take(self, event: Event) -> None:
        self.events.append(event)
        self._act(event)

    @property
    def runs(self) -> dict[str, RunBegun]:
        return {event.run.run_id: event for event in self.events if isinstance(event, RunBegun)}

    @property
    def notes(self) -> list[str]:
        noted = [event for event in self.events if isinstance(event, Noted)]
        return [labelled_note(self.runs[n.run_id].run, n.text) if n.run_id in self.runs else n.text for n in noted]

    @property
    def epochs(self) -> list[str]:
        """The method of each epoch."""
        return [self.runs[event.run_id].run.method for event in self.events if isinstance(event, EpochEnded)]

    @property
    def ended(self) -> list[str]:
        """The method of each run that has ended."""
        ended = [event for event in self.events if isinstance(event, RunEnded)]
        return [event.record.method for event in ended if not self.runs[event.run_id].is_trial]

    @property
    def trials(self) -> list[str]:
        """The id of each trial that has ended."""
        ended = [event.run_id for event in self.events if isinstance(event, RunEnded)]
        return [run_id for run_id in ended if self.runs[run_id].is_trial]

    @property
    def prepared(self) -> list[tuple[str, Path]]:
        return [(event.dataset, event.folder) for event in self.events if isinstance(event, DatasetPrepared)]

    @property
    def watched(self) -> list[Counts]:
        return [event.counts for event in self.events if isinstance(event, Watching)]


def board_of(*runs: Run, ledger: Path = Path("none")) -> Board:
    """Return a board of new runs."""
    return Board(map(Wanted.of, runs), Ledger(ledger))


def planned(*runs: Run, slots: int = 1) -> Planned:
    return Planned(runs[0].experiment, board_of(*runs), slots, len(runs))
