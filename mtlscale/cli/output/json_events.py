"""Events as one JSON object per line, whose keys stay as docs/commands.md has them."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtlscale.config import Run
    from mtlscale.data import Manifest
    from mtlscale.execution.planning.plan import Plan
    from mtlscale.execution.planning.status import ExperimentStatus
    from mtlscale.execution.tuning.sweep import SweepPlan
    from mtlscale.records import Epoch, RunRecord, Score


class JsonEvents:
    """Printer of events, or of nothing; as an observer it reports everything about an experiment."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._started: set[str] = set()

    def __enter__(self) -> JsonEvents:
        return self

    def __exit__(self, *_: object) -> None: ...

    def emit(self, event: str, **content: Any) -> None:
        if self._enabled:
            timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
            # One write per line: MLflow's thread prints, too.
            sys.stdout.write(json.dumps({"event": event, "time": timestamp, **plain(content)}) + "\n")
            sys.stdout.flush()

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

    def watching(self, status: ExperimentStatus) -> None:
        self.emit("watching", experiment=status.name, runs=status.runs, done=status.done)

    def searching(self, plan: SweepPlan, slots: int) -> None:
        done_count = len(plan.records())
        self.emit("searching", experiment=plan.plan.experiment.name, trials=plan.total, done=done_count, slots=slots)

    def planned(self, plan: Plan, slots: int) -> None:
        done_count = plan.distinct - len(plan.todo)
        self.emit("planned", experiment=plan.experiment.name, runs=plan.distinct, done=done_count, slots=slots)

    def advanced(self, run: Run, epoch: int) -> None:
        self._report_started(run)
        self.emit("advanced", **_labels(run), epochs=epoch, of=run.epochs)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        self._report_started(run)
        self.emit(
            "epoch",
            **_labels(run),
            phase=epoch.phase,
            epoch=epoch.epoch,
            epochs=run.epochs_behind(epoch.phase, epoch.epoch),
            of=run.epochs,
            train_loss=epoch.train_loss,
            val=epoch.val,
            seconds=epoch.seconds,
        )

    def trial(self, run: Run, record: RunRecord, score: Score | None) -> None:
        self._report_started(run)
        value = None if score is None else score[0]
        self.emit(
            "trial",
            **_labels(run),
            status=record.status,
            settings=run.trial,
            score=value,
            seconds=record.seconds,
            error=record.error,
        )

    def finished(self, run: Run, record: RunRecord) -> None:
        self._report_started(run)
        if record.status == "failed":
            self.emit("failed", **_labels(run), error=record.error)
            return
        self.emit(
            "finished",
            **_labels(run),
            status=record.status,
            error=record.error,
            chosen_epoch=record.chosen_epoch,
            metrics=record.metrics,
            seconds=record.seconds,
        )

    def note(self, text: str) -> None:
        self.emit("note", text=text)

    def _report_started(self, run: Run) -> None:
        """Report a run as started when its first epoch is over: it says nothing before that."""
        if run.run_id not in self._started:
            self._started.add(run.run_id)
            self.emit("started", **_labels(run))


def _labels(run: Run) -> dict[str, Any]:
    return {"run": run.run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed}


def plain(value: Any) -> Any:
    """Convert a value to JSON's types, with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
