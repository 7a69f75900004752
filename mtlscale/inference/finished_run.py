"""Reading of what a finished run has left in its home, as far as its model needs it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mtlscale.architectures import PhaseOutput
from mtlscale.config import Run, TaskSuite, UserError
from mtlscale.config.run.run_parts import Parts
from mtlscale.config.settings.models import TrainingSpec
from mtlscale.data import PreparedData, load_prepared, read_manifest
from mtlscale.data.format.manifest import MANIFEST
from mtlscale.data.readers.views import narrowed
from mtlscale.inference.network import architecture_of, encoder_of
from mtlscale.metrics import measured
from mtlscale.records import Home, RunRecord, no_such_run, read_record
from mtlscale.training.engine import checkpoint
from mtlscale.training.engine.building import following, given_found, phase_id

_MODEL = "model.pt"


@dataclass(frozen=True)
class FinishedRun:
    """Record, chosen parameters, data and the input of the last phase of a finished run."""

    record: RunRecord
    state: dict[str, Tensor]
    data: PreparedData
    suite: TaskSuite  # with the tasks and metrics of the run
    phase: str
    phase_input: PhaseOutput | None


def run_folder(home: Home, run_id: str) -> Path:
    """Return the folder of the only run whose id begins so; raise `UserError` if there is none or several."""
    runs = home.root / "runs"
    if not re.fullmatch(r"[0-9a-f]{1,16}", run_id):
        raise no_such_run(home, run_id)
    run_ids = sorted(path.name for path in runs.glob(f"{run_id}*") if path.is_dir())
    if not run_ids:
        raise no_such_run(home, run_id)
    if len(run_ids) > 1:
        raise UserError(f"{len(run_ids)} runs begin with {run_id}: {', '.join(run_ids[:4])}; write more of its digits")
    return runs / run_ids[0]


def read_source(home: Home, run_id: str) -> FinishedRun:
    """Read everything that the export of a run needs; `UserError` says what is missing."""
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
    phase, phase_output = _last_phase(run, home)
    return FinishedRun(record, _state(folder), data, suite, phase, phase_output)


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
    """Load the prepared data that a run was trained on, from the home."""
    name, fingerprint = str(record.spec["dataset"]["name"]), record.fingerprint.partition("+")[0]
    for path in sorted((home.root / "data" / name).glob(f"*/{MANIFEST}")):
        if f'"{fingerprint}"'.encode() in path.read_bytes() and read_manifest(path.parent).fingerprint == fingerprint:
            return load_prepared(path.parent)
    raise UserError(
        f"the data of run {record.run_id} ({name}) are not in {home.root / 'data'} any more; `mtlscale prepare {name}` "
        "with the options it had, and export then"
    )


def _run_of(record: RunRecord) -> Run:
    """Rebuild the run with the parts that its network needs: those that only trained it may be gone."""
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


def _last_phase(run: Run, home: Home) -> tuple[str, PhaseOutput | None]:
    """Return the name of the run's last phase, and the output of the phase before it."""
    phases, index, phase_output = run.parts.phases, 0, given_found(run)

    while index < len(phases) - 1:
        path = home.phases / f"{phase_id(run, phases, index)}.pt"
        try:
            content: dict[str, Any] | None = checkpoint.load(path)
        except checkpoint.Damaged:
            content = None
        if content is None:
            raise UserError(
                f"what phase {phases[index].name} of run {run.run_id} found is not in {home.phases} any more; "
                f"`mtlscale rerun {run.run_id} --keep-model` makes it anew"
            )

        phase_output = content["found"]
        index = following(run, index, phase_output)

    return phases[-1].name, phase_output


def bare(suite: TaskSuite) -> TaskSuite:
    """Return the suite without the extras that the folder stores in files of their own."""
    return replace(suite, extras={key: v for key, v in suite.extras.items() if key not in ("vocabulary", "vectors")})
