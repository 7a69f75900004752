"""Repetition of a run, apart from everything it has left, to compare the results."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mtlscale.config import PARTS, Experiment, ResourceSpec, Run, UserError, names
from mtlscale.data.readers.prepared import MANIFEST, Manifest, read_manifest
from mtlscale.execution.cluster import cluster
from mtlscale.execution.jobs_of_plan import job_of
from mtlscale.execution.planning.plan import Datasets, Plan
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.execution.workers.executor import execute_jobs, start_of
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import setup
from mtlscale.records import Board, Epoch, Home, Ledger, RunRecord, check_folder
from mtlscale.records.events import EpochEnded, Noted, RunEnded, RunEvent
from mtlscale.records.reproduction import Reproduction

# Keys of a data set's part of a spec that are no options.
_NON_OPTION_KEYS = ("name", "task_metrics", "only_tasks", "label_noise", "train_share", "evaluation")
_THREADS = re.compile(r"CPU, (\d+) thread")


def rerun(
    record: RunRecord,
    home: Home,
    *,
    source: Path | None = None,
    download: bool = True,
    keep_model: bool = False,
    epoch: Callable[[Epoch], None] = lambda epoch: None,
    note: Callable[[str], None] = lambda text: None,
) -> tuple[Reproduction, Path | None]:
    """Repeat a run; return the comparison with it, and the folder of the repetition, None if both are the same.

    The repetition has the same spec, data, threads and number of workers, and does every phase anew. `epoch` and `note`
    are called with its epochs and notes. If both are the same, the folder of the repetition is removed; with
    `keep_model` its model and what its phases found go where the run would have left them.

    Raises:
        UserError: If the run's data are gone, or it names what this installation does not know.
    """
    if record.status == "failed":
        raise UserError(f"run {record.run_id} failed ({record.error}); `mtlscale run` of its experiment tries it again")
    check_folder(home.root)
    _check_plugins(record)

    run = record.as_run()
    for text in _changed(run, record):
        note(text)

    data = data_of(record, home, source, download=download)
    manifest, folder = read_manifest(data), home.root / "reruns" / record.run_id
    (folder / "record.json").unlink(missing_ok=True)  # of an earlier repetition; a checkpoint is gone on from
    options = Options(_resources(record), models=keep_model)
    job = _job(run, data, manifest, folder, options)

    after: RunRecord | None = None
    for event in _events(job, options, home, note):
        match event:
            case EpochEnded(_, ended_epoch):
                epoch(ended_epoch)
            case Noted(_, text):
                note(text)
            case RunEnded(_, ended):
                after = ended

    assert after is not None
    if after.status == "failed":
        raise UserError(f"run {record.run_id} cannot be run again: {after.error}; the traceback is in {folder}")

    again = Reproduction(record, after)
    if again.same:
        if keep_model:
            _hand_back(folder, home.run(record.run_id), home.phases)
        shutil.rmtree(folder, ignore_errors=True)
        return again, None
    return again, folder


def _check_plugins(record: RunRecord) -> None:
    """Raise `UserError` if the run was made with a plugin's component that is not loaded."""
    for part, kind in PARTS.items():
        entry = record.spec.get(part.removeprefix("model."))
        if entry and "plugin" in entry and entry["name"] not in names(kind):
            raise UserError(
                f"run {record.run_id} was made with the {kind[:-1]} {entry['name']} of a plugin, whose file is not "
                "known here; name it: --plugin FILE"
            )


def _hand_back(folder: Path, run: Path, phases: Path) -> None:
    """Move files of a repetition that the run has lost or never kept to the run's places."""
    moves = [(folder / "model.pt", run / "model.pt")]
    moves += [(path, phases / path.name) for path in sorted((folder / "phases").glob("*.pt"))]
    for path, target in moves:
        if path.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)  # the same parameters as those that may be damaged there


def _changed(run: Run, record: RunRecord) -> Iterator[str]:
    """Yield the run's components that have another version now."""
    current_spec = run.parts.plain()
    for part in ("architecture", "balancer", "objective", "encoder"):
        before, after = run.spec[part], current_spec[part]
        if before is None:
            continue
        for key, description in (("results_version", "results version"), ("plugin", "file's hash")):
            if before.get(key) != after.get(key):
                yield f"{part} {before['name']}: {description} {before.get(key)}, now {after.get(key)}"
    if run.run_id != record.run_id:
        yield "the results version of training is another one now"


def data_of(record: RunRecord, home: Home, source: Path | None, *, download: bool) -> Path:
    """Return the folder of the prepared data that the run was trained on.

    They are prepared again if they are gone and their raw files are not.
    """
    expected, dataset_spec = record.fingerprint.partition("+")[0], record.spec["dataset"]
    name = str(dataset_spec["name"])
    for path in sorted((home.root / "data" / name).glob(f"[!.]*/{MANIFEST}")):
        prepared_folder: Path = path.parent
        if read_manifest(prepared_folder).fingerprint == expected:
            return prepared_folder

    options = {key: value for key, value in dataset_spec.items() if key not in _NON_OPTION_KEYS}
    try:
        folder = prepare(name, options, source, home.root, download=download)
    except UserError as error:
        raise UserError(f"the data of run {record.run_id} are gone: {error}") from None

    fingerprint = read_manifest(folder).fingerprint
    if fingerprint != expected:
        raise UserError(
            f"the data of run {record.run_id} are gone, and {name} is prepared otherwise now (fingerprint "
            f"{fingerprint[:12]}, then {expected[:12]}); name by --source what it was prepared from"
        )
    return folder


def _resources(record: RunRecord) -> ResourceSpec:
    """Return the run's resources, as far as its record says: threads change the last digits."""
    threads = _THREADS.search(record.hardware)
    return ResourceSpec(
        workers=record.workers,
        cpus_per_worker=int(threads[1]) if threads else 1,
        gpus_per_worker=0 if threads or not record.hardware else 1,
        max_failures=0,
    )


def _job(run: Run, data: Path, manifest: Manifest, folder: Path, options: Options) -> Job | Batched:
    """Return the job as an experiment of these resources would choose it."""
    experiment = Experiment.model_construct(name=run.experiment, datasets=(), methods=(), resources=options.resources)
    plan = Plan(experiment, Board((), Ledger(folder / "none")), Datasets({run.data: data}, {run.data: manifest}))
    chosen = job_of(run, plan, Home(folder.parents[1]))
    job = Job(run, data, folder)
    return Batched((job,)) if isinstance(chosen, Batched) else job


def _events(job: Job | Batched, options: Options, home: Home, note: Callable[[str], None]) -> Iterator[RunEvent]:
    """Yield the events of the run, in this process if it has one worker: that spares the start of Ray."""
    if options.resources.workers == 1:
        setup(options.threads, ())
        yield from execute(job, options)
        return
    cluster.check_fits(options.resources)
    with cluster.session(note=note):
        workers = start_of(options, home, job.jobs[0].run.experiment)
        yield from execute_jobs([job], cluster.slots(options.resources, 1), options, workers)
