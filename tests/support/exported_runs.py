"""True runs in a home: prepared, trained, and ended as workers end them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mtlscale.config import ResourceSpec, load_experiment
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution import Job, Options, execute
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Home, RunRecord
from mtlscale.records.events import RunEnded


@dataclass(frozen=True)
class Finished:
    """A run that has come to its end, and its data."""

    home: Home
    record: RunRecord
    data: PreparedData

    @property
    def run_id(self) -> str:
        return self.record.run_id


def finish(home: Path, file: Path, source: Path | None = None, models: bool = True) -> Finished:
    """The first run of an experiment file, trained in this process."""
    experiment = load_experiment(file)
    dataset = experiment.datasets[0]
    data = load_prepared(prepare(dataset.name, dataset.options, source, home))
    run = next(experiment.runs({dataset.label: data.manifest.fingerprint}))
    place = Home(home)
    options = Options(ResourceSpec(), models=models, phases=place.phases)
    *_, end = execute(Job(run, data.folder, place.run(run.run_id)), options)
    assert isinstance(end, RunEnded) and end.record.status == "finished", end
    return Finished(place, end.record, data)
