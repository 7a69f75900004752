"""What the driver tells MLflow, written by a thread of its own.

Results live in the ledger; MLflow is a view of them. Where it stops answering in the middle of an experiment the runs
go on, that is said once, and `mtlscale sync` writes the rest later. Where it is slower than the runs, a run's epochs
wait together and are written with its end, and what the ledger and the run's folder have is not kept in memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from mtlscale.records import Epoch, Home, RunRecord, read_record
from mtlscale.spec import Experiment, Run
from mtlscale.tracking.entries import Told
from mtlscale.tracking.rows import Row
from mtlscale.tracking.writer import Writer

GRACE = 2.0  # seconds: a run that ends within them is written whole, in one go
FLUSH = 1.0  # seconds: a run's epochs are written at most this often
ROWS = 10.0  # seconds: what the leaderboard says of the methods is written at most this often
KEPT = 1000  # records that wait in memory; of later ones the run's folder is read again
EPOCHS = 20_000  # that wait in memory; later ones come with their run's end
PATIENCE = 120.0  # seconds without a run written, after which MLflow is taken to be away
SAY = (3.0, 15.0)  # seconds: when it is first said how many runs are left at the end, and how often from then on


class _Live:
    """A run that has not ended: when it may be written next, and its epochs since it was."""

    def __init__(self, run: Run, due: float) -> None:
        self.run, self.due = run, due
        self.epochs: list[Epoch] = []
        self.fresh = True  # not in MLflow yet
        self.gap = False  # epochs were left out: the rest comes with the end


class Tracker:
    """Takes what happens; a thread writes it. Every method but `close` returns at once.

    tell: hears, from whichever thread, that MLflow cannot be written any more, and how many runs are left at the end.
    """

    def __init__(self, experiment: Experiment, home: Home, tell: Callable[[str], None] = lambda text: None) -> None:
        self._writer = Writer(experiment, home)
        self._tell = tell
        self._news = threading.Condition()
        self._live: dict[str, _Live] = {}
        self._ended: deque[Told] = deque()
        self._waiting_epochs = 0
        self._told = self._done = 0  # runs and trials that have ended; those of them that are in MLflow
        self._table: Callable[[], list[Row]] | None = None
        self._told_rows: list[Row] = []
        self._rows_due, self._rows_took = time.monotonic() + ROWS, 0.0
        self._closing: tuple[list[Path], str, float] | None = None  # artefacts, status, until when runs are written
        self.error: str | None = None
        if self._writer.word is not None:
            tell(self._writer.word)
        self._thread = threading.Thread(target=self._work, name="mlflow-writer", daemon=True)
        self._thread.start()

    @property
    def left(self) -> int:
        """Runs and trials that have ended and are not in MLflow."""
        return self._told - self._done

    def started(self, run: Run) -> None:
        with self._news:
            self._begun(run)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        with self._news:
            live = self._begun(run)
            if live.gap or self._waiting_epochs >= EPOCHS or self.error is not None:
                live.gap = True
            else:
                live.epochs.append(epoch)
                self._waiting_epochs += 1

    def finished(self, run: Run, record: RunRecord, folder: Path) -> None:
        with self._news:
            live = self._live.pop(run.run_id, None)
            self._waiting_epochs -= 0 if live is None else len(live.epochs)
            there = (folder / "record.json").exists()
            self._end(Told(run, record=None if there and len(self._ended) >= KEPT else record, folder=folder))

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """A finished trial of a search: its settings and how good it was, without its epochs."""
        with self._news:
            self._end(Told(run, record=record, trial=True, score=score))

    def follow(self, table: Callable[[], list[Row]]) -> None:
        """Write what the leaderboard says of each method, now and then and at the end: `table` is asked for it in the
        writer's thread, seldom enough that asking takes a small part of the time."""
        self._table = table

    def close(self, artefacts: list[Path], status: str = "FINISHED", seconds: float | None = None) -> str | None:
        """Write what is left, the parent's artefacts and status; what went wrong, if something did.

        Waits as long as runs are being written, or so many seconds in all: then half of them go to runs that have
        ended, the rest to closing the parent and the runs that were begun. How many runs are left to `sync` is told.
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
        if self.left:
            runs = "1 run" if self.left == 1 else f"{self.left:,} runs"
            self._tell(f"MLflow lacks {runs}; `mtlscale sync` with the same experiment writes what is left")
        return self.error

    def _wait(self) -> None:
        """Until the thread has written everything, or nothing for long; says how many runs are left."""
        done, moved, said = self._done, time.monotonic(), time.monotonic() + SAY[0]
        while self._thread.is_alive() and time.monotonic() - moved < PATIENCE:
            self._thread.join(0.2)
            now = time.monotonic()
            if self._done > done:
                done, moved = self._done, now
            if now >= said and self.left and self.error is None:
                said = now + SAY[1]
                self._tell(f"MLflow: {self.left:,} runs still to write")

    def _begun(self, run: Run) -> _Live:
        return self._live.setdefault(run.run_id, _Live(run, time.monotonic() + GRACE))

    def _end(self, told: Told) -> None:
        self._told += 1
        if self.error is None:
            self._ended.append(told)
            self._news.notify()

    def _work(self) -> None:
        self._try(self._writer.connect)
        while self.error is None and (batch := self._next()):
            self._try(lambda batch=batch: self._write(batch))  # type: ignore[misc]
            if self._closing is None and self.error is None and time.monotonic() >= self._rows_due:
                self._try(self._write_rows)
        if self.error is None and self._closing is not None:
            artefacts, status, until = self._closing
            if time.monotonic() + self._rows_took < until:
                self._try(self._write_rows)
        if self.error is None and self._closing is not None:
            self._try(lambda: self._writer.close(artefacts, status))
            if self.error is None and status == "FINISHED":
                self._try(self._write_models)
        with self._news:
            self._ended.clear()

    def _write_rows(self) -> None:
        if self._table is not None:
            began = time.monotonic()
            self._told_rows = self._table()
            self._writer.rows(self._told_rows)
            self._rows_took = time.monotonic() - began
            self._rows_due = time.monotonic() + max(ROWS, 20 * self._rows_took)

    def _write_models(self) -> None:
        for reason in self._writer.models(self._told_rows):
            self._tell(f"no model in MLflow of {reason}")

    def _write(self, batch: list[Told]) -> None:
        whole = []
        for told in batch:
            if told.record is None and told.folder is not None:
                told.record = read_record(told.folder)
            if told.record is not None or told.folder is None:
                whole.append(told)
        self._writer.write(whole)
        self._done += sum(told.record is not None for told in whole)

    def _next(self) -> list[Told]:
        """What is written next, as soon as there is something; nothing, where the end has come.

        Runs that have ended come first: while MLflow is behind, what others tell is worth least.
        """
        with self._news:
            while True:
                now = time.monotonic()
                if self._ended and (self._closing is None or now < self._closing[2]):
                    return [self._ended.popleft() for _ in range(min(self._writer.together, len(self._ended)))]
                if self._closing is not None:
                    for live in self._live.values():  # what those have to say that are cut off
                        live.due, live.fresh = 0.0, False
                    return self._due(now) if now < self._closing[2] else []
                if found := self._due(now):
                    return found
                self._news.wait(FLUSH / 2)

    def _due(self, now: float) -> list[Told]:
        """Runs that go on and have something new to say, those first that have waited longest."""
        ready = [live for live in self._live.values() if live.due <= now and (live.fresh or live.epochs)]
        found = []
        for live in sorted(ready, key=lambda one: one.due)[: self._writer.together]:
            found.append(Told(live.run, live.epochs))
            self._waiting_epochs -= len(live.epochs)
            live.epochs, live.fresh, live.due = [], False, now + FLUSH
        return found

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}".splitlines()[0]
            self._tell(
                f"MLflow is behind from here on ({self.error[:200]}); the runs go on, the ledger has everything, and "
                "`mtlscale sync` with the same experiment writes it later"
            )
