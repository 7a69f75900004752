"""Batched trials on the stand-in device: the events of their steps, and where they end other than on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

from device.audit import difference
from device.fake_device import GPU, OnDevice, Watch
from frozen.cases import Case
from frozen.compute import in_memory, trials_of

from mtlscale.batched.session import BatchedSession
from mtlscale.batched.trainer import BatchedTrainer
from mtlscale.records import RunRecord


def audit(case: Case) -> dict[str, Any]:
    if "patience" not in case.training:
        case = dataclasses.replace(case, training={**case.training, "epochs": 2})
    data, runs = in_memory(case), trials_of(case)
    on_host = _records(BatchedTrainer(runs, data))
    watch = Watch(of_step=(BatchedSession.step,))
    with watch:
        trainer = BatchedTrainer(runs, data, device=GPU)
        watch.step = lambda: trainer.progress[0].step if trainer.progress else None
        placed = all(isinstance(value, OnDevice) for value in trainer.values)
        found = _records(trainer)
    last = max(event.step for event in watch.events if event.step is not None)
    return {
        "steps": [[[e.kind, str(e)] for e in watch.events if e.step == step] for step in range(last + 1)],
        "placed": placed,
        "difference": [difference(on_host[key], found[key]) for key in on_host],
    }


def _records(trainer: BatchedTrainer) -> dict[str, RunRecord]:
    return {event[0].run_id: event[1] for event in trainer.train() if not isinstance(event, int)}
