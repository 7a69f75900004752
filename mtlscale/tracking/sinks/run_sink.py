"""The sink of runs: who writes them elsewhere hears of each with its settings, and of trials once they have ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from mtlscale.config import Run
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.records.events import Closed, EpochEnded, Event, RunBegun, RunEnded

_STOP_SECONDS = 8.0  # for the last word of an experiment that was told to stop


class RunSink(ABC):
    """The sink that hands on what happens to each run; every method but `close` returns at once."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._runs: dict[str, tuple[Run, bool]] = {}  # run_id -> the run, and whether it is a trial

    @abstractmethod
    def started(self, run: Run) -> None: ...
    @abstractmethod
    def epoch(self, run: Run, epoch: Epoch) -> None: ...
    @abstractmethod
    def finished(self, run: Run, record: RunRecord, folder: Path) -> None: ...
    @abstractmethod
    def trial(self, run: Run, record: RunRecord, score: float | None) -> None: ...

    @abstractmethod
    def close(self, status: str, seconds: float | None = None) -> object:
        """Write what is left, within `seconds` where they are given."""

    def take(self, event: Event) -> None:
        match event:
            case RunBegun(run, is_trial):
                self._runs[run.run_id] = run, is_trial
                if not is_trial:
                    self.started(run)
            case EpochEnded(run_id, epoch):
                run, is_trial = self._runs[run_id]
                if not is_trial:
                    self.epoch(run, epoch)
            case RunEnded(run_id, record, score):
                run, is_trial = self._runs[run_id]
                if is_trial:
                    self.trial(run, record, None if score is None else score[0])
                else:
                    self.finished(run, record, self._home.run(run_id))
            case Closed(status):
                self.close(status, _STOP_SECONDS if status == "KILLED" else None)
