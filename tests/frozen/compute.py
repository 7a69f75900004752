"""What a case ends with: the one module here that touches the training engine, to be adapted when that is rebuilt."""

from __future__ import annotations

import functools
import hashlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from checkpoints import WORDS, write_checkpoint
from frozen.cases import Case
from frozen.data import BUILDERS, Data
from torch import Tensor
from two_workers import two_workers

from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.config import Experiment, Run, Task, TaskSuite, named_files
from mtlscale.data import PreparedData, Samples, Workers
from mtlscale.records import RunRecord
from mtlscale.training import Trainer

Result = dict[str, Any]
State = Mapping[str, Tensor]

MANY = 10  # tensors; of networks with more, one number of each is kept instead of three


def compute(case: Case) -> list[Result]:
    """The results of a case that one process computes: of one run, or of every trial of a batch."""
    torch.set_num_threads(1)
    data = in_memory(case)
    if case.flavour == "batched":
        return _batched(trials_of(case), data)
    if case.flavour == "resume":
        return [_resume(run_of(case), data, case.stop)]
    return [_finish(Trainer(run_of(case), data))]


def compute_with_two_workers(cases: Sequence[Case]) -> list[list[Result]]:
    """The results of these cases in a pair of processes."""
    first, second = two_workers(_on_this_worker, list(cases))
    for case, one, other in zip(cases, first, second, strict=True):
        assert str(one) == str(other), f"the workers disagree on {case}"
    return first


def compute_all(cases: Mapping[str, Case]) -> Iterator[tuple[str, list[Result]]]:
    """Name and results of each of these cases."""
    together = [name for name, case in cases.items() if case.flavour == "two workers"]
    for name, case in cases.items():
        if name not in together:
            yield name, compute(case)
    if together:
        yield from zip(together, compute_with_two_workers([cases[name] for name in together]), strict=True)


# -- what is run ---------------------------------------------------------------------------------------------------


def in_memory(case: Case) -> PreparedData:
    """The case's data as the engine reads them, without files."""
    data: Data = BUILDERS[case.data](**case.options)
    tasks = [
        Task(
            name=name,
            loss=loss,
            outputs=outputs,
            metrics=metrics,
            classes=data.tags,
            per="token" if data.tags else "sample",
        )
        for name, (loss, outputs, metrics) in data.tasks.items()
    ]
    suite = TaskSuite(
        name=case.data,
        tasks=tuple(tasks),
        inputs="shared" if data.shared else "per_task",
        input_kind=data.kind,
        input_shape=data.shape,
        vocabulary_size=data.vocabulary,
        categories=data.categories,
        unlabelled=data.unlabelled or data.domains[1:],
        domains=data.domains[:2],
        extras={**data.extras, **(_tokenizer() if _pretrained(case) else {})},
    )
    splits = {
        split: {
            stream: Samples(torch.from_numpy(inputs), {name: torch.from_numpy(t) for name, t in targets.items()})
            for stream, (inputs, targets) in streams.items()
        }
        for split, streams in data.splits.items()
    }
    return PreparedData(Path(), None, suite, splits)  # type: ignore[arg-type]  # training reads no manifest


def run_of(case: Case, seed: int | None = None) -> Run:
    """The run of a case, resolved as experiment files are; the data set named there is never prepared."""
    experiment = Experiment.model_validate(
        {
            "name": "frozen",
            "datasets": [{"name": "digits", "label": "digits", "train": case.share}],
            "methods": [case.method],
            "floors": [],
            "seeds": [case.seed if seed is None else seed],
            "model": {
                "encoder": {**case.encoder, **(_checkpoint() if _pretrained(case) else {})},
                "dropout": case.dropout,
            },
            "training": case.training,
        }
    )
    return next(experiment.runs({"digits": case.data}))


def _pretrained(case: Case) -> bool:
    return bool(case.encoder["name"] in ("pretrained", "pretrained_layers"))


@functools.cache
def _model() -> tempfile.TemporaryDirectory[str]:
    """A folder with a tiny pretrained model, as long as this process."""
    folder = tempfile.TemporaryDirectory()
    write_checkpoint(Path(folder.name))
    return folder


def _checkpoint() -> dict[str, str]:
    return {"checkpoint": _model().name}


def _tokenizer() -> dict[str, Any]:
    """What a set that this model's tokenizer has prepared says of it; the texts need not be its own."""
    told = {"sha256": named_files.tokenizer_hash(Path(_model().name)), "padding": 0, "separator": WORDS.index("[SEP]")}
    return {"tokenizer": told}


def trials_of(case: Case) -> list[Run]:
    """The runs of a batch's trials."""
    return [
        run_of(case, trial.get("seed")).tuned({key: value for key, value in trial.items() if key != "seed"})
        for trial in case.trials
    ]


# -- the engine ----------------------------------------------------------------------------------------------------


def _finish(trainer: Trainer, after: int = 0) -> Result:
    """The end of a run whose first epoch has to be the one after that many of its phase."""
    steps, phase = trainer.train(), ""
    while True:
        try:
            entry = next(steps)
            after = 1 if phase not in ("", entry.phase) else after + 1
            phase = entry.phase
            assert entry.epoch == after
        except StopIteration as stop:
            return described(
                stop.value,
                trainer.model.state_dict(),
                getattr(trainer, "chosen_state", {}),
                {} if trainer.objective is None else trainer.objective.state_dict(),
            )


def _resume(run: Run, data: PreparedData, stop: int) -> Result:
    """A run that ends after `stop` epochs, and one that goes on from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        first = Trainer(run, data, folder=Path(folder))
        list(itertools.islice(first.train(), stop))  # the checkpoint of an epoch is written before it is told
        return _finish(Trainer(run, data, folder=Path(folder)), stop)


class _Batch(BatchedTrainer):
    """Keeps every trial's last parameters, too."""

    def __init__(self, runs: Sequence[Run], data: PreparedData) -> None:
        super().__init__(runs, data, keep_states=True)
        self.lasts: dict[str, dict[str, Tensor]] = {}

    def _finish(self, places: list[int]) -> None:
        for place in places:
            values = [value[place] for value in self.values]
            self.lasts[self.runs[place].run_id] = self.session.layout.state_dict(values)
        super()._finish(places)


def _batched(runs: Sequence[Run], data: PreparedData) -> list[Result]:
    trainer = _Batch(runs, data)
    records = {event[0].run_id: event[1] for event in trainer.train() if not isinstance(event, int)}
    ids = [run.run_id for run in runs]
    return [described(records[id], trainer.lasts.get(id, {}), trainer.states.get(id, {}), {}) for id in ids]


def _on_this_worker(case: Case, workers: Workers) -> list[Result]:
    return [_finish(Trainer(run_of(case), in_memory(case), workers=workers))]


# -- what is kept --------------------------------------------------------------------------------------------------


def described(record: RunRecord, last: State, chosen: State, objective: State) -> Result:
    """A run's end in plain numbers. Times and what else differs from one machine to another is left out."""
    names = list(record.main_metrics)
    weights = [[epoch.weights[name] for name in names if name in epoch.weights] for epoch in record.epochs]
    # A time, and what was not noted when the cases were frozen.
    later = ("data_share", "kappa", "applied_ratio", "moved_ratio", "survival")
    traces = [{key: value for key, value in e.traces.items() if key not in later} for e in record.epochs]
    return {
        "status": record.status,
        "error": record.error,
        "steps": record.steps,
        "samples": record.samples,
        "chosen_epoch": record.chosen_epoch,
        "chosen_epochs": record.chosen_epochs,
        "counters": record.counters,
        "metrics": {**record.metrics, **{f"last {split}": found for split, found in record.last.items()}},
        "evaluated": [epoch.epoch for epoch in record.epochs if epoch.val],
        "losses": [[epoch.train_loss[name] for name in names] for epoch in record.epochs],
        "weights": weights,
        "traces": traces if any(traces) else [],
        "last": summaries(last),
        "chosen": summaries(chosen),
        "objective": summaries(objective),
    }


def summaries(state: State) -> dict[str, list[Any]]:
    """Name -> `summary` of each tensor; those of normalisations, which are many and small, by kind."""
    of_norms = {name.rpartition(".")[0] for name in state if name.endswith(".running_mean")}
    found: dict[str, list[Tensor]] = {}
    for name, tensor in state.items():
        module, _, kind = name.rpartition(".")
        found.setdefault(f"norms.{kind}" if module in of_norms else name, []).append(tensor.detach().cpu())
    first = 3 if len(found) <= MANY else 1
    return {name: summary(torch.cat([v.reshape(-1) for v in parts]), first) for name, parts in found.items()}


def summary(tensor: Tensor, first: int) -> list[Any]:
    """[hash of the bytes, how many numbers, their sum, the sum of their absolute values, the first of them], or of one
    number [hash, 1, the number]."""
    values = tensor.double()
    digest = hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:16]
    sums = [values.sum().item(), values.abs().sum().item()] if len(values) > 1 else []
    return [digest, len(values), *sums, *values[:first].tolist()]
