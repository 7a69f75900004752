"""What happens, as one JSON object a line: keys stay as docs/commands.md has them."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtlscale.data import Manifest
    from mtlscale.execution.plan import Plan
    from mtlscale.execution.standing import Standing
    from mtlscale.execution.sweep import SweepPlan
    from mtlscale.records import Epoch, RunRecord, Score
    from mtlscale.spec import Run


class Lines:
    """Prints events, or nothing. As an observer it tells all there is to tell of an experiment."""

    def __init__(self, wanted: bool = True) -> None:
        self._wanted = wanted
        self._started: set[str] = set()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def tell(self, event: str, **content: Any) -> None:
        if self._wanted:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            # In one piece: MLflow's thread has something to say, too.
            sys.stdout.write(json.dumps({"event": event, "time": now, **plain(content)}) + "\n")
            sys.stdout.flush()

    def prepared(
        self, dataset: str, folder: Path, manifest: Manifest | None = None, seconds: float | None = None
    ) -> None:
        if manifest is None:
            from mtlscale.data.prepared import read_manifest

            manifest = read_manifest(folder)
        counts, more = manifest.counts, {} if seconds is None else {"seconds": round(seconds, 3)}
        self.tell(
            "prepared", dataset=dataset, folder=str(folder), fingerprint=manifest.fingerprint, samples=counts, **more
        )

    def watching(self, standing: Standing) -> None:
        self.tell("watching", experiment=standing.name, runs=standing.runs, done=standing.done)

    def searching(self, plan: SweepPlan, slots: int) -> None:
        done = len(plan.records())
        self.tell("searching", experiment=plan.plan.experiment.name, trials=plan.total, done=done, slots=slots)

    def planned(self, plan: Plan, slots: int) -> None:
        done = plan.distinct - len(plan.todo)
        self.tell("planned", experiment=plan.experiment.name, runs=plan.distinct, done=done, slots=slots)

    def advanced(self, run: Run, epoch: int) -> None:
        self._begun(run)
        self.tell("advanced", **_labels(run), epochs=epoch, of=run.epochs)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        self._begun(run)
        self.tell(
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
        self._begun(run)
        value = None if score is None else score[0]
        self.tell(
            "trial",
            **_labels(run),
            status=record.status,
            settings=run.trial,
            score=value,
            seconds=record.seconds,
            error=record.error,
        )

    def finished(self, run: Run, record: RunRecord) -> None:
        self._begun(run)
        if record.status == "failed":
            self.tell("failed", **_labels(run), error=record.error)
            return
        self.tell(
            "finished",
            **_labels(run),
            status=record.status,
            error=record.error,
            chosen_epoch=record.chosen_epoch,
            metrics=record.metrics,
            seconds=record.seconds,
        )

    def note(self, text: str) -> None:
        self.tell("note", text=text)

    def _begun(self, run: Run) -> None:
        """A run says nothing before its first epoch is over; it counts as started then."""
        if run.run_id not in self._started:
            self._started.add(run.run_id)
            self.tell("started", **_labels(run))


def _labels(run: Run) -> dict[str, Any]:
    return {"run": run.run_id, "dataset": run.dataset, "method": run.method, "seed": run.seed}


def plain(value: Any) -> Any:
    """As JSON has it, which knows no NaN and no infinity: null for those."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
