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
from pathlib import Path
from typing import Any

from mtlscale.config import Knobs, SearchSpec, UserError, belongs, extensions, trials
from mtlscale.execution.faults.failures import StartTimeout
from mtlscale.execution.tuning.tune_recorder import Events, TrialRecorder
from mtlscale.execution.tuning.tune_setup import Setup
from mtlscale.execution.tuning.tune_space import distributions, domains, moves, unrepeated_search
from mtlscale.execution.tuning.tune_trial import finite, trainable
from mtlscale.execution.tuning.tune_workers import bundles
from mtlscale.records import RunRecord, score
from mtlscale.records.events import RunBegun, RunEvent

_LOOK_SECONDS = 5.0  # between two looks whether any trial has a worker


def execute_tune(
    search: SearchSpec,
    shared: Setup,
    done: Sequence[RunRecord],
    remaining: int,
    slots: int,
    folder: Path,
) -> Iterator[RunEvent | RunBegun]:
    """Run the trials that are left of a search, `slots` at once, and yield the events of each.

    `done` are the records of its trials that are over; `folder` is for Tune's own files; searches that run side by side
    differ in its name.

    Raises:
        UserError: If Tune ends early, or no trial gets a worker.
    """
    from ray import tune

    resources = shared.options.resources
    quiet_tune()
    events: Events = queue.Queue()
    callback = TrialRecorder(shared, search, events)
    algorithm = _algorithm(search, shared, done, _started_trials(search, shared, done), remaining)
    shutil.rmtree(folder, ignore_errors=True)

    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(trainable(f"Trial_{folder.name}"), shared=shared),
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
            stop=stop_where_asked(stop_file(folder)),
            failure_config=tune.FailureConfig(max_failures=resources.max_failures),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=3),
        ),
    )

    error = yield from _fit(tuner, events, callback, stop_file(folder))
    shutil.rmtree(folder, ignore_errors=True)
    if error:
        raise UserError(error)


def quiet_tune() -> None:
    """Keep Tune from printing, and from writing the state of all trials again and again, which nobody reads here."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "inf")


def stop_file(folder: Path) -> Path:
    """Return the file that ends the search with this folder, once it is there."""
    return folder.with_name(f"{folder.name}.stop")


def stop_where_asked(path: Path) -> Any:
    """Return what ends all trials once a file is there: Tune then gives back the places that it reserved."""
    from ray.tune import Stopper

    class StopWhereAsked(Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return path.exists()

    return StopWhereAsked()


def _fit(tuner: Any, events: Events, recorder: TrialRecorder, stop: Path) -> Generator[RunEvent | RunBegun, None, str]:
    """Run the tuner in a thread, yield what its callbacks put, and return why it ended early, if it did."""
    # Where no trial has had a worker for longer than `start_minutes` allow, the file `stop` ends Tune.
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

        yield from timeout.note(base.run_id, up=over or event is not None or bool(recorder.running))
        if timeout.failure is not None:
            stop.touch()

    thread.join()
    if timeout.failure is not None:
        return timeout.failure
    text = "".join(str(error).strip() or type(error).__name__ for error in errors)
    return f"Ray Tune ended early: {text.splitlines()[-1]}" if errors else ""


def _started_trials(search: SearchSpec, shared: Setup, done: Sequence[RunRecord]) -> list[Knobs]:
    """Return the settings of trials that had begun when an earlier sweep was cut off."""
    finished = {json.dumps(record.trial, sort_keys=True) for record in done}
    settings_by_key: dict[str, Knobs] = {}

    with contextlib.suppress(OSError):
        for line in shared.journal.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                key = json.dumps(entry["trial"], sort_keys=True)
                same_search = entry["method"] == shared.base.method and entry["dataset"] == shared.base.dataset
                if same_search and key not in finished and belongs(search, shared.base, entry["trial"]):
                    settings_by_key[key] = entry["trial"]
    return list(settings_by_key.values())


def _algorithm(
    search: SearchSpec, shared: Setup, done: Sequence[RunRecord], started: list[Knobs], remaining: int
) -> Any:
    if search.algorithm == "optuna":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        searcher = unrepeated_search(shared, done)(
            distributions(shared.space, shared.integer_knobs),
            metric="score",
            mode="max",
            seed=search.seed + len(done),
            points_to_evaluate=[shared.settings(knobs) for knobs in started][:remaining] or None,
        )
        for record in done:
            searcher.add_evaluated_point(shared.settings(record.trial), finite(score(record, shared.metric)))
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
