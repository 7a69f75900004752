"""What runs inside a Ray worker: one run at a time, its epochs and its record as a stream of events."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtlscale.components import UserError, load_plugin
from mtlscale.execution.allocator import keep_freed_memory
from mtlscale.experiment import Run
from mtlscale.ledger import Epoch, RunRecord, write_atomically
from mtlscale.storage import Storage

if TYPE_CHECKING:
    from mtlscale.data.prepared import PreparedData
    from mtlscale.training.loop import Trainer

# What a run says while it goes on: its epochs, then its record. Runs of a stack: now and then how many epochs they have
# behind them, then their records.
Event = (
    tuple[Literal["epoch"], str, Epoch]
    | tuple[Literal["record"], str, RunRecord]
    | tuple[Literal["progress"], tuple[str, ...], int]
)

Plugin = tuple[str, str]  # the path of its file where the driver runs, and its text

_PROGRESS_SECONDS = 0.5
_DATA: dict[str, PreparedData] = {}  # the data sets this process has read


def sources(plugins: Iterable[str]) -> list[Plugin]:
    """Plugins as they travel to workers, whose machines may not have the files."""
    return [(plugin, Path(plugin).read_text(encoding="utf-8")) for plugin in plugins]


def setup(threads: int, plugins: Sequence[Plugin]) -> None:
    """Once per worker process: threads, the allocator, and the user's own components."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(max(1, threads))
    for name, source in plugins:
        path = Path(name)
        if not path.is_file() or path.read_text(encoding="utf-8") != source:
            path = Path(tempfile.mkdtemp(prefix="mtlscale-")) / path.name
            path.write_text(source, encoding="utf-8")
        load_plugin(path)


def device() -> str:
    """The GPU Ray gave this worker, or the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() and os.environ.get("CUDA_VISIBLE_DEVICES", "all") != "" else "cpu"


def failed(run: Run, error: str) -> RunRecord:
    """The record of a run that could not be finished."""
    return RunRecord(
        run_id=run.run_id,
        experiment=run.experiment,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        status="failed",
        error=error,
        spec=run.spec,
        fingerprint=run.fingerprint,
        higher_is_better={},
        main_metrics={},
        trial=run.trial,
    )


def execute(
    run: Run, data_folder: Path, folder: Path, *, models: bool, use_gpu: bool, storage: str | None = None
) -> Iterator[Event]:
    """Train one run; errors of the run become a failed record with the traceback kept beside it. storage: what this
    node shares with the others, where they have no folder in common."""
    import torch

    from mtlscale.data import Workers
    from mtlscale.training import checkpoint
    from mtlscale.training.loop import Trainer

    workers = Workers.current()
    lead = workers.rank == 0
    shared = None if storage is None else Storage(storage)
    if workers.size == 1 and (found := read_record(folder)) is not None:
        yield ("record", run.run_id, found)  # by a worker that died before it could say so
        return
    try:
        store = (lambda: None) if shared is None else shared.checkpoints(folder)
        trainer = Trainer(
            run,
            _read(data_folder, shared),
            folder=folder,
            workers=workers,
            device=device() if use_gpu else "cpu",
        )
        steps = trainer.train()
        while True:
            try:
                epoch = next(steps)
            except StopIteration as stop:
                record: RunRecord = stop.value
                break
            if lead:
                store()
                yield ("epoch", run.run_id, epoch)
        if lead:
            if models and record.status == "finished":
                checkpoint.save(folder / "model.pt", trainer.chosen_state)
            _draw(trainer, run, folder)
            write_atomically(folder / "record.json", record.model_dump_json().encode())
            (folder / "checkpoint.pt").unlink(missing_ok=True)
            if shared is not None:
                shared.put_results(folder)
    except (torch.distributed.DistError, ConnectionError):
        raise  # another worker died: the group restarts and resumes
    except Exception as error:
        if workers.size > 1 and not isinstance(error, UserError):
            raise  # the other workers wait in a collective; only a restart of the group frees them
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error.txt").write_text(traceback.format_exc())
        record = failed(run, f"{type(error).__name__}: {error}".splitlines()[0])
    if lead:
        yield ("record", run.run_id, record)


def _draw(trainer: Trainer, run: Run, folder: Path) -> None:
    """Predictions beside truth as `pictures.png`, where tasks have maps."""
    found = trainer.pictures()
    if found is None:
        return
    from mtlscale.report.pictures import Maps, picture_figure
    from mtlscale.report.plots import save

    inputs, predictions = found
    maps = []
    for task in trainer.suite.tasks:
        if task.name not in predictions:
            continue
        guess, truth = predictions[task.name]
        if task.loss == "cross_entropy":
            maps.append(Maps(task.name, "classes", guess.argmax(1).numpy(), truth.numpy(), task.classes))
        elif task.loss == "cosine":
            maps.append(Maps(task.name, "normals", guess.double().numpy(), truth.double().numpy()))
        elif task.outputs == 1:
            guess = guess.sigmoid() if task.loss == "bce" else guess
            maps.append(Maps(task.name, "numbers", guess[:, 0].double().numpy(), truth[:, 0].double().numpy()))
    if maps:
        folder.mkdir(parents=True, exist_ok=True)
        title = f"{run.dataset}, {run.method}, seed {run.seed}"
        save(picture_figure(inputs.numpy(), maps, title), folder / "pictures.png")


def execute_stack(
    runs: Sequence[tuple[Run, Path]], data_folder: Path, *, models: bool, use_gpu: bool, storage: str | None = None
) -> Iterator[Event]:
    """Train several runs on the same data as one batched model; an error of the whole stack is each run's."""
    import torch

    from mtlscale.training import checkpoint
    from mtlscale.training.fused import StackTrainer

    folders = {run.run_id: folder for run, folder in runs}
    left = {run.run_id: run for run, _ in runs}
    shared = None if storage is None else Storage(storage)
    try:
        place = torch.device(device() if use_gpu else "cpu")
        data = _read(data_folder, shared)
        trainer = StackTrainer([run for run, _ in runs], data, device=place, keep_states=models)
        told = time.monotonic()
        for event in trainer.train():
            if isinstance(event, int):
                if time.monotonic() - told >= _PROGRESS_SECONDS:
                    told = time.monotonic()
                    yield ("progress", tuple(left), event)
                continue
            run, record = event
            if run.run_id in trainer.states:
                checkpoint.save(folders[run.run_id] / "model.pt", trainer.states.pop(run.run_id))
            write_atomically(folders[run.run_id] / "record.json", record.model_dump_json().encode())
            if shared is not None:
                shared.put_results(folders[run.run_id])
            del left[run.run_id]
            yield ("record", run.run_id, record)
    except Exception as error:
        for run_id, run in left.items():
            folders[run_id].mkdir(parents=True, exist_ok=True)
            (folders[run_id] / "error.txt").write_text(traceback.format_exc())
            yield ("record", run_id, failed(run, f"{type(error).__name__}: {error}".splitlines()[0]))


def _read(folder: Path, storage: Storage | None = None) -> PreparedData:
    """The prepared data, fetched where this node has not got them, and kept for the next run on them."""
    from mtlscale.data.prepared import load_prepared

    if storage is not None and not folder.exists():
        storage.fetch(folder)
    if str(folder) not in _DATA:
        _DATA.clear()
        _DATA[str(folder)] = load_prepared(folder)
    return _DATA[str(folder)]


def read_record(folder: Path) -> RunRecord | None:
    """The record a run left in its folder, if it came to an end."""
    try:
        return RunRecord.model_validate_json((folder / "record.json").read_bytes())
    except (OSError, ValueError):
        return None
