"""Execution of a run, in the same way for warm actors, worker groups, batched trials and Tune.

Read its data, train it, and leave behind what a run leaves, whatever its end:

    <folder>/epochs.jsonl   its epochs, one a line, written as they end
    <folder>/model.pt       parameters of the chosen epoch, where wanted
    <folder>/test_predictions.safetensors   its predictions on test with the labels, likewise, if they are few
    <folder>/pictures.png   predictions beside truth, where tasks have maps
    <folder>/predictions.html   the same of sentences, where tasks have a tag for each token
    <folder>/episodes.png   an episode of each task, where tasks are environments
    <folder>/record.json    written last, of a run that came to its end; its checkpoint goes then
    <folder>/error.txt      the traceback of one that did not
"""

from __future__ import annotations

import contextlib
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import UserError, extensions
from mtlscale.execution.preparing.streaming import RayPieces
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.worker import device, failed, processes_here
from mtlscale.records import (
    EpochFile,
    RunRecord,
    Storage,
    clear_temporaries,
    is_full,
    no_space,
    read_epochs,
    read_record,
    write_atomically,
)
from mtlscale.records.events import Advanced, EpochEnded, Noted, RunEnded, RunEvent

if TYPE_CHECKING:
    from torch import Tensor

    from mtlscale.data import PreparedData
    from mtlscale.training import TaskPredictions, Trainer

_TOLD_SECONDS = 0.5  # between two progress reports of batched runs
_DATA: dict[Path, PreparedData] = {}  # the data sets this process has read


def execute(job: Job | Batched, options: Options) -> Iterator[RunEvent]:
    """Drive a run, or several as one batched model, to the end."""
    if isinstance(job, Batched):
        return execute_batched(job.jobs, options)
    return Trial(job, options).events()


class Trial:
    """Execution of one run on this worker.

    With `resumes` it goes on from the checkpoint and the record in its folder, and keeps its phases for others. A
    member of a population does not: its settings have changed on the way, so nothing it has is what a run with its
    settings would have.
    """

    def __init__(self, job: Job, options: Options, *, resumes: bool = True) -> None:
        from mtlscale.data import Workers

        self.job, self.options, self.resumes = job, options, resumes
        self._workers = Workers.current()
        self._lead = self._workers.rank == 0
        self._trainer: Trainer | None = None
        self._noted: set[str] = set()  # the notes it has yielded

    @property
    def trainer(self) -> Trainer:
        """The trainer, built when first asked for, which reads the data.

        Raises:
            UserError: If the data do not fit the run.
        """
        if self._trainer is None:
            from mtlscale.data.remote import url_of
            from mtlscale.training import Trainer

            storage = self.options.storage
            self._trainer = Trainer(
                self.job.run,
                read_data(self.job.data, _storage(self.options)),
                folder=self.job.folder if self.resumes else None,
                phases=self.options.phases if self.resumes else None,
                workers=self._workers,
                device=device() if self.options.use_gpu else "cpu",
                processes=processes_here(self.options),
                pieces=RayPieces(None if storage is None else url_of(storage, self.job.data)),
            )
            for prepare in extensions("before_training"):
                prepare(self._trainer, self.options)
            if self._trainer.choice.reader != self._trainer.spec.reader and self._trainer.choice.reader != "device":
                self._trainer.notes.append(str(self._trainer.choice))
        return self._trainer

    def events(self) -> Iterator[RunEvent]:
        """Train, and yield notes and epochs as they come, last the record.

        Each of several workers reports its epochs and the end, which come at the same places for all; those of the
        first one count, and it alone has notes.

        An error of the run is a failed record. Raises where another worker is needed to go on, or waits for this one.
        """
        import torch

        run_id = self.job.run.run_id
        known_end = _recorded_end(self.job) if self.resumes and self._workers.size == 1 else None
        if known_end is not None:
            yield known_end
            return

        try:
            trainer, share = self.trainer, self._fetch_shared()
            epoch_log = EpochFile(self.job.folder)
            steps = trainer.train()
            while True:
                try:
                    epoch = next(steps)
                except StopIteration as end:
                    record: RunRecord = end.value
                    break
                if self._lead:
                    with contextlib.suppress(OSError):  # the disk may be full now and not at the end
                        epoch_log.take(trainer.at.epochs)
                    share()
                    yield from self._new_notes()
                yield EpochEnded(run_id, epoch)

            if self._lead:
                yield from self._new_notes()
                self._keep_record(record)
                yield from self._new_notes()
        except (torch.distributed.DistError, ConnectionError):
            raise  # another worker died: the group restarts and resumes
        except Exception as error:
            if self._workers.size > 1 and not isinstance(error, UserError):
                raise  # the other workers wait in a collective; only a restart of the group frees them
            record = fail(self.job, error)
        yield RunEnded(run_id, record)

    def save(self, path: Path) -> None:
        """Save the state that another trial may `adopt`, nothing before the first epoch."""
        if self._trainer is not None:
            self._trainer.save(path)

    def adopt(self, path: Path) -> None:
        """Go on from what another trial has saved, with the settings of this one."""
        self.trainer.adopt(path)

    def _new_notes(self) -> Iterator[Noted]:
        """Yield the trainer's notes, each once."""
        notes = [note for note in dict.fromkeys(self.trainer.notes) if note not in self._noted]
        self.trainer.notes.clear()
        self._noted.update(notes)
        for note in notes:
            yield Noted(self.job.run.run_id, note)

    def _fetch_shared(self) -> Callable[[], None]:
        """Fetch what another node has of this run and its phases; return the function that publishes changes."""
        storage = _storage(self.options)
        if storage is None or not self.resumes:
            return lambda: None
        stores = [storage.checkpoints(self.job.folder)]
        stores += [storage.follow(file, f"phases/{file.name}") for file in self.trainer.phase_files()]

        def share() -> None:
            for store in stores:
                store()

        return share

    def _keep_record(self, record: RunRecord) -> None:
        trainer, folder = self.trainer, self.job.folder
        if record.status == "finished":
            for write in extensions("after_training"):
                write(trainer, folder)

        model = trainer.chosen_state if self.options.models and record.status == "finished" else None
        storage = _storage(self.options) if self.resumes else None
        trainer.notes += keep_record(folder, record, model, storage, trainer.test_predictions)


def execute_batched(jobs: Sequence[Job], options: Options) -> Iterator[RunEvent]:
    """Train several runs on the same data as one batched model; an error of all is each run's."""
    remaining = {job.run.run_id: job for job in jobs}

    for run_id, job in list(remaining.items()):
        if (known_end := _recorded_end(job)) is not None:
            del remaining[run_id]
            yield known_end

    if not remaining:
        return

    try:
        from mtlscale.batched import BatchedTrainer

        storage = _storage(options)
        data = read_data(jobs[0].data, storage)
        target = device() if options.use_gpu else "cpu"
        runs = [job.run for job in remaining.values()]
        if len(runs) == 1 and runs[0].training.seeds_together:
            runs *= 2  # a batch of one takes other kernels: its last digits would depend on what else is trained
        trainer = BatchedTrainer(
            runs,
            data,
            device=target,
            keep_states=options.models,
            processes=processes_here(options),
        )

        reported_at = time.monotonic()
        for event in trainer.train():
            if isinstance(event, int):
                if time.monotonic() - reported_at >= _TOLD_SECONDS:
                    reported_at = time.monotonic()
                    yield Advanced(tuple(remaining), event)
                continue
            run, record = event
            if run.run_id not in remaining:
                continue  # the second of the same run
            folder = remaining.pop(run.run_id).folder
            predictions = trainer.test_predictions.pop(run.run_id, {})
            for note in keep_record(folder, record, trainer.states.pop(run.run_id, None), storage, predictions):
                yield Noted(run.run_id, note)
            yield RunEnded(run.run_id, record)
    except Exception as error:
        for run_id, job in remaining.items():
            yield RunEnded(run_id, fail(job, error))


def _recorded_end(job: Job) -> RunEnded | None:
    """Return the end of a run whose worker died before it could report it, if there is one."""
    record = read_record(job.folder)
    if record is None or record.status == "failed":
        return None
    return RunEnded(job.run.run_id, record.model_copy(update={"epochs": read_epochs(job.folder)}))


def keep_record(
    folder: Path,
    record: RunRecord,
    model: dict[str, Tensor] | None,
    storage: Storage | None,
    predictions: Mapping[str, TaskPredictions] | None = None,
) -> list[str]:
    """Write what a run leaves that came to its end, and publish it.

    Of a failed run the cause is kept, and its checkpoint: it is tried again.

    Returns:
        A remark if it could not be published: the run has ended well, and its results are on this machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if record.status == "failed":
        (folder / "error.txt").write_text(f"{record.error}\n", encoding="utf-8")
        return []

    if model is not None:
        from mtlscale.training.engine import checkpoint

        checkpoint.save(folder / "model.pt", model)
        if predictions:
            from mtlscale.training import write_predictions

            write_predictions(folder, predictions)
    EpochFile(folder).take(record.epochs)
    write_atomically(folder / "record.json", record.model_dump_json().encode())
    for name in ("checkpoint.pt", "error.txt"):  # the error was an earlier attempt's
        (folder / name).unlink(missing_ok=True)

    clear_temporaries(folder)  # of workers that were killed
    if storage is not None:
        try:
            storage.put_results(folder)
        except UserError as error:
            return [f"{error}; its results are in {folder} alone"]
    return []


def fail(job: Job, error: Exception) -> RunRecord:
    """Return the record of a run that an error has ended, in one line; the traceback goes to its folder."""
    with contextlib.suppress(OSError):  # the disk may be full
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "error.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    if isinstance(error, OSError) and is_full(error):
        return failed(job.run, no_space(error, str(job.folder.parents[1])))
    return failed(job.run, f"{_place(error)}{type(error).__name__}: {error}".splitlines()[0])


def _place(error: Exception) -> str:
    """Return the file and line where an error arose, in the user's code if it passed through some; else ""."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(folder) for folder in _NOT_OWN)]
    if isinstance(error, UserError) and not own:
        return ""  # its message says what is wrong, and where
    frame = (own or frames)[-1] if frames else None
    return "" if frame is None else f"{Path(frame.filename).name}:{frame.lineno}: "


# Folders of code that is no user's: this package, its pipelines, and what is installed.
_PACKAGE = Path(__file__).parents[2]
_NOT_OWN = (_PACKAGE, _PACKAGE.parent / "pipelines", *map(Path, {*sysconfig.get_paths().values()}))


def read_data(folder: Path, storage: Storage | None = None) -> PreparedData:
    """Return the prepared data, fetched where this node has not got them, and kept for the next run on them."""
    from mtlscale.data import load_prepared
    from mtlscale.data.remote import fetch

    if storage is not None and not folder.exists():
        fetch(storage, folder)
    if folder not in _DATA:
        _DATA.clear()
        _DATA[folder] = load_prepared(folder)
    return _DATA[folder]


def _storage(options: Options) -> Storage | None:
    return None if options.storage is None else Storage(options.storage)
