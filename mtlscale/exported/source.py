"""What a finished run has left in its home, as far as its model needs it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mtlscale.architectures import Found
from mtlscale.data import PreparedData, load_prepared, read_manifest
from mtlscale.data.manifest import MANIFEST
from mtlscale.data.views import narrowed
from mtlscale.exported.network import architecture_of, encoder_of
from mtlscale.metrics import measured
from mtlscale.records import Home, RunRecord, no_such_run, read_record
from mtlscale.spec import Run, TaskSuite, UserError
from mtlscale.spec.models import TrainingSpec
from mtlscale.spec.parts import Parts
from mtlscale.training import checkpoint
from mtlscale.training.building import following, given_found, phase_id

_MODEL = "model.pt"


@dataclass(frozen=True)
class Source:
    """A finished run: its record, the parameters it chose, its data and what its last phase was built from."""

    record: RunRecord
    state: dict[str, Tensor]
    data: PreparedData
    suite: TaskSuite  # with the tasks and metrics of the run
    phase: str
    found: Found | None


def run_folder(home: Home, run_id: str) -> Path:
    """The folder of the run with this id, or the only one whose id begins so. `UserError` where there is none."""
    runs = home.root / "runs"
    if not re.fullmatch(r"[0-9a-f]{1,16}", run_id):
        raise no_such_run(home, run_id)
    known = sorted(path.name for path in runs.glob(f"{run_id}*") if path.is_dir())
    if not known:
        raise no_such_run(home, run_id)
    if len(known) > 1:
        raise UserError(f"{len(known)} runs begin with {run_id}: {', '.join(known[:4])}; write more of its digits")
    return runs / known[0]


def read_source(home: Home, run_id: str) -> Source:
    """All of it. `UserError` says what is not there any more, or never was."""
    folder = run_folder(home, run_id)
    record = read_record(folder)
    if record is None:
        raise UserError(f"run {folder.name} has not come to its end; run its experiment again, which resumes it")
    if record.status != "finished":
        raise UserError(f"run {folder.name} has {record.status} ({record.error}); there is no model of it to export")
    data = prepared_of(home, record)
    run = _run_of(record)
    suite = narrowed(data.suite, run.tasks)
    suite = suite if run.metrics is None else measured(suite, run.metrics)
    phase, found = _last_phase(run, home)
    return Source(record, _state(folder), data, suite, phase, found)


def _state(folder: Path) -> dict[str, Tensor]:
    try:
        state: dict[str, Tensor] | None = checkpoint.load(folder / _MODEL)
    except checkpoint.Damaged as error:
        raise UserError(f"{error}; `mtlscale rerun {folder.name} --keep-model` makes it anew") from None
    if state is None:
        raise UserError(
            f"run {folder.name} has kept no {_MODEL}; `mtlscale rerun {folder.name} --keep-model` makes it, and "
            "`tracking: {models: true}` in an experiment keeps those of runs to come"
        )
    return state


def prepared_of(home: Home, record: RunRecord) -> PreparedData:
    """The prepared data that a run was trained on, of those in the home."""
    name, wanted = str(record.spec["dataset"]["name"]), record.fingerprint.partition("+")[0]
    for path in sorted((home.root / "data" / name).glob(f"*/{MANIFEST}")):
        if f'"{wanted}"'.encode() in path.read_bytes() and read_manifest(path.parent).fingerprint == wanted:
            return load_prepared(path.parent)
    raise UserError(
        f"the data of run {record.run_id} ({name}) are not in {home.root / 'data'} any more; `mtlscale prepare {name}` "
        "with the options it had, and export then"
    )


def _run_of(record: RunRecord) -> Run:
    """The run with what its network needs of its parts: what trained it may have gone."""
    spec = record.spec
    parts = Parts(
        architecture=architecture_of(spec),
        balancer=None,
        objective=None,
        encoder=encoder_of(spec),
        dropout=spec["dropout"],
        training=TrainingSpec.model_validate(spec["training"]),
    )
    return Run.of_parts(parts, **record.as_run().model_dump())


def _last_phase(run: Run, home: Home) -> tuple[str, Found | None]:
    """The name of the run's last phase, and what the one before it handed over."""
    phases, place, found = run.parts.phases, 0, given_found(run)
    while place < len(phases) - 1:
        path = home.phases / f"{phase_id(run, phases, place)}.pt"
        try:
            content: dict[str, Any] | None = checkpoint.load(path)
        except checkpoint.Damaged:
            content = None
        if content is None:
            raise UserError(
                f"what phase {phases[place].name} of run {run.run_id} found is not in {home.phases} any more; "
                f"`mtlscale rerun {run.run_id} --keep-model` makes it anew"
            )
        found = content["found"]
        place = following(run, place, found)
    return phases[-1].name, found


def bare(suite: TaskSuite) -> TaskSuite:
    """The suite without what lies in files of its own."""
    return replace(suite, extras={key: v for key, v in suite.extras.items() if key not in ("vocabulary", "vectors")})
