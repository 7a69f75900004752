"""What Ray Tune's callbacks tell of trials, as events and records."""

from __future__ import annotations

import json
import queue
from collections.abc import Sequence
from typing import Any

from mtlscale.config import Run, SearchSpec
from mtlscale.execution.tuning.tune_setup import Setup
from mtlscale.execution.workers.worker import failed
from mtlscale.metrics.objectives import to_minimise
from mtlscale.records import Epoch, Metrics, RunRecord, best_so_far
from mtlscale.records.events import EpochEnded, Noted, RunBegun, RunEnded, RunEvent

Events = queue.Queue[RunEvent | RunBegun | None]  # None: the search is over


class TrialRecorder:
    """Translator of Tune's callbacks into records: a trial's own, or of a trial cut short what it had."""

    def __init__(self, shared: Setup, search: SearchSpec, events: Events) -> None:
        self.shared, self.search, self._events = shared, search, events
        self.running: set[str] = set()  # ids of trials that have a worker
        self._epochs: dict[str, dict[int, Epoch]] = {}  # by trial, then by how many epochs are over with it
        self._ended: set[str] = set()
        self._begun: set[str] = set()  # the ids of runs that have been reported
        self._dumped: dict[str, int] = {}  # bytes of a trial's thread dumps that have been told of

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks to a file, which nobody reads here

    def __deepcopy__(self, memo: dict[int, Any]) -> TrialRecorder:
        return self

    def as_callback(self) -> Any:
        from ray.tune import Callback

        recorder = self

        class Recording(Callback):
            def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder._start(trial)

            def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any) -> None:
                recorder._result(trial, result)

            def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder._complete(trial)

            def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder._recover(trial)

            def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
                recorder._error(trial)

        return Recording()

    def _run(self, trial: Any) -> Run:
        return self.shared.base.tuned(self.shared.knobs(trial.config))

    def _begin(self, run: Run) -> None:
        """Report a run as begun before anything else of it; a member of a population becomes another one on the way."""
        if run.run_id not in self._begun:
            self._begun.add(run.run_id)
            self._events.put(RunBegun(run, is_trial=True))

    def _start(self, trial: Any) -> None:
        self.running.add(trial.trial_id)
        self._begin(self._run(trial))
        self.shared.journal.parent.mkdir(parents=True, exist_ok=True)
        entry = {
            "method": self.shared.base.method,
            "dataset": self.shared.base.dataset,
            "trial": self._run(trial).trial,
        }
        with self.shared.journal.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _result(self, trial: Any, result: dict[str, Any]) -> None:
        """Take what a trial reports out of its result: Tune would keep it, and write that of all trials to a file."""
        run = self._run(trial)
        self._begin(run)
        notes, record, text = (result.pop(name, None) for name in ("notes", "record", "epoch"))
        for note in notes or ():
            self._events.put(Noted(run.run_id, note))

        if record is not None:
            epochs = list(self._epochs.get(trial.trial_id, {}).values())
            ended = RunRecord.model_validate_json(record).model_copy(update={"epochs": epochs})
            result["objectives"] = to_minimise(ended, self.search.objectives)  # what a searcher learns of a trial
            self._put(trial, run, ended)
        elif text is not None:
            epoch = Epoch.model_validate_json(text)
            self._epochs.setdefault(trial.trial_id, {})[run.epochs_behind(epoch.phase, epoch.epoch)] = epoch
            self._events.put(EpochEnded(run.run_id, epoch))

    def _complete(self, trial: Any) -> None:
        """Record a trial that a scheduler has ended: what it had on validation counts."""
        if trial.trial_id in self._ended:
            return
        run = self._run(trial)
        self._put(trial, run, cut_short(run, list(self._epochs.get(trial.trial_id, {}).values()), self.shared))

    def _recover(self, trial: Any) -> None:
        run = self._run(trial)
        self.running.discard(trial.trial_id)
        if hung := self._hung(trial):
            self._events.put(Noted(run.run_id, f"{hung}; it is tried again"))

    def _error(self, trial: Any) -> None:
        if trial.trial_id in self._ended:
            return
        cause = trial.get_error()
        text = str(getattr(cause, "cause", None) or cause).strip().splitlines()
        reason = self._hung(trial) or (text[-1] if text else "its worker died")
        self._put(trial, self._run(trial), failed(self._run(trial), reason))

    def _hung(self, trial: Any) -> str:
        """Return what is known of a trial whose worker hung since the last such look; "" of others."""
        dump = self.shared.dump(self._run(trial))
        size = dump.stat().st_size if dump.exists() else 0
        before, self._dumped[trial.trial_id] = self._dumped.get(trial.trial_id, 0), size
        minutes = self.shared.options.resources.timeout_minutes
        return f"no sign of life within {minutes:g} minutes; thread dumps in {dump}" if size > before else ""

    def _put(self, trial: Any, run: Run, record: RunRecord) -> None:
        self.running.discard(trial.trial_id)
        self._begin(run)
        if trial.trial_id not in self._ended:
            self._ended.add(trial.trial_id)
            self._epochs.pop(trial.trial_id, None)
            self._events.put(RunEnded(run.run_id, record))


def cut_short(run: Run, epochs: Sequence[Epoch], shared: Setup) -> RunRecord:
    """Return the record of a trial that a scheduler ended.

    It has the best epoch on validation, of the phase the trial was in, and nothing on test.
    """
    phase = epochs[-1].phase if epochs else ""
    of_phase = (epoch for epoch in epochs if epoch.phase == phase)
    chosen = best_so_far(of_phase, shared.main, shared.directions, shared.metric, shared.lowest)
    if chosen is None:
        return failed(run, f"ended by {shared.scheduler} before its first evaluation")

    metrics: dict[str, Metrics] = {"val": chosen.val}
    return failed(run, f"ended by {shared.scheduler} after {len(epochs)} epochs").model_copy(
        update={
            "status": "finished",
            "metrics": metrics,
            "last": metrics,
            "chosen_epoch": chosen.epoch,
            "epochs": list(epochs),
            "main_metrics": shared.main,
            "higher_is_better": shared.directions,
            "lowest": shared.lowest,
            "seconds": sum(epoch.seconds for epoch in epochs),
        }
    )
