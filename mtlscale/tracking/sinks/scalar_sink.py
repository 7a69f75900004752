"""The sink of a run's scalars: a thread that takes the driver's events and writes each epoch once."""

from __future__ import annotations

import importlib.util
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtlscale.config import Experiment, Run, UserError
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.tracking.sinks.run_sink import RunSink
from mtlscale.tracking.values import Metric, end_metrics, epoch_metrics, epochs_of

_EVENTS = 20_000  # events that wait in memory; epochs beyond them come with their run's end
_CLOSE_SECONDS = 120.0


class ScalarSink(RunSink):
    """Receiver of events; every method but `close` returns at once.

    A sink that fails says so once, and the runs go on without it. Subclasses write; each of their methods is called in
    the sink's own thread.
    """

    name: str
    package: str  # that it imports

    def __init__(self, experiment: Experiment, home: Home, tell: Callable[[str], None]) -> None:
        if importlib.util.find_spec(self.package) is None:
            raise UserError(
                f"tracking.also: {self.name} needs the package {self.package}; pip install 'mtlscale[{self.name}]'"
            )
        super().__init__(home)
        self._experiment, self._tell = experiment, tell
        self._events: queue.Queue[Callable[[], None] | None] = queue.Queue(_EVENTS)
        self._open: dict[str, Any] = {}  # run_id -> what `begin` returned
        self._written: dict[str, int] = {}  # run_id -> last epoch written
        self._behind: set[str] = set()  # runs whose epochs come with their end
        self.error: str | None = None
        self._thread = threading.Thread(target=self._work, name=f"{self.name}-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def begin(self, run: Run, step: int) -> Any:
        """Begin or resume a run whose next metrics are of this step; return what the other methods receive."""

    @abstractmethod
    def log(self, handle: Any, metrics: list[Metric]) -> None:
        """Write metrics in the order of their steps."""

    @abstractmethod
    def end(self, handle: Any, record: RunRecord | None) -> None:
        """End a run; without a record it was cut off."""

    def started(self, run: Run) -> None:
        """Do nothing: a run begins with its first metrics."""

    def epoch(self, run: Run, epoch: Epoch) -> None:
        if run.run_id in self._behind:
            return
        try:
            self._events.put_nowait(lambda: self._log_epochs(run, [epoch]))
        except queue.Full:
            self._behind.add(run.run_id)

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        def write() -> None:
            self._log_epochs(run, epochs_of(folder, record))
            handle = self._handle(run, 0)
            self.log(handle, end_metrics(record, self._written[run.run_id], self._experiment.tracking.detail))
            self.end(handle, record)
            del self._open[run.run_id], self._written[run.run_id]
            self._behind.discard(run.run_id)

        self._events.put(write)

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """Take a finished trial of a search: its settings and its score, without its epochs."""

        def write() -> None:
            handle = self.begin(run, 0)
            self.log(handle, [] if score is None else [("val.score", float(score), 0)])
            self.end(handle, record)

        self._events.put(write)

    def close(self, status: str, seconds: float | None = None) -> None:
        """Write what is left, for as long as this may take, and end the runs that were cut off."""
        self._events.put(None)
        self._thread.join(_CLOSE_SECONDS if seconds is None else seconds)
        if self._thread.is_alive():
            self._fail("it is too slow")

    def _log_epochs(self, run: Run, epochs: list[Epoch]) -> None:
        detail, last = self._experiment.tracking.detail, self._written.get(run.run_id, 0)
        metrics, steps = epoch_metrics(run, epochs, range(last + 1), detail)
        self._written[run.run_id] = max(steps, default=last)
        if metrics:
            self.log(self._handle(run, metrics[0][2]), metrics)

    def _handle(self, run: Run, step: int) -> Any:
        if run.run_id not in self._open:
            self._open[run.run_id] = self.begin(run, step)
        return self._open[run.run_id]

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            self._try(event)
        for handle in self._open.values():
            self._try(lambda handle=handle: self.end(handle, None))  # type: ignore[misc]

    def _try(self, action: Callable[[], None]) -> None:
        if self.error is None:
            try:
                action()
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}".splitlines()[0])

    def _fail(self, reason: str) -> None:
        self.error = reason
        self._tell(f"{self.name} gets nothing from here on ({reason[:200]}); the runs go on")
