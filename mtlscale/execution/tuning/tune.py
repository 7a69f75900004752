"""Searches whose trials depend on each other, by Ray Tune: Optuna, ASHA, median stopping, population-based training.

Trials are class trainables on reused actors, so that a trial costs its training and no start of a process. What a sweep
remembers is its ledger of trials, not Tune's own files: after a crash the searcher is given the finished trials anew,
and those that had begun are the first to go on, from their checkpoints. (A searcher's state can be lost in
`Tuner.restore`, ray#58179.)
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config import (
    Dimension,
    Knobs,
    Run,
    SearchSpec,
    TaskSuite,
    UserError,
    extensions,
    space_of,
    trials,
    whole_number,
)
from mtlscale.execution.events import EpochEnded, Event, Noted, RunEnded
from mtlscale.execution.faults import dumps
from mtlscale.execution.faults.failures import StartTimeout
from mtlscale.execution.tuning.tune_space import distributions, domains, moves
from mtlscale.execution.tuning.tune_workers import WorkerGroup, bundles
from mtlscale.execution.workers.jobs import Job, Options
from mtlscale.execution.workers.worker import Plugin, failed, sources
from mtlscale.metrics.objectives import to_minimise
from mtlscale.records import Epoch, Metrics, RunRecord, Score, best_so_far, score, score_of

_LOOK_SECONDS = 5.0  # between two looks whether any trial has a worker
WORST = -1e12  # what a trial that diverged reports

Settings = dict[str, Any]  # what Tune sees of a trial: path -> number, or the index of a choice


@dataclass(frozen=True)
class Setup:
    """Settings that all trials of one method and data set share."""

    base: Run
    data: Path
    runs: Path  # below which the trials' folders are: that of all runs, or one for members of populations
    journal: Path  # settings of the trials that have begun, one JSON object a line
    space: dict[str, Dimension]
    integer_knobs: dict[str, bool]
    metric: str | None  # that decides; None: each task's main one
    main: dict[str, str]  # task -> its main metric
    plugins: tuple[Plugin, ...]
    options: Options
    scheduler: str

    @property
    def population(self) -> bool:
        """True if settings change within a trial."""
        return self.scheduler == "pbt"

    @property
    def lowest(self) -> dict[str, float]:
        """The least that each metric can be, of those that can be negative."""
        from mtlscale.metrics import lowest

        return lowest(sorted(self.directions.keys() - {"loss"}))

    @property
    def directions(self) -> dict[str, bool]:
        """The direction of each metric: True if higher is better."""
        from mtlscale.metrics import higher_is_better

        names = {*self.main.values(), *([self.metric] if self.metric else [])} - {"loss"}
        return {**{name: higher_is_better(name) for name in names}, "loss": False}

    def dump(self, run: Run) -> Path:
        """Return the file for thread dumps of a trial that hangs."""
        return self.journal.with_name(f"hung-{run.run_id}.txt")

    def job(self, settings: Settings) -> Job:
        run = self.base.tuned(self.knobs(settings))
        return Job(run, self.data, self.runs / run.run_id)

    def knobs(self, settings: Settings) -> Knobs:
        """Return what a run is tuned to: choices by their index, ranges to six digits."""
        knobs: Knobs = {}
        for path, dimension in self.space.items():
            value = settings[path]
            if dimension.numbers is not None:
                knobs[path] = value
            elif dimension.choices is not None:
                knobs[path] = dimension.choices[int(value)]
            else:
                clipped = min(max(value, dimension.low), dimension.high)
                knobs[path] = round(clipped) if self.integer_knobs[path] else float(f"{clipped:.6g}")
        return knobs

    def settings(self, knobs: Knobs) -> Settings:
        return {
            path: knobs[path]
            if dimension.choices is None or dimension.numbers is not None
            else dimension.choices.index(knobs[path])
            for path, dimension in self.space.items()
        }


def _trainable(name: str) -> type[Any]:
    """Return the class of the trials; Ray is imported late.

    `name` is the class's own, by which Tune tells searches apart.
    """
    from ray import tune

    class TuneTrial(tune.Trainable):
        """Trial of a search: an epoch a step, and a last step for its record."""

        def setup(self, config: Settings, shared: Setup | None = None) -> None:
            assert shared is not None
            self._shared = shared
            self._crew = WorkerGroup(shared.options, shared.plugins)
            self._begin(config)

        def reset_config(self, new_config: Settings) -> bool:
            self._begin(new_config)
            return True

        def _begin(self, config: Settings) -> None:
            # A population's member changes its settings on the way: it must not pass for the run with the last ones.
            resumes = not self._shared.population
            job = self._shared.job(config)
            self._dump = self._shared.dump(job.run)
            with self._ends_if_silent():
                self._crew.begin(job, self._shared.options, resumes=resumes)
            self._best = Best(self._shared)

        def _ends_if_silent(self) -> contextlib.AbstractContextManager[None]:
            return dumps.ends_if_silent(self._shared.options.resources.timeout_minutes, self._dump)

        def step(self) -> dict[str, Any]:
            notes: list[str] = []
            with self._ends_if_silent():
                events = self._crew.step()
            for event in events:
                match event:
                    case Noted(_, text):
                        notes.append(text)
                    case EpochEnded(_, epoch):
                        value = self._best.of(epoch)
                        return {"score": value, "notes": notes, "epoch": epoch.model_dump_json()}
                    case RunEnded(_, record):
                        value = _number(score(record, self._shared.metric))
                        return {"score": value, "notes": notes, "record": record.model_dump_json(), "done": True}
            raise AssertionError("a trial that has ended was asked to go on")

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self._crew.save(Path(checkpoint_dir) / "checkpoint.pt")

        def load_checkpoint(self, checkpoint_dir: str | None) -> None:
            assert checkpoint_dir is not None
            self._crew.adopt(Path(checkpoint_dir) / "checkpoint.pt")

    TuneTrial.__name__ = TuneTrial.__qualname__ = name
    return TuneTrial


class Best:
    """The best score of a trial so far, which Tune compares."""

    def __init__(self, shared: Setup) -> None:
        self._shared, self._phase, self._score = shared, "", WORST

    def of(self, epoch: Epoch) -> float:
        """Return the best score after this epoch; a new phase counts from its first evaluation on, and alone."""
        if epoch.val:
            shared = self._shared
            value = _number(score_of(epoch.val, shared.main, shared.directions, shared.metric, shared.lowest))
            self._score = value if epoch.phase != self._phase else max(self._score, value)
            self._phase = epoch.phase
        return self._score


def _number(score: Score | None) -> float:
    """Return a score as Tune takes it: a number, and one that is finite."""
    return WORST if score is None else max(WORST, score[0])


def execute_tune(
    search: SearchSpec,
    shared: Setup,
    done: Sequence[RunRecord],
    remaining: int,
    slots: int,
    folder: Path,
) -> Iterator[tuple[Run, Event]]:
    """Run the trials that are left of a search, `slots` at once, and yield the events of each.

    `done` are the records of its trials that are over; `folder` is for Tune's own files; searches that run side by side
    differ in its name.

    Raises:
        UserError: If Tune ends early, or no trial gets a worker.
    """
    from ray import tune

    resources = shared.options.resources
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")  # the state of all trials, which nobody reads here

    events: _Events = queue.Queue()
    callback = _Recorder(shared, search, events)
    begun = _started_trials(shared, done)
    algorithm = _algorithm(search, shared, done, begun, remaining)
    shutil.rmtree(folder, ignore_errors=True)

    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(_trainable(f"Trial_{folder.name}"), shared=shared),
            tune.PlacementGroupFactory(bundles(shared.options)),
        ),
        param_space={} if search.algorithm in ("optuna", "nsga2") else domains(shared.space),
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=algorithm,
            scheduler=_scheduler(search, shared),
            num_samples=remaining,
            max_concurrent_trials=None if search.scheduler == "pbt" else slots,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            verbose=0,
            callbacks=[callback.as_callback()],
            stop=_stop_where_asked(stop_file(folder)),
            failure_config=tune.FailureConfig(max_failures=resources.max_failures),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=3),
        ),
    )

    try:
        error = yield from _fit(tuner, events, callback, stop_file(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if error is not None:
        raise UserError(f"Ray Tune ended early: {str(error).strip().splitlines()[-1]}") from error


def stop_file(folder: Path) -> Path:
    """Return the file that ends the search with this folder, once it is there."""
    return folder.with_name(f"{folder.name}.stop")


def _stop_where_asked(path: Path) -> Any:
    """Return what ends all trials once a file is there: Tune then gives back the places that it reserved."""
    from ray.tune import Stopper

    class StopWhereAsked(Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return path.exists()

    return StopWhereAsked()


def _fit(
    tuner: Any, events: _Events, recorder: _Recorder, stop: Path
) -> Generator[tuple[Run, Event], None, BaseException | None]:
    """Run the tuner in a thread, yield the events that its callbacks put, and return the error that ended it.

    Raises:
        UserError: If no trial has had a worker for longer than `start_minutes` allow; Tune is stopped by the file.
    """
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            tuner.fit()
        except BaseException as error:
            errors.append(error)
        finally:
            events.put(None)

    thread = threading.Thread(target=fit, name="ray-tune", daemon=True)
    thread.start()

    base, timeout = recorder.shared.base, StartTimeout(recorder.shared.options.resources)
    over = False
    while not over:
        event = None
        with contextlib.suppress(queue.Empty):
            event = events.get(timeout=_LOOK_SECONDS)
            over = event is None
        if event is not None:
            yield event

        for note in timeout.note(base.run_id, up=over or event is not None or bool(recorder.running)):
            yield base, note
        if timeout.failure is not None:
            stop.touch()

    thread.join()
    if timeout.failure is not None:
        raise UserError(timeout.failure)
    return errors[0] if errors else None


_Events = queue.Queue[tuple[Run, Event] | None]  # None: the search is over


class _Recorder:
    """Translator of Tune's callbacks into records: a trial's own, or of a trial cut short what it had."""

    def __init__(self, shared: Setup, search: SearchSpec, events: _Events) -> None:
        self.shared, self._search, self._events = shared, search, events
        self.running: set[str] = set()  # ids of trials that have a worker
        self._epochs: dict[str, dict[int, Epoch]] = {}  # by trial, then by how many epochs are over with it
        self._ended: set[str] = set()
        self._dumped: dict[str, int] = {}  # bytes of a trial's thread dumps that have been told of

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks to a file, which nobody reads here

    def __deepcopy__(self, memo: dict[int, Any]) -> _Recorder:
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

    def _start(self, trial: Any) -> None:
        self.running.add(trial.trial_id)
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
        notes, record, text = (result.pop(name, None) for name in ("notes", "record", "epoch"))
        for note in notes or ():
            self._events.put((run, Noted(run.run_id, note)))

        if record is not None:
            ended = RunRecord.model_validate_json(record)
            result["objectives"] = to_minimise(ended, self._search.objectives)  # what a searcher learns of a trial
            self._put(trial, run, ended)
        elif text is not None:
            epoch = Epoch.model_validate_json(text)
            self._epochs.setdefault(trial.trial_id, {})[run.epochs_behind(epoch.phase, epoch.epoch)] = epoch
            self._events.put((run, EpochEnded(run.run_id, epoch)))

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
            self._events.put((run, Noted(run.run_id, f"{hung}; it is tried again")))

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
        if trial.trial_id not in self._ended:
            self._ended.add(trial.trial_id)
            self._epochs.pop(trial.trial_id, None)
            self._events.put((run, RunEnded(run.run_id, record)))


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


def _started_trials(shared: Setup, done: Sequence[RunRecord]) -> list[Knobs]:
    """Return the settings of trials that had begun when an earlier sweep was cut off."""
    finished = {json.dumps(record.trial, sort_keys=True) for record in done}
    settings_by_key: dict[str, Knobs] = {}

    with contextlib.suppress(OSError):
        for line in shared.journal.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                key = json.dumps(entry["trial"], sort_keys=True)
                same_search = entry["method"] == shared.base.method and entry["dataset"] == shared.base.dataset
                if same_search and key not in finished and set(entry["trial"]) == set(shared.space):
                    settings_by_key[key] = entry["trial"]
    return list(settings_by_key.values())


def _algorithm(
    search: SearchSpec, shared: Setup, done: Sequence[RunRecord], started: list[Knobs], remaining: int
) -> Any:
    if search.algorithm == "optuna":
        import optuna
        from ray.tune.search.optuna import OptunaSearch

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        searcher = OptunaSearch(
            distributions(shared.space, shared.integer_knobs),
            metric="score",
            mode="max",
            seed=search.seed + len(done),
            points_to_evaluate=[shared.settings(knobs) for knobs in started][:remaining] or None,
        )
        for record in done:
            searcher.add_evaluated_point(shared.settings(record.trial), _number(score(record, shared.metric)))
        return searcher

    for make in extensions("search_algorithm"):
        if (searcher := make(search, shared, done)) is not None:
            return searcher
    if search.algorithm == "nsga2":
        raise UserError("search algorithm nsga2 needs the family mtlscale.nas, which is not installed")

    from ray.tune.search import BasicVariantGenerator

    finished = {json.dumps(record.trial, sort_keys=True) for record in done}
    drawn = [run.trial for run in trials(search, shared.base)]
    untried = [knobs for knobs in drawn if json.dumps(knobs, sort_keys=True) not in finished]
    return BasicVariantGenerator(points_to_evaluate=[shared.settings(knobs) for knobs in untried][:remaining])


def _scheduler(search: SearchSpec, shared: Setup) -> Any:
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, PopulationBasedTraining

    epochs = shared.base.epochs
    if search.scheduler == "asha":
        # One more step than epochs: the last one hands in the record.
        return ASHAScheduler("training_iteration", max_t=epochs + 1, grace_period=min(search.grace, epochs))

    if search.scheduler == "median":
        return MedianStoppingRule("training_iteration", grace_period=search.grace)

    if search.scheduler == "pbt":
        mutated = {
            path: domain
            for path, domain in domains(shared.space).items()
            if moves(path, shared.space[path], shared.integer_knobs[path])
        }

        if not mutated:
            raise UserError(f"search.scheduler pbt: {shared.base.method} has no numbers to change while it trains")
        return PopulationBasedTraining(
            "training_iteration", perturbation_interval=search.interval, hyperparam_mutations=mutated
        )

    return FIFOScheduler()


def setup_of(
    base: Run, search: SearchSpec, data: Path, suite: TaskSuite, runs: Path, journal: Path, options: Options
) -> Setup:
    """Return the settings that the trials of a base share."""
    loss = search.metric is None and base.training.selection == "loss"
    space = space_of(search, base)

    return Setup(
        base=base,
        data=data,
        runs=runs,
        journal=journal,
        space=space,
        integer_knobs={path: whole_number(base, path) for path in space},
        metric="loss" if loss else search.metric,
        main={task.name: task.metrics[0] for task in suite.tasks},
        plugins=tuple(sources(options.plugins)),
        options=options,
        scheduler=search.scheduler,
    )
