"""Monitoring of an experiment from outside: a log of JSON lines, and numbers on Ray's Prometheus port."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import Run, without_secrets
from mtlscale.records import Home, RunRecord
from mtlscale.records.events import Closed, Event, Noted, Planned, RunBegun, RunEnded

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

LOG_BYTES = 10 * 2**20  # of one file; then it is set aside
LOG_FILES = 3  # that are set aside; the oldest goes

log = logging.getLogger("mtlscale.execution")
log.propagate = False
log.addHandler(logging.NullHandler())
_OF_RECORD = (
    "experiment",
    "run_id",
    "dataset",
    "method",
    "seed",
    "status",
    "error",
    "seconds",
    "samples_per_second",
)
_FIELDS = (*_OF_RECORD, "text", "dump")


class _JsonFormatter(logging.Formatter):
    """Formatter of one JSON object a line: time, level, event, and what is known of the run."""

    def __init__(self, experiment: str) -> None:
        super().__init__()
        self._experiment = experiment

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content = {
            "time": when,
            "level": record.levelname,
            "event": record.getMessage(),
            "experiment": self._experiment,
        }
        content |= {field: getattr(record, field) for field in _FIELDS if hasattr(record, field)}
        return without_secrets(json.dumps(content, default=str))


class _File(RotatingFileHandler):
    """The log's file, made with its first line; where it cannot be written, the runs go on without it and a word."""

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class Log:
    """The sink of the log of JSON lines, `<home>/logs/<experiment>.jsonl`, of bounded size."""

    def __init__(self, experiment: str, home: Home) -> None:
        file = home.root / "logs" / f"{experiment}.jsonl"
        self._runs: dict[str, Run] = {}

        self._handler = _File(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True)
        self._handler.setFormatter(_JsonFormatter(experiment))
        log.addHandler(self._handler)
        log.setLevel(logging.INFO)

    def take(self, event: Event) -> None:
        match event:
            case Planned(lines=lines, search=None):
                for line in lines:
                    log.info("data", extra={"text": line})
            case RunBegun(run):
                self._runs[run.run_id] = run
            case Noted(run_id, text) if run_id in self._runs:
                run = self._runs[run_id]
                labels = {"run_id": run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed}
                log.warning("run notes", extra={**labels, "text": text})
            case RunEnded(run_id, record):
                self._runs.pop(run_id, None)
                level = logging.INFO if record.status == "finished" else logging.WARNING
                log.log(level, "run ended", extra={field: getattr(record, field) for field in _OF_RECORD})
            case Closed():
                log.removeHandler(self._handler)
                self._handler.close()


@contextmanager
def log_of(name: str, home: Home) -> Iterator[None]:
    """Write what is logged in this block into `<home>/logs/<name>.jsonl`."""
    sink = Log(name, home)
    try:
        yield
    finally:
        sink.take(Closed("FINISHED"))


class Meters:
    """The sink of Ray's gauges: runs done, failed and left, samples per second of the last finished run.

    They are tagged with the experiment.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def take(self, event: Event) -> None:
        match event:
            case Planned(experiment, board, slots, total, search) if search is None and slots:
                self._begin(experiment, total, total - len(board.missing))
            case RunEnded(_, record) if self._gauges:
                self._ended(record)

    def _begin(self, experiment: str, total: int, done: int) -> None:
        from ray.util.metrics import Gauge

        self._tags = {"experiment": experiment}
        self._left, self._done, self._failed = total - done, done, 0

        names = {
            "mtlscale_runs_done": "Runs that have a result",
            "mtlscale_runs_failed": "Runs that failed or diverged",
            "mtlscale_runs_left": "Runs still to do",
            "mtlscale_samples_per_second": "Training samples per second of the last finished run",
        }

        self._gauges = {name: Gauge(name, description=text, tag_keys=("experiment",)) for name, text in names.items()}
        self._set()

    def _ended(self, record: RunRecord) -> None:
        self._left -= 1
        if record.status == "finished":
            self._done += 1
            self._gauges["mtlscale_samples_per_second"].set(record.samples_per_second, tags=self._tags)
        else:
            self._failed += 1
        self._set()

    def _set(self) -> None:
        for name, value in (("done", self._done), ("failed", self._failed), ("left", self._left)):
            self._gauges[f"mtlscale_runs_{name}"].set(value, tags=self._tags)


def own_sinks(experiment: str, home: Home) -> tuple[Log, Meters]:
    """Return the sinks that every experiment has."""
    return Log(experiment, home), Meters()
