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
from functools import partial
from pathlib import Path

from mtlscale.config import Experiment, Run, without_secrets
from mtlscale.records import Epoch, Home, RunRecord, read_record
from mtlscale.tracking.mark import lacking
from mtlscale.tracking.rows import Row
from mtlscale.tracking.service import database_file, in_one_line
from mtlscale.tracking.sinks.run_sink import RunSink
from mtlscale.tracking.sync import write_rest
from mtlscale.tracking.writer import Writer

CONNECT_SECONDS = 8.0  # in which a server may refuse before anything is trained
GRACE = 2.0  # seconds: a run that ends within them is written whole, in one go
FLUSH = 1.0  # seconds: a run's epochs are written at most this often
ROWS_SECONDS = 10.0  # seconds: what the leaderboard says of the methods is written at most this often
QUEUE_LIMIT = 1000  # records that wait in memory; later ones are read again from the run's folder
EPOCHS = 20_000  # epochs that wait in memory; later ones come with their run's end
STALL_SECONDS = 120.0  # seconds without a run written, after which MLflow is taken to be away
PROGRESS_SECONDS = (3.0, 15.0)  # until the first message on how many runs remain at the end, and between later ones


class _Live:
    """Run that has not ended: when it may be written next, and its epochs since it was written last."""

    def __init__(self, run: Run, due: float) -> None:
        self.run, self.due = run, due
        self.epochs: list[Epoch] = []
        self.fresh = True  # not in MLflow yet


class Tracker(RunSink):
    """Receiver of events, which a thread writes to MLflow; every method but `close` returns at once.

    Args:
        tell: Receives, from any thread, the message that MLflow cannot be written any more, and how many runs remain at
            the end.
        table: Returns what the leaderboard says now. It is called in the writer's thread, seldom enough that the calls
            take a small part of the time.
    """

    def __init__(
        self,
        experiment: Experiment,
        home: Home,
        tell: Callable[[str], None] = lambda text: None,
        table: Callable[[], list[Row]] = list,
    ) -> None:
        super().__init__(home)
        self._experiment, self._tell, self._table = experiment, tell, table
        self._writer = Writer(experiment, home)
        self._news = threading.Condition()
        self._live: dict[str, _Live] = {}
        self._ended: deque[tuple[Run, RunRecord | None, Path | None, float | None]] = deque()  # a trial has no folder
        self._waiting_epochs = 0
        self._told = self._done = 0  # runs and trials that have ended; those of them that are in MLflow
        self._rows_due, self._rows_took = time.monotonic() + ROWS_SECONDS, 0.0
        self._closing: tuple[str, float] | None = None  # status, until when runs are written
        self.error: str | None = None

        if self._writer.remark is not None:
            tell(self._writer.remark)
        self._connected: Future[None] = Future()
        self._thread = threading.Thread(target=self._write_until_closed, name="mlflow-writer", daemon=True)
        self._thread.start()
        if database_file(self._writer.uri) is None:
            # A server or database that refuses does so at once; one that says nothing holds nobody up.
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
            if self._waiting_epochs < EPOCHS and self.error is None:  # others come with the run's end
                live.epochs.append(epoch)
                self._waiting_epochs += 1

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        with self._news:
            live = self._live.pop(run.run_id, None)
            self._waiting_epochs -= 0 if live is None else len(live.epochs)
            read_again = len(self._ended) >= QUEUE_LIMIT and (folder / "record.json").exists()
            self._end(run, None if read_again else record, folder)

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """Take a finished trial of a search: its settings and its score, without its epochs."""
        with self._news:
            self._end(run, record, None, score)

    def close(self, status: str = "FINISHED", seconds: float | None = None) -> str | None:
        """Write what remains, the reports and the status; return what went wrong, if anything did.

        This waits as long as runs are being written, or `seconds` in all: then half of them go to runs that have ended,
        the remainder to closing the report run and the runs that were started. `tell` hears how many runs remain for
        `sync`.
        """
        until = float("inf") if seconds is None else time.monotonic() + seconds / 2

        with self._news:
            self._closing = (status, until)
            self._news.notify()
        if seconds is None:
            self._wait()
        else:
            self._thread.join(seconds)

        if self._thread.is_alive():
            self.error = self.error or "MLflow does not answer"
        behind = 0 if self.error is None else lacking(self._experiment, self._home, self._writer.ended)
        if left := max(self.left, behind):
            self._tell(f"MLflow lacks {_runs(left)}; `mtlscale sync` with the same experiment writes what is left")
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
                self._tell(f"MLflow: {_runs(self.left)} still to write")

    def _live_run(self, run: Run) -> _Live:
        return self._live.setdefault(run.run_id, _Live(run, time.monotonic() + GRACE))

    def _end(self, run: Run, record: RunRecord | None, folder: Path | None, score: float | None = None) -> None:
        self._told += 1
        if self.error is None:
            self._ended.append((run, record, folder, score))
            self._news.notify()

    def _write_until_closed(self) -> None:
        try:
            self._writer.connect()
            self._connected.set_result(None)
            self._writer.load()
        except Exception as error:
            if not self._connected.done():
                self._connected.set_exception(error)
            self._failed(error)

        while self.error is None and (write := self._next()) is not None:
            self._try(write)
            if self._closing is None and self.error is None and time.monotonic() >= self._rows_due:
                self._try(self._write_rows)

        with self._news:
            self._news.wait_for(lambda: self._closing is not None)
        assert self._closing is not None
        status, until = self._closing
        if status != "KILLED":
            self._try(lambda: self._complete(status))
        elif self.error is None:  # what the time is enough for; the next command writes the rest
            if time.monotonic() + self._rows_took < until:
                self._try(self._write_rows)
            if self.error is None:
                self._try(lambda: self._writer.close(status))

        with self._news:
            self._ended.clear()

    def _complete(self, status: str) -> None:
        """Write everything that MLflow lacks, also of earlier commands and of a time when it did not answer."""
        if self.error is not None:
            self._writer.connect()
        if self.error is not None or lacking(self._experiment, self._home, self._writer.ended):
            self._writer.load()  # another command may have written since

        rows = self._table()
        write_rest(self._writer, self._experiment, self._home, rows, status)
        self._done, self.error = self._told, None
        if status == "FINISHED":
            for reason in self._writer.models(rows):
                self._tell(f"no model in MLflow of {reason}")

    def _write_rows(self) -> None:
        began = time.monotonic()
        self._writer.rows(self._table())
        self._rows_took = time.monotonic() - began
        self._rows_due = time.monotonic() + max(ROWS_SECONDS, 20 * self._rows_took)

    def _write_ended(self, run: Run, record: RunRecord | None, folder: Path | None, score: float | None) -> None:
        record = record if folder is None else record or read_record(folder)
        if record is None:
            return
        if folder is None:
            self._writer.trial(run, record, score)
        else:
            self._writer.write(run, record=record)
        self._done += 1

    def _next(self) -> Callable[[], None] | None:
        """Wait for what to write next and return how; ended runs come first, None once the end has come."""
        with self._news:
            while True:
                now = time.monotonic()
                if self._ended and (self._closing is None or now < self._closing[1]):
                    return partial(self._write_ended, *self._ended.popleft())
                if self._closing is not None:
                    for live in self._live.values():  # the last updates of runs that are cut off
                        live.due, live.fresh = 0.0, False
                    return self._due(now) if now < self._closing[1] else None
                if (write := self._due(now)) is not None:
                    return write
                self._news.wait(FLUSH / 2)

    def _due(self, now: float) -> Callable[[], None] | None:
        """Return how to write the running run that has waited longest with something new."""
        ready = [live for live in self._live.values() if live.due <= now and (live.fresh or live.epochs)]
        if not ready:
            return None

        live = min(ready, key=lambda one: one.due)
        write = partial(self._writer.write, live.run, live.epochs)
        self._waiting_epochs -= len(live.epochs)
        live.epochs, live.fresh, live.due = [], False, now + FLUSH
        return write

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


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"
