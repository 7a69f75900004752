"""Background writer of the driver's events to MLflow.

Results live in the ledger; MLflow is a view of them. If it stops answering in the middle of an experiment, the runs go
on, that is said once, and `mtlscale sync` writes the rest later. If it is slower than the runs, a run's epochs wait
together and are written with its end, and what the ledger and the run's folder have is not kept in memory.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from mtlscale.config import Experiment, Run, without_secrets
from mtlscale.records import Epoch, Home, RunRecord, read_record
from mtlscale.tracking.book import lacking
from mtlscale.tracking.entries import RunUpdate
from mtlscale.tracking.service import database_file, in_one_line
from mtlscale.tracking.summary_runs import Row
from mtlscale.tracking.sync import write_missing
from mtlscale.tracking.writer import Writer

CONNECT_SECONDS = 8.0  # in which a server may refuse before anything is trained
GRACE = 2.0  # seconds: a run that ends within them is written whole, in one go
FLUSH = 1.0  # seconds: a run's epochs are written at most this often
ROWS_SECONDS = 10.0  # seconds: what the leaderboard says of the methods is written at most this often
QUEUE_LIMIT = 1000  # records that wait in memory; later ones are read again from the run's folder
EPOCHS = 20_000  # epochs that wait in memory; later ones come with their run's end
STALL_SECONDS = 120.0  # seconds without a run written, after which MLflow is taken to be away
PROGRESS_SECONDS = (
    3.0,
    15.0,
)  # seconds until the first message on how many runs remain at the end, and between later ones


class _Live:
    """Run that has not ended: when it may be written next, and its epochs since it was written last."""

    def __init__(self, run: Run, due: float) -> None:
        self.run, self.due = run, due
        self.epochs: list[Epoch] = []
        self.fresh = True  # not in MLflow yet
        self.gap = False  # epochs were left out; they come with the run's end


class Tracker:
    """Receiver of events, which a thread writes to MLflow; every method but `close` returns at once.

    `tell` receives, from any thread, the message that MLflow cannot be written any more, and how many runs remain at
    the end.
    """

    def __init__(self, experiment: Experiment, home: Home, tell: Callable[[str], None] = lambda text: None) -> None:
        self._experiment, self._home = experiment, home
        self._writer = Writer(experiment, home)
        self._tell = tell
        self._news = threading.Condition()
        self._live: dict[str, _Live] = {}
        self._ended: deque[RunUpdate] = deque()
        self._waiting_epochs = 0
        self._told = self._done = 0  # runs and trials that have ended; those of them that are in MLflow
        self._table: Callable[[], list[Row]] | None = None
        self._told_rows: list[Row] = []
        self._rows_due, self._rows_took = time.monotonic() + ROWS_SECONDS, 0.0
        self._closing: tuple[list[Path], str, float] | None = None  # artefacts, status, until when runs are written
        self.error: str | None = None

        if self._writer.word is not None:
            tell(self._writer.word)
        self._connected: Future[None] = Future()
        self._thread = threading.Thread(target=self._write_until_closed, name="mlflow-writer", daemon=True)
        self._thread.start()
        if database_file(self._writer.uri) is None:
            self._refuse_early()

    def _refuse_early(self) -> None:
        """Raise `UserError` if a server or database refuses at once; one that says nothing holds nobody up."""
        with in_one_line(self._writer.uri, "cannot be written"), contextlib.suppress(TimeoutError):
            self._connected.result(CONNECT_SECONDS)

    @property
    def left(self) -> int:
        """The number of runs and trials that have ended and are not in MLflow."""
        return self._told - self._done

    def started(self, run: Run) -> None:
        with self._news:
            self._live_run(run)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        with self._news:
            live = self._live_run(run)
            if live.gap or self._waiting_epochs >= EPOCHS or self.error is not None:
                live.gap = True
            else:
                live.epochs.append(epoch)
                self._waiting_epochs += 1

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        with self._news:
            live = self._live.pop(run.run_id, None)
            self._waiting_epochs -= 0 if live is None else len(live.epochs)
            has_record = (folder / "record.json").exists()
            self._end(
                RunUpdate(run, record=None if has_record and len(self._ended) >= QUEUE_LIMIT else record, folder=folder)
            )

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """Take a finished trial of a search: its settings and its score, without its epochs."""
        with self._news:
            self._end(RunUpdate(run, record=record, trial=True, score=score))

    def follow(self, table: Callable[[], list[Row]]) -> None:
        """Write the leaderboard's values of each method now and then, and at the end.

        `table` is called in the writer's thread, seldom enough that the calls take a small part of the time.
        """
        self._table = table

    def close(self, artefacts: list[Path], status: str = "FINISHED", seconds: float | None = None) -> str | None:
        """Write what remains, the parent's artefacts and status; return what went wrong, if anything did.

        This waits as long as runs are being written, or `seconds` in all: then half of them go to runs that have ended,
        the remainder to closing the parent and the runs that were started. `tell` hears how many runs remain for
        `sync`.
        """
        until = float("inf") if seconds is None else time.monotonic() + seconds / 2

        with self._news:
            self._closing = (artefacts, status, until)
            self._news.notify()
        if seconds is None:
            self._wait()
        else:
            self._thread.join(seconds)

        if self._thread.is_alive():
            self.error = self.error or "MLflow does not answer"
        if left := max(self.left, 0 if self.error is None else lacking(self._experiment, self._home)):
            runs = "1 run" if left == 1 else f"{left:,} runs"
            self._tell(f"MLflow lacks {runs}; `mtlscale sync` with the same experiment writes what is left")
        return self.error

    def _wait(self) -> None:
        """Wait until the thread has written everything, or nothing for long, and say how many runs remain."""
        written, last_progress, next_message = self._done, time.monotonic(), time.monotonic() + PROGRESS_SECONDS[0]

        while self._thread.is_alive() and time.monotonic() - last_progress < STALL_SECONDS:
            self._thread.join(0.2)
            now = time.monotonic()
            if self._done > written:
                written, last_progress = self._done, now
            if now >= next_message and self.left and self.error is None:
                next_message = now + PROGRESS_SECONDS[1]
                self._tell(f"MLflow: {self.left:,} runs still to write")

    def _live_run(self, run: Run) -> _Live:
        return self._live.setdefault(run.run_id, _Live(run, time.monotonic() + GRACE))

    def _end(self, update: RunUpdate) -> None:
        self._told += 1
        if self.error is None:
            self._ended.append(update)
            self._news.notify()

    def _write_until_closed(self) -> None:
        try:
            self._writer.connect()
            self._connected.set_result(None)
        except Exception as error:
            self._connected.set_exception(error)
            self._failed(error)
        while self.error is None and (update := self._next_update()) is not None:
            self._try(lambda update=update: self._write(update))  # type: ignore[misc]
            if self._closing is None and self.error is None and time.monotonic() >= self._rows_due:
                self._try(self._write_rows)

        with self._news:
            self._news.wait_for(lambda: self._closing is not None)
        assert self._closing is not None
        artefacts, status, until = self._closing
        if status == "KILLED":
            self._end_early(artefacts, until)
        else:
            self._complete(artefacts, status)

        with self._news:
            self._ended.clear()

    def _end_early(self, artefacts: list[Path], until: float) -> None:
        """Write what the time is enough for; the next command writes the rest."""
        if self.error is None and time.monotonic() + self._rows_took < until:
            self._try(self._write_rows)
        if self.error is None:
            self._try(lambda: self._writer.close(artefacts, "KILLED"))

    def _complete(self, artefacts: list[Path], status: str) -> None:
        """Write everything that MLflow lacks, also of earlier commands and of a time when it did not answer."""

        def write_rest() -> None:
            if self.error is not None:
                self._writer.connect()
            write_missing(self._writer, self._experiment, self._home)
            self._write_rows()
            self._writer.close(artefacts, status)
            self._done, self.error = self._told, None
            if status == "FINISHED":
                self._write_models()

        self._try(write_rest)

    def _write_rows(self) -> None:
        if self._table is not None:
            began = time.monotonic()
            self._told_rows = self._table()
            self._writer.rows(self._told_rows)
            self._rows_took = time.monotonic() - began
            self._rows_due = time.monotonic() + max(ROWS_SECONDS, 20 * self._rows_took)

    def _write_models(self) -> None:
        for reason in self._writer.models(self._told_rows):
            self._tell(f"no model in MLflow of {reason}")

    def _write(self, update: RunUpdate) -> None:
        if update.record is None and update.folder is not None:
            update.record = read_record(update.folder)
        if update.record is None and update.folder is not None:
            return
        self._writer.write(update)
        self._done += update.record is not None

    def _next_update(self) -> RunUpdate | None:
        """Wait for what to write next and return it; ended runs come first, None once the end has come."""
        with self._news:
            while True:
                now = time.monotonic()
                if self._ended and (self._closing is None or now < self._closing[2]):
                    return self._ended.popleft()
                if self._closing is not None:
                    for live in self._live.values():  # the last updates of runs that are cut off
                        live.due, live.fresh = 0.0, False
                    return self._due(now) if now < self._closing[2] else None
                if (update := self._due(now)) is not None:
                    return update
                self._news.wait(FLUSH / 2)

    def _due(self, now: float) -> RunUpdate | None:
        """Return the update of the running run that has waited longest with something new."""
        ready = [live for live in self._live.values() if live.due <= now and (live.fresh or live.epochs)]
        if not ready:
            return None

        live = min(ready, key=lambda one: one.due)
        update = RunUpdate(live.run, live.epochs)
        self._waiting_epochs -= len(live.epochs)
        live.epochs, live.fresh, live.due = [], False, now + FLUSH
        return update

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Note that MLflow cannot be written, and say it the first time."""
        said, self.error = self.error, without_secrets(f"{type(error).__name__}: {error}".splitlines()[0])
        if said is None:
            self._tell(
                f"MLflow is behind from here on ({self.error[:200]}); the runs go on, the ledger has everything, and "
                "the end of this command or `mtlscale sync` writes it"
            )
