"""What the driver tells MLflow, written by a thread of its own.

Results live in the ledger; MLflow is a view of them. Where it stops answering in the middle of an experiment the runs
go on, that is said once, and `mtlscale sync` writes the rest later.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.spec import Experiment, Run
from mtlscale.tracking.writer import Writer


class Tracker:
    """Queues what happens; a thread writes it. Every method returns at once.

    tell: is told once, from that thread, when MLflow cannot be written any more.
    """

    def __init__(self, experiment: Experiment, home: Home, tell: Callable[[str], None] = lambda text: None) -> None:
        self._writer = Writer(experiment, home)
        self._tell = tell
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.error: str | None = None
        self._thread = threading.Thread(target=self._work, name="mlflow-writer", daemon=True)
        self._thread.start()

    def started(self, run: Run) -> None:
        self._queue.put(lambda: self._writer.start(run))

    def epoch(self, run: Run, epoch: Epoch) -> None:
        self._queue.put(lambda: self._writer.epoch(run, epoch))

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        self._queue.put(lambda: self._writer.finish(run, record, folder))

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """A finished trial of a search: its settings and how good it was, without its epochs."""
        self._queue.put(lambda: self._writer.trial(run, record, score))

    def close(self, artefacts: list[Path], status: str = "FINISHED") -> str | None:
        """Write what is left, the parent's artefacts and status; what went wrong, if something did."""
        self._queue.put(lambda: self._writer.close(artefacts, status))
        self._queue.put(None)
        self._thread.join(timeout=120)
        return self.error

    def _work(self) -> None:
        self._try(self._writer.connect)
        while (action := self._queue.get()) is not None:
            if self.error is None:
                self._try(action)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}".splitlines()[0]
            self._tell(
                f"MLflow is behind from here on ({self.error[:200]}); the runs go on, the ledger has everything, and "
                "`mtlscale sync` with the same experiment writes it later"
            )
