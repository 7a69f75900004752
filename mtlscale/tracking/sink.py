"""The sinks that an experiment's file asks for: MLflow, TensorBoard, Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable

from mtlscale.config import Experiment
from mtlscale.records import Home
from mtlscale.records.events import Closed, Event, Planned, Sink
from mtlscale.tracking.mark import lacking
from mtlscale.tracking.rows import Row
from mtlscale.tracking.sinks import SINKS
from mtlscale.tracking.tracker import Tracker


def trackers(
    experiment: Experiment, home: Home, tell: Callable[[str], None], table: Callable[[], list[Row]]
) -> list[Sink]:
    """Return the sinks that an experiment asks for.

    Args:
        tell: Receives, from any thread, what is to be said.
        table: Returns what the leaderboard says of the methods now.
    """
    settings = experiment.tracking
    mlflow = [WhenNeeded(experiment, home, tell, table)] if settings.enabled else []
    return [*(SINKS[name](experiment, home, tell) for name in settings.also), *mlflow]


class WhenNeeded:
    """MLflow's sink, which starts when there is something to write: importing MLflow takes seconds."""

    def __init__(
        self, experiment: Experiment, home: Home, tell: Callable[[str], None], table: Callable[[], list[Row]]
    ) -> None:
        self._experiment, self._home, self._tell, self._table = experiment, home, tell, table
        self._tracker: Tracker | None = None

    def take(self, event: Event) -> None:
        """Take an event; raise `UserError` for a server that refuses before anything is trained."""
        if self._tracker is None and self._needs_it(event):
            self._tracker = Tracker(self._experiment, self._home, self._tell, self._table)
        if self._tracker is not None:
            self._tracker.take(event)

    def _needs_it(self, event: Event) -> bool:
        match event:
            case Planned(board=board, search=search):
                return search is not None or bool(board.missing)
            case Closed("FINISHED"):  # a time when MLflow was away
                return lacking(self._experiment, self._home) > 0
        return False
