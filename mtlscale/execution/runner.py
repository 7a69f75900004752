"""Driver of an experiment, from its file to its leaderboard: prepare, search, plan, execute, record, track, report."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from mtlscale.config import Experiment, Run, loaded, without_secrets
from mtlscale.data import read_manifest
from mtlscale.data.quality_warnings import left_out, remarks
from mtlscale.data.remote import publish
from mtlscale.execution.cluster import cluster
from mtlscale.execution.cluster.client import check_client
from mtlscale.execution.events import Advanced, EpochEnded, Event, Noted, RunEnded
from mtlscale.execution.finding.own_records import own_entries, own_records
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.monitoring import Meters, log, log_ended, log_noted, structured_log
from mtlscale.execution.observer import Observer, Silent
from mtlscale.execution.ownership import Owner, driving
from mtlscale.execution.planning.check import check_goes_together, weight_notes
from mtlscale.execution.planning.plan import MANY, Datasets, Plan, PlannedRun, labelled, light, make_plan
from mtlscale.execution.planning.reader_report import reading
from mtlscale.execution.planning.status import PlanEntry, write_plan
from mtlscale.execution.preparing.prepare import fetch_prepared
from mtlscale.execution.preparing.prepare import prepare as prepare_dataset
from mtlscale.execution.preparing.shared_home_check import check_shared
from mtlscale.execution.stopping import Counts
from mtlscale.execution.summary_rows import rows_of
from mtlscale.execution.tuning.sweep import SweepPlan, execute_sweep, plan_sweep
from mtlscale.execution.workers.dispatch import execute_jobs
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.worker import failed
from mtlscale.records import (
    Home,
    Ledger,
    RunRecord,
    Storage,
    check_folder,
    is_full,
    ledgers_of,
    new_folders,
    restore,
    supplement,
)
from mtlscale.report.cells.number_format import counted
from mtlscale.report.results import Results
from mtlscale.report.sweeps.sweeps import Sweep
from mtlscale.tracking import Row, Trackers, lacking

T = TypeVar("T")
_NAMED = 5  # of the runs that a storage lacks
_STOP_SECONDS = 8.0  # that MLflow has for the last word of an experiment that was told to stop


def plan(
    experiment: Experiment,
    *,
    home: Home | Path | None = None,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    data: Datasets | None = None,
) -> Plan | SweepPlan:
    """Prepare what is not prepared yet, and say of every run whether it is done, to be resumed, or new.

    For an experiment with a search the same is said of its trials: the runs depend on what they find.

    Args:
        experiment: The experiment.
        home: The home folder.
        source: Where the raw data are, if they have to be prepared.
        address: A Ray cluster, which is asked whether a run fits.
        download: Fetch raw data that are not found.
        data: The prepared data, if nothing should be prepared.

    Raises:
        UserError: For everything that a run would be refused for.
    """
    home = _home(home)
    if home.storage is not None:
        Storage(home.storage).check()

    cluster.check_fits(experiment.resources, address)
    data = data or prepare_data(experiment, home, source, download, Silent())

    if experiment.search is not None:
        return plan_sweep(experiment, home, data)
    return plan_runs(experiment, list(experiment.runs(data.fingerprints)), home, data)


def run(
    experiment: Experiment | Path | str,
    *,
    home: Home | Path | str | None = None,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    observer: Observer | None = None,
    wait: bool = True,
    full_experiment: Experiment | None = None,
) -> Results:
    """Run what is not done yet and return all results; with a search, tune first and train the winners.

    A run that fails is recorded with its cause and the others go on; one that was cut off resumes from its last
    checkpoint.

    Args:
        experiment: The experiment, its file, or the name of a shipped one.
        home: The home folder.
        source: Where the raw data are, if they have to be prepared.
        address: A Ray cluster to join; default is $RAY_ADDRESS, or a local Ray for the time.
        download: Fetch raw data that are not found.
        observer: Whoever watches.
        wait: Where another process runs the experiment in this home, watch it and go on with what it leaves.
        full_experiment: The experiment that this one is a part of; its other finished runs belong to the results, too.

    Raises:
        UserError: For what can be known before anything starts, including another process if `wait` is False.
        Interrupted: A KeyboardInterrupt, when Ctrl-C or SIGTERM has ended it.
    """
    check_client()
    experiment, home, observer = loaded(experiment), _home(home), observer or Silent()
    _check(experiment, home, address)

    with (
        Counts() as counts,
        new_folders(home.root / "experiments"),
        driving(experiment.name, home, observer, wait=wait) as owner,
    ):
        data = prepare_data(experiment, home, source, download, observer)
        with _Services(experiment, home, address, observer, owner, counts) as services:
            results = _run(experiment, home, data, services, full_experiment or experiment)
            services.complete_copies()
            return results


def _run(
    experiment: Experiment, home: Home, data: Datasets, services: _Services, full_experiment: Experiment
) -> Results:
    search_result = None if experiment.search is None else _search(experiment, home, data, services)
    winners, hopeless = ({}, {}) if search_result is None else (search_result.winners(), search_result.hopeless())
    runs = list(experiment.runs(data.fingerprints, winners))

    the_plan = plan_runs(experiment, runs, home, data)
    _note_plan(the_plan, home, full_experiment, services.observer)

    ledger = Ledger(home.ledger(experiment.name))
    run_of = {planned.run.run_id: planned.run for planned in the_plan.runs if planned.state != "same"}
    for record in the_plan.unlisted():
        ledger.append(record)  # finished in another experiment, or just before a crash
        services.track()
        if services.tracker is not None:  # MLflow may have it as begun
            services.tracker.finished(run_of[record.run_id], record, home.run(record.run_id))

    records = the_plan.records()
    services.counts.begin(records, the_plan.distinct)

    def ended() -> tuple[RunRecord, ...]:
        records_and_runs = ((records.get(planned.run.run_id), planned.run) for planned in the_plan.runs)
        return tuple(labelled(record, run) for record, run in records_and_runs if record is not None)

    services.table = lambda: rows_of(Results(experiment, ended(), home.experiment(experiment.name), search_result))
    if the_plan.todo:
        services.start()
        _execute(the_plan, home, ledger, records, services, hopeless)
    else:
        services.observer.planned(the_plan, 0)

    # Every planned run has its record by now.
    full = None if full_experiment is experiment else own_records(full_experiment, home, prepared=data.fingerprints)
    results = Results(
        full_experiment,
        ended() if full is None else full.records,
        home.experiment(experiment.name),
        search_result,
        {} if full is None else full.unsettled,
    )

    reports = {**results.write_report(), **({} if search_result is None else search_result.write_report())}
    services.artefacts = list(reports.values())
    return results


def _note_plan(the_plan: Plan, home: Home, full_experiment: Experiment, observer: Observer) -> None:
    """Write down which runs the experiment consists of now, including rows of the file that are not run this time."""
    if full_experiment is the_plan.experiment:
        runs = (planned.run for planned in the_plan.runs)
        entries = [PlanEntry(run.run_id, run.dataset, run.method, run.seed) for run in runs]
    else:
        fingerprints = Datasets(the_plan.folders, the_plan.manifests).fingerprints
        entries = own_entries(full_experiment, home, fingerprints)

    listed = {run_id for run_id, _, _ in Ledger(home.ledger(full_experiment.name)).outcomes()}
    if listed and listed.isdisjoint(entry.run_id for entry in entries):
        observer.note(
            f"{full_experiment.name} has {counted(len(listed), 'run')} of other settings or data in {home.root}: of an "
            "earlier version of its file, or of another experiment of that name, which needs another `name`; reports "
            "leave them out"
        )
    data = {folder.name: the_plan.manifests[name].fingerprint for name, folder in the_plan.folders.items()}
    write_plan(home, full_experiment.name, entries, full_experiment.plugins, data)


def sweep(
    experiment: Experiment,
    *,
    home: Home | Path | None = None,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    observer: Observer | None = None,
    wait: bool = True,
) -> Sweep:
    """Run the search of an experiment alone: run the trials that are not done yet and return all of them."""
    home, observer = _home(home), observer or Silent()
    _check(experiment, home, address)

    with (
        Counts() as counts,
        new_folders(home.root / "experiments"),
        driving(experiment.name, home, observer, wait=wait) as owner,
    ):
        data = prepare_data(experiment, home, source, download, observer)
        with _Services(experiment, home, address, observer, owner, counts) as services:
            search_result = _search(experiment, home, data, services)
            services.artefacts = list(search_result.write_report().values())
            services.complete_copies()
            return search_result


def _home(home: Home | Path | str | None) -> Home:
    return home if isinstance(home, Home) else Home.at(None if home is None else Path(home))


def _check(experiment: Experiment, home: Home, address: str | None) -> None:
    """Raise `UserError` before anything is written; a cluster is asked when it is joined."""
    check_folder(home.root)
    if cluster.named(address) is None:
        cluster.check_fits(experiment.resources)


def prepare_data(
    experiment: Experiment, home: Home, source: Path | None, download: bool, observer: Observer
) -> Datasets:
    """Prepare what is not prepared yet; return the data sets of an experiment."""
    datasets, remarked_labels = experiment.data(), set()
    storage = None if home.storage is None else Storage(home.storage, observer.note)

    def folder(name: str) -> Path:
        dataset, seed = datasets[name]
        options = dataclasses.asdict(dataset.build(seed))
        if storage is not None:
            fetch_prepared(dataset.name, options, home.root, storage)

        raw = source or dataset.source
        result = prepare_dataset(dataset.name, options, raw, home.root, download=download, storage=storage)

        if storage is not None:
            publish(storage, result)
        observer.prepared(name, result)
        if dataset.label not in remarked_labels:  # not for each of several splits
            remarked_labels.add(dataset.label)
            for line in remarks(dataset.label, read_manifest(result)):
                observer.note(line)

        return result

    for label, floors in experiment.left_out().items():
        observer.note(left_out(label, floors))

    return Datasets.prepare(experiment, folder)


def plan_runs(experiment: Experiment, runs: Sequence[Run], home: Home, data: Datasets) -> Plan:
    """Plan these runs, including those that finished in another home."""
    if home.storage is not None:
        restore(Storage(home.storage), (home.run(run.run_id) for run in runs))
    the_plan = make_plan(experiment, runs, home.ledger(experiment.name), home, data)
    check_goes_together(the_plan, (planned.run for planned in the_plan.todo))
    return the_plan


class _Services:
    """Ray and MLflow, started when there is something to do, ended with the block."""

    def __init__(
        self, experiment: Experiment, home: Home, address: str | None, observer: Observer, owner: Owner, counts: Counts
    ) -> None:
        self._experiment, self._home, self._address = experiment, home, address
        self.observer, self.owner, self.counts = observer, owner, counts
        self.tracker: Trackers | None = None
        self.artefacts: list[Path] = []
        self.table: Callable[[], list[Row]] = list  # what the leaderboard says now
        self._stack = contextlib.ExitStack()

    def track(self) -> None:
        """Start MLflow and the sinks beside it alone."""
        settings = self._experiment.tracking
        if self.tracker is None and (settings.enabled or settings.also):
            cluster.named(self._address)  # before MLflow's database is made
            self.tracker = Trackers(self._experiment, self._home, self.observer.note, lambda: self.table())

    def start(self) -> None:
        """Start the services unless they run already; raise `UserError` if one does not answer."""
        self.track()
        self._stack.enter_context(cluster.session(self._address, self.observer.note))
        cluster.slots(self._experiment.resources, 1)  # refuses what fits nowhere, before any node is asked
        search = self._experiment.search
        if self._home.storage is None or (search is not None and search.adaptive):  # Tune's own files need the home
            check_shared(self._home.root)

    def complete_copies(self) -> None:
        """Write what MLflow and the storage lack of the runs that have ended: both may have been away before."""
        experiment, home = self._experiment, self._home
        if experiment.tracking.enabled and self.tracker is None and lacking(experiment, home):
            self.track()  # and write it when this ends
        if home.storage is not None:
            outcomes = {
                run_id: status for ledger in ledgers_of(experiment, home) for run_id, status, _ in ledger.outcomes()
            }
            run_ids = {run_id for run_id, status in outcomes.items() if status != "failed"}
            lost = supplement(Storage(home.storage, self.observer.note), map(home.run, sorted(run_ids)))
            if lost:
                named = ", ".join(lost[:_NAMED]) + ("" if len(lost) <= _NAMED else ", …")
                url = without_secrets(home.storage)
                self.observer.note(f"{len(lost)} of {len(run_ids)} runs are neither in {url} nor in this home: {named}")

    def checked(self, events: Iterator[T]) -> Iterator[T]:
        """Yield the workers' events as long as this process should go on; their generator ends with it."""
        with contextlib.closing(events):  # type: ignore[type-var]
            for event in events:
                yield event
                self.owner.check()

    def __enter__(self) -> _Services:
        self._stack.enter_context(structured_log(self._home, self._experiment.name))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._stack.close()
        if self.tracker is not None:
            if isinstance(error, KeyboardInterrupt | SystemExit) or is_full(error):
                self.tracker.close(self.artefacts, "KILLED", seconds=_STOP_SECONDS)
            else:
                self.tracker.close(self.artefacts, "FINISHED" if error is None else "FAILED")


def _search(experiment: Experiment, home: Home, data: Datasets, services: _Services) -> Sweep:
    """Run the trials that are not done, and put every record where it belongs as it comes."""
    the_plan = plan_sweep(experiment, home, data)
    ledger = Ledger(home.trials(experiment.name, the_plan.search.ledger))
    for unlisted_record in the_plan.plan.unlisted():
        ledger.append(unlisted_record)

    records = the_plan.records()
    services.counts.begin(records, the_plan.total, "trials")

    if not the_plan.complete:
        services.start()
        slots = cluster.slots(experiment.resources, the_plan.jobs)
        services.observer.searching(the_plan, slots)
        events = execute_sweep(the_plan, home, slots, services.owner.claimed_jobs)
        for run, event in services.checked(events):
            match event:
                case EpochEnded(_, epoch):
                    services.observer.advanced(run, run.epochs_behind(epoch.phase, epoch.epoch))
                case Advanced(_, number):
                    services.observer.advanced(run, number)
                case Noted(_, text):
                    _note(run, text, services.observer)
                case RunEnded(run_id, record):
                    records[run_id] = record
                    ledger.append(record)
                    log_ended(record)
                    score = the_plan.score(record)
                    services.observer.trial(run, record, score)
                    if services.tracker is not None:
                        services.tracker.trial(run, record, None if score is None else score[0])

    return the_plan.result(records, home.experiment(experiment.name))


def _note(run: Run, text: str, observer: Observer) -> None:
    log_noted(run, text)
    observer.note(f"{run.dataset} · {run.method} · seed {run.seed}: {text}")


def _execute(
    the_plan: Plan,
    home: Home,
    ledger: Ledger,
    records: dict[str, RunRecord],
    services: _Services,
    hopeless: Mapping[tuple[str, str], str],
) -> None:
    """Run what is to do, and put every record where it belongs; runs of a `hopeless` search fail."""
    experiment, observer, tracker = the_plan.experiment, services.observer, services.tracker
    todo = {planned.run.run_id: planned for planned in the_plan.todo}
    jobs = jobs_of([p for p in todo.values() if (p.run.dataset, p.run.method) not in hopeless], the_plan, home)

    options = Options(
        experiment.resources,
        tuple(str(Path(plugin).absolute()) for plugin in experiment.plugins),
        experiment.tracking.models,
        home.storage,
        home.phases,
    )

    meters = Meters(experiment.name, the_plan.distinct, len(records))
    recorder = Recorder(todo, home, ledger, records, observer, tracker, meters)

    slots = cluster.slots(experiment.resources, len(jobs))
    observer.planned(the_plan, slots)
    for line in weight_notes(planned.run for planned in the_plan.todo):
        observer.note(line)
    for name, text in reading(the_plan):
        log.info("data", extra={"dataset": name, "text": text})

    def execute(some: Sequence[Job | Batched]) -> Iterator[Event]:
        return execute_jobs(some, slots, options, home)

    for event in services.checked(_untrained(the_plan.todo, hopeless)):
        recorder.take(event)
    for event in services.checked(services.owner.claimed_jobs(jobs, execute)):
        recorder.take(event)


class Recorder:
    """Sink of the workers' events: the ledger first, then the observer and MLflow."""

    def __init__(
        self,
        todo: Mapping[str, PlannedRun],
        home: Home,
        ledger: Ledger,
        records: dict[str, RunRecord],
        observer: Observer,
        tracker: Trackers | None = None,
        meters: Meters | None = None,
    ) -> None:
        self._todo, self._home, self._ledger, self._records = todo, home, ledger, records
        self._observer, self._tracker, self._meters = observer, tracker, meters

        self._started_ids: set[str] = set()

    def take(self, event: Event) -> None:
        match event:
            case Advanced(run_ids, epoch):
                for run in map(self._started_run, run_ids):
                    self._observer.advanced(run, epoch)
            case Noted(run_id, text):
                _note(self._started_run(run_id), text, self._observer)
            case EpochEnded(run_id, epoch):
                run = self._started_run(run_id)
                self._observer.epoch(run, epoch)
                if self._tracker is not None:
                    self._tracker.epoch(run, epoch)
            case RunEnded(run_id, record):
                self._ended(self._started_run(run_id), record)

    def _started_run(self, run_id: str) -> Run:
        """Return the run; tell MLflow of it the first time it is heard of."""
        run = self._todo[run_id].run
        if self._tracker is not None and run_id not in self._started_ids:
            self._tracker.started(run)
        self._started_ids.add(run_id)
        return run

    def _ended(self, run: Run, record: RunRecord) -> None:
        self._records[run.run_id] = record if len(self._todo) <= MANY else light(record)
        self._ledger.append(record)
        log_ended(record)
        if self._meters is not None:
            self._meters.ended(record)
        self._observer.finished(run, record)
        if self._tracker is not None:
            self._tracker.finished(run, record, self._home.run(run.run_id))


def _untrained(todo: Iterable[PlannedRun], hopeless: Mapping[tuple[str, str], str]) -> Iterator[Event]:
    """Yield failed records of methods none of whose trials finished: there is no winner to train."""
    for planned in todo:
        cause = hopeless.get((planned.run.dataset, planned.run.method))
        if cause is not None:
            yield RunEnded(planned.run.run_id, failed(planned.run, cause))
