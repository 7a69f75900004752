"""A run on the stand-in device: the events of its steps, of everything else, and where it ends other than on the
host."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from device.fake_device import GPU, OnDevice, Watch
from frozen.cases import Case
from frozen.compute import in_memory, run_of

from mtlscale.architectures.hard.tag import AffinityModule
from mtlscale.records import RunRecord
from mtlscale.training import Batches, Session, Trainer

Result = dict[str, Any]


def audit(case: Case) -> Result:
    """A whole run on the stand-in device beside the same on the host."""
    data, run = in_memory(case), run_of(case)
    record = _ended(Trainer(run, data).train())
    watch = Watch(of_step=(Session.step, Batches.micros))
    with watch, tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(run, data, device=GPU, folder=Path(folder))
        turns: dict[int, list[tuple[str, int]]] = {}
        measured: dict[int, int] = {}

        def step() -> tuple[int, int]:
            place = trainer.at.place
            if place not in turns:
                balancers = [updater.update.balancer for updater in trainer.session.updaters]
                more_passes = [b.needs_post_step_losses + (b.ascent > 0) for b in balancers]
                turns[place] = [(b.needs, more) for b, more in zip(balancers, more_passes, strict=True)]
                measured[place] = len(data.suite.tasks) if isinstance(trainer.model, AffinityModule) else 0
            return place, trainer.at.step

        watch.step = step
        if case.flavour == "resume":
            next(trainer.train())
            trainer = Trainer(run, data, device=GPU, folder=Path(folder))
        found = _ended(trainer.train())
        misplaced = list(_misplaced(trainer))
    spec = run.parts.training
    steps: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for event in watch.events:
        if event.step is not None:
            steps.setdefault(event.step, []).append((event.kind, str(event)))
    return {
        "amp": spec.amp,
        "batches": spec.accumulate * len(data.suite.streams) * (1 if spec.augment == "none" else 2),
        "parameters": len(trainer.session.main.update.partition.all),
        "steps": [
            {"place": key, "turns": turns[key[0]], "measured": measured[key[0]], "events": events}
            for key, events in steps.items()
        ],
        "else": sorted({str(e) for e in watch.events if e.step is None}),
        "misplaced": misplaced,
        "difference": "" if spec.amp != "off" else difference(record, found),  # no device rounds as another one
    }


def _ended(steps: Any) -> RunRecord:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            record: RunRecord = stop.value
            return record


def _misplaced(trainer: Trainer) -> Iterator[str]:
    """What lies on the other side than it should."""
    modules = {"model": trainer.model, "objective": trainer.objective}
    for name, module in modules.items():
        for key, tensor in () if module is None else (*module.named_parameters(), *module.named_buffers()):
            if not isinstance(tensor, OnDevice):
                yield f"{name}.{key} is on the host"
    for updater in trainer.session.updaters:
        for state in updater.optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and isinstance(value, OnDevice) == (key == "step"):
                    yield f"{key} of the optimiser is on {value.device}"
        for key, value in updater.update.state.items():
            if value.device.type != updater.update.place_of(key).type:
                yield f"{key} of {updater.update.balancer.name} is on {value.device}"


def difference(a: RunRecord, b: RunRecord) -> str:
    """The largest relative difference between two records' numbers and where it is; "" where there is none."""
    worst, where = 0.0, ""
    one, other = dict(_numbers(a)), dict(_numbers(b))
    if one.keys() != other.keys():
        return f"only one has {sorted(one.keys() ^ other.keys())}"
    for key, x in one.items():
        y = other[key]
        if (math.isnan(x) and math.isnan(y)) or x == y:
            continue
        gap = abs(x - y) / max(abs(x), abs(y))
        if not gap <= worst:
            worst, where = gap, f"{key}: {x} on the host, {y} on the device"
    return where if worst > 1e-9 or math.isnan(worst) else ""


def _numbers(record: RunRecord) -> Iterator[tuple[str, float]]:
    content = {"metrics": record.metrics, "last": record.last, "counters": record.counters}
    for place, epoch in enumerate(record.epochs):
        content[f"epoch {place}"] = {"losses": epoch.train_loss, "val": epoch.val, "weights": epoch.weights}
    yield from _leaves("", content)
    yield f"status {record.status} {record.error}", 0.0


def _leaves(path: str, content: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{path}{key} ", value)
        else:
            yield f"{path}{key}", float(value)
