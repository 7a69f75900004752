"""Runs done once more, in this process and as a worker does them, beside the records they have left."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtlscale.execution.events import RunEnded
from mtlscale.execution.jobs import Options
from mtlscale.execution.plan import Datasets, Plan, make_plan
from mtlscale.execution.runner import job_of, plan
from mtlscale.execution.trial import execute
from mtlscale.records import Home, RunRecord
from mtlscale.spec import Experiment, Run, UserError


@dataclass(frozen=True)
class Repeated:
    """A record, the one that its run leaves now, and the largest relative difference of their metrics, and
    where it is."""

    known: RunRecord
    again: RunRecord
    difference: float
    where: str = ""

    @property
    def elsewhere(self) -> list[str]:
        """What computed them that is not the same, and may round in another way."""
        known, again = self.known, self.again
        found = [] if known.hardware == again.hardware else [f"{known.hardware}, here {again.hardware}"]
        names = [n for n in ("torch", "numpy") if known.versions.get(n) != again.versions.get(n)]
        return found + [f"{name} {known.versions.get(name)}, here {again.versions.get(name)}" for name in names]


def repeat(
    experiment: Experiment,
    records: Sequence[RunRecord],
    home: Home,
    source: Path | None = None,
    *,
    download: bool = True,
) -> Iterator[Repeated]:
    """Run these records' runs of an experiment again, one after another; their data are prepared in the home folder,
    where nothing else is touched. `UserError` where the data are other ones now."""
    plain = experiment.model_copy(update={"search": None})
    prepared = plan(plain, home=home, source=source, download=download)
    assert isinstance(prepared, Plan)
    runs = {(planned.run.dataset, planned.run.method, planned.run.seed): planned.run for planned in prepared.runs}
    for record in records:
        run = runs[record.dataset, record.method, record.seed].tuned(record.trial)
        if record.fingerprint.partition("+")[0] != run.fingerprint.partition("+")[0]:
            raise UserError(
                f"{record.dataset} is prepared to other bytes here than run {record.run_id} had; prepare it from the "
                "same source, with the same version"
            )
        if run.run_id != record.run_id:
            raise UserError(f"run {record.run_id} has other settings than the experiment gives it: {run.run_id}")
        again = _again(run, prepared)
        yield Repeated(record, again, *difference(record, again))


def _again(run: Run, prepared: Plan) -> RunRecord:
    import torch

    with tempfile.TemporaryDirectory(prefix="mtlscale-repeat-") as name:
        home = Home(Path(name))
        ledger = home.ledger(prepared.experiment.name)
        data = Datasets(prepared.folders, prepared.manifests)
        (planned,) = make_plan(prepared.experiment, [run], ledger, home, data).runs
        resources = prepared.experiment.resources
        options = Options(resources, models=False)
        torch.set_num_threads(options.threads)
        ends = [event for event in execute(job_of(planned, prepared, home), options) if isinstance(event, RunEnded)]
    return ends[-1].record


def difference(one: RunRecord, other: RunRecord) -> tuple[float, str]:
    """The largest relative difference of what two records say of splits, tasks and metrics, and where it is."""
    if one.status != other.status:
        return math.inf, f"status: {one.status}, now {other.status}"
    pairs = _numbers(one), _numbers(other)
    if pairs[0].keys() != pairs[1].keys():
        return math.inf, f"{sorted(pairs[0].keys() ^ pairs[1].keys())[0]} is in one of them alone"
    apart = {name: _apart(value, pairs[1][name]) for name, value in pairs[0].items()}
    where = max(apart, key=lambda name: apart[name], default="")
    return (apart[where], where) if where and apart[where] > 0 else (0.0, "")


def _numbers(record: RunRecord) -> dict[str, float]:
    chosen = {"all": record.chosen_epoch} if record.chosen_epoch is not None else record.chosen_epochs
    found = {f"chosen epoch {task}": float(epoch) for task, epoch in chosen.items()}
    for what, splits in (("", record.metrics), ("last ", record.last)):
        for split, tasks in splits.items():
            for task, metrics in tasks.items():
                found |= {f"{what}{split} {task} {metric}": value for metric, value in metrics.items()}
    return found


def _apart(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    found = abs(one - other) / max(abs(one), abs(other))
    return found if math.isfinite(found) else math.inf
