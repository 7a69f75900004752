"""All receivers of an experiment's events: MLflow's tracker and the sinks beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtlscale.config import Experiment, Run
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.tracking.rows import Row
from mtlscale.tracking.sinks import SINKS, ScalarSink
from mtlscale.tracking.tracker import Tracker


class Trackers:
    """Receiver of events that hands them to every tracker; `table` returns what the leaderboard says now."""

    def __init__(
        self, experiment: Experiment, home: Home, tell: Callable[[str], None], table: Callable[[], list[Row]]
    ) -> None:
        settings = experiment.tracking
        self._sinks = [SINKS[name](experiment, home, tell) for name in settings.also]
        self._mlflow = Tracker(experiment, home, tell, table) if settings.enabled else None
        self._all: list[ScalarSink | Tracker] = [*self._sinks, *([] if self._mlflow is None else [self._mlflow])]

    def started(self, run: Run) -> None:
        for tracker in self._all:
            tracker.started(run)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        for tracker in self._all:
            tracker.epoch(run, epoch)

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        for tracker in self._all:
            tracker.finished(run, record, folder)

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        for tracker in self._all:
            tracker.trial(run, record, score)

    def close(self, artefacts: list[Path], status: str, seconds: float | None = None) -> None:
        """Write what is left, within `seconds` where they are given; the reports are found in the home."""
        for sink in self._sinks:
            sink.close(seconds)
        if self._mlflow is not None:
            self._mlflow.close(status, seconds)
