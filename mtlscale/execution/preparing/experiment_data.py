"""Preparation of all data sets of an experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from mtlscale.config import Experiment
from mtlscale.data import read_manifest
from mtlscale.data.quality_warnings import left_out, remarks
from mtlscale.data.remote import publish
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.preparing.prepare import fetch_prepared
from mtlscale.execution.preparing.prepare import prepare as prepare_dataset
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Home, Storage
from mtlscale.records.events import DatasetPrepared, Preparing


def prepare_data(
    experiment: Experiment,
    home: Home,
    source: Path | None,
    download: bool,
    told: Sinks | None = None,
    start_ray: Callable[[], None] | None = None,
) -> Datasets:
    """Prepare what is not prepared yet; return the data sets of an experiment.

    Args:
        experiment: The experiment.
        home: The home folder.
        source: Where the raw data are.
        download: Fetch raw data that are not found.
        told: The sinks that hear how far it is.
        start_ray: Starts a Ray that is left running, where a data set needs one.
    """
    note = None if told is None else told.note
    told = told or Sinks()
    datasets, remarked_labels = experiment.data(), set()
    storage = None if home.storage is None else Storage(home.storage, told.note)

    def folder(name: str) -> Path:
        dataset, seed = datasets[name]
        options = dataclasses.asdict(dataset.build(seed))
        if storage is not None:
            fetch_prepared(dataset.name, options, home.root, storage)

        raw = source or dataset.source
        result = prepare_dataset(
            dataset.name,
            options,
            raw,
            home.root,
            download=download,
            progress=lambda *step: told.take(Preparing(name, *step)),
            storage=storage,
            start_ray=start_ray,
            note=note,
        )

        if storage is not None:
            publish(storage, result)
        told.take(DatasetPrepared(name, result))
        if dataset.label not in remarked_labels:  # not for each of several splits
            remarked_labels.add(dataset.label)
            for line in remarks(dataset.label, read_manifest(result)):
                told.note(line)

        return result

    for line in left_out(experiment):
        told.note(line)

    return Datasets.prepare(experiment, folder)
