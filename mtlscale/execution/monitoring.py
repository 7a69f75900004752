"""Monitoring of an experiment from outside: a log of JSON lines, and numbers on Ray's Prometheus port."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

from mtlscale.config import Run, without_secrets
from mtlscale.records import Home, RunRecord

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

LOG_BYTES = 10 * 2**20  # of one file; then it is set aside
LOG_FILES = 3  # that are set aside; the oldest goes

log = logging.getLogger("mtlscale.execution")
log.propagate = False
log.addHandler(logging.NullHandler())
_FIELDS = (
    "experiment",
    "run_id",
    "dataset",
    "method",
    "seed",
    "status",
    "error",
    "seconds",
    "samples_per_second",
    "text",
    "dump",
)


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
    """The log's file; where it cannot be written, a full disk say, the runs go on without it and without a word."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


@contextlib.contextmanager
def structured_log(home: Home, experiment: str) -> Iterator[None]:
    """Log to `<home>/logs/<experiment>.jsonl`, of bounded size, for the duration."""
    folder = home.root / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{experiment}.jsonl"

    handler = _File(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True)
    handler.setFormatter(_JsonFormatter(experiment))
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()
        with contextlib.suppress(OSError):  # the folder is empty only if nothing has been logged
            folder.rmdir()


class Meters:
    """Gauges of the runs done, failed and left, and of the samples per second of the last finished run.

    They are tagged with the experiment.
    """

    def __init__(self, experiment: str, total: int, done: int) -> None:
        from ray.util.metrics import Gauge

        self._tags = {"experiment": experiment}
        self._left, self._done, self._failed = total - done, done, 0

        names = {
            "mtlscale_runs_done": "Runs that have a result",
            "mtlscale_runs_failed": "Runs that failed or diverged",
            "mtlscale_runs_left": "Runs still to do",
            "mtlscale_samples_per_second": "Training samples per second of the last finished run",
        }

        self._gauges: dict[str, Gauge] = {
            name: Gauge(name, description=text, tag_keys=("experiment",)) for name, text in names.items()
        }
        self._set()

    def ended(self, record: RunRecord) -> None:
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


def log_noted(run: Run, text: str) -> None:
    """Log one line for what a run says besides its epochs."""
    extra = {"run_id": run.run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed, "text": text}
    log.warning("run notes", extra=extra)


def log_ended(record: RunRecord) -> None:
    """Log one line for a run that has come to its end, whether it succeeded or not."""
    level = logging.INFO if record.status == "finished" else logging.WARNING
    log.log(level, "run ended", extra={field: getattr(record, field) for field in _FIELDS if hasattr(record, field)})
