"""Events as one JSON object per line, whose keys stay as docs/commands.md has them."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.records.events import (
    Advanced,
    DatasetPrepared,
    EpochEnded,
    Event,
    Noted,
    Planned,
    RunBegun,
    RunEnded,
    Watching,
)

if TYPE_CHECKING:
    from mtlscale.config import Run
    from mtlscale.data import Manifest
    from mtlscale.records import Epoch, RunRecord, Score


class JsonEvents:
    """Printer of events, or of nothing; as a sink it reports everything about an experiment."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._runs: dict[str, tuple[Run, bool]] = {}  # run_id -> the run, and whether it is a trial
        self._started: set[str] = set()  # the ids of those that have said something

    def __enter__(self) -> JsonEvents:
        return self

    def __exit__(self, *_: object) -> None: ...

    def emit(self, event: str, **content: Any) -> None:
        if self._enabled:
            timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
            # One write per line: MLflow's thread prints, too.
            sys.stdout.write(json.dumps({"event": event, "time": timestamp, **plain(content)}) + "\n")
            sys.stdout.flush()

    def take(self, event: Event) -> None:
        """Print an event of an experiment."""
        match event:
            case DatasetPrepared(dataset, folder):
                self.prepared(dataset, folder)
            case Watching(experiment, counts):
                self.emit("watching", experiment=experiment, runs=counts.total, done=counts.finished)
            case Planned(experiment, board, slots, total, search):
                name, noun = ("planned", "runs") if search is None else ("searching", "trials")
                done = len(board.distinct) - len(board.missing)
                self.emit(name, experiment=experiment, **{noun: total}, done=done, slots=slots)
            case RunBegun(run, is_trial):
                self._runs[run.run_id] = run, is_trial
            case Advanced(run_ids, epochs):
                for run_id in run_ids:
                    self.emit("advanced", **self._labels(run_id), epochs=epochs, of=self._runs[run_id][0].epochs)
            case EpochEnded(run_id, epoch):
                self._epoch(run_id, epoch)
            case RunEnded(run_id, record, score):
                self._ended(run_id, record, score)
            case Noted(run_id, text):
                self.emit("note", text=labelled_note(self._runs[run_id][0], text) if run_id in self._runs else text)

    def _labels(self, run_id: str) -> dict[str, Any]:
        """Return a run's labels; the first time it says something, report that it has started."""
        run, _ = self._runs[run_id]
        labels = {"run": run.run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed}
        if run_id not in self._started:
            self._started.add(run_id)
            self.emit("started", **labels)
        return labels

    def prepared(
        self, dataset: str, folder: Path, manifest: Manifest | None = None, seconds: float | None = None
    ) -> None:
        if manifest is None:
            from mtlscale.data.readers.prepared import read_manifest

            manifest = read_manifest(folder)

        counts, timing = manifest.counts, {} if seconds is None else {"seconds": round(seconds, 3)}
        self.emit(
            "prepared", dataset=dataset, folder=str(folder), fingerprint=manifest.fingerprint, samples=counts, **timing
        )

    def _epoch(self, run_id: str, epoch: Epoch) -> None:
        labels, (run, is_trial) = self._labels(run_id), self._runs[run_id]
        behind = run.epochs_behind(epoch.phase, epoch.epoch)
        if is_trial:
            self.emit("advanced", **labels, epochs=behind, of=run.epochs)
            return
        self.emit(
            "epoch",
            **labels,
            phase=epoch.phase,
            epoch=epoch.epoch,
            epochs=behind,
            of=run.epochs,
            train_loss=epoch.train_loss,
            val=epoch.val,
            seconds=epoch.seconds,
        )

    def _ended(self, run_id: str, record: RunRecord, score: Score | None) -> None:
        labels, (run, is_trial) = self._labels(run_id), self._runs[run_id]
        if is_trial:
            self.emit(
                "trial",
                **labels,
                status=record.status,
                settings=run.trial,
                score=None if score is None else score[0],
                seconds=record.seconds,
                error=record.error,
            )
        elif record.status == "failed":
            self.emit("failed", **labels, error=record.error)
        else:
            self.emit(
                "finished",
                **labels,
                status=record.status,
                error=record.error,
                chosen_epoch=record.chosen_epoch,
                metrics=record.metrics,
                seconds=record.seconds,
            )


def labelled_note(run: Run, text: str) -> str:
    """Return a note on a run with its labels."""
    return f"{run.dataset} · {run.method} · seed {run.seed}: {text}"


def plain(value: Any) -> Any:
    """Convert a value to JSON's types, with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
