"""An experiment from its file to its leaderboard: the driver, with pages, MLflow and everybody who listens."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from mtlscale.api.mlflow_rows import rows_of
from mtlscale.config import Experiment, extensions, loaded
from mtlscale.execution import runner
from mtlscale.execution.sinks import Guest, Sinks
from mtlscale.records import Board, Home
from mtlscale.records.events import Closed, Event, Planned, Sink
from mtlscale.report.results import Results
from mtlscale.report.sweeps.sweeps import Sweep
from mtlscale.tracking import Row, trackers


def run(
    experiment: Experiment | Path | str,
    *,
    home: Home | Path | str | None = None,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    sinks: Iterable[Sink] = (),
    wait: bool = True,
    whole: Experiment | None = None,
) -> Results:
    """Run what is not done yet and return all results; with a search, tune first and train the winners.

    A run that fails is recorded with its cause and the others go on; one that was cut off resumes from its last
    checkpoint.

    Args:
        experiment: The experiment, its file, or the name of a shipped one.
        home: The home folder.
        source: Where the raw data are, if they have to be prepared.
        address: A Ray cluster to join; default is $RAY_ADDRESS, or a local Ray for the time.
        download: Fetch raw data that are not found.
        sinks: Whoever takes the events (`mtlscale.records.events`), each an object with `take(event)`; one that raises
            is named once and gets nothing from then on.
        wait: Where another process runs the experiment in this home, watch it and go on with what it leaves.
        whole: The experiment that this one is a part of; its other finished runs belong to the results, too.

    Raises:
        UserError: For what can be known before anything starts, including another process if `wait` is False.
        Interrupted: A KeyboardInterrupt, when Ctrl-C or a signal has ended it.
    """
    experiment, home = loaded(experiment), _home(home)
    pages = Pages(whole or experiment, home)
    audience = _audience(experiment, home, sinks, pages)
    runner.run(
        experiment,
        home,
        source=source,
        address=address,
        download=download,
        sinks=audience,
        wait=wait,
        whole=whole,
    )
    assert pages.results is not None  # the last event came
    return pages.results


def sweep(
    experiment: Experiment,
    *,
    home: Home | Path | str | None = None,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    sinks: Iterable[Sink] = (),
    wait: bool = True,
) -> Sweep:
    """Run the search of an experiment alone: run the trials that are not done yet and return all of them."""
    home = _home(home)
    pages = Pages(experiment, home)
    audience = _audience(experiment, home, sinks, pages)
    runner.run(
        experiment,
        home,
        source=source,
        address=address,
        download=download,
        sinks=audience,
        wait=wait,
        trials_only=True,
    )
    assert pages.search is not None
    return pages.search


def _home(home: Home | Path | str | None) -> Home:
    return home if isinstance(home, Home) else Home.at(None if home is None else Path(home))


def _audience(experiment: Experiment, home: Home, sinks: Iterable[Sink], pages: Pages) -> list[Sink]:
    """Return everybody who listens: the caller's sinks first, pages before the trackers that keep them."""
    installed = (make(experiment, home) for make in extensions("sink"))
    guests = [Guest(sink, lambda text: say(text)) for sink in (*sinks, *installed) if sink is not None]

    def say(text: str) -> None:
        Sinks(*guests).note(text)
        if all(guest.failed for guest in guests):  # nobody is left who could show it
            warnings.warn(text, stacklevel=2)

    return [*guests, pages, *trackers(experiment, home, say, pages.rows)]


class Pages:
    """The sink that makes the results and their pages once everything has ended, and meanwhile MLflow's rows."""

    def __init__(self, experiment: Experiment, home: Home) -> None:
        self._experiment, self._folder = experiment, home.experiment(experiment.name)
        self._board: Board | None = None
        self.search: Sweep | None = None
        self.results: Results | None = None

    def take(self, event: Event) -> None:
        match event:
            case Planned(_, board) if event.search is None:
                self._board = board
            case Closed("FINISHED", board, trials):
                if trials is not None:
                    self.search = Sweep(self._experiment, trials, self._folder)
                    self.search.write_report()
                if board is not None:
                    self.results = self._results_of(board)
                    self.results.write_report()

    def rows(self) -> list[Row]:
        """Return what the leaderboard says of the methods now."""
        if self.results is not None:
            return rows_of(self.results)
        return [] if self._board is None else rows_of(self._results_of(self._board))

    def _results_of(self, board: Board) -> Results:
        return Results(self._experiment, board.records, self._folder, self.search, board.unsettled)
