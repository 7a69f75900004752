"""Marks beside the ledgers: how much of them MLflow has. Nothing here imports MLflow, which takes seconds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from mtlscale.config import Experiment, without_secrets
from mtlscale.records import Home, ledgers_of, write_atomically
from mtlscale.tracking.service import alone, uri_of

Sizes = dict[str, int]  # file name of a ledger -> bytes


def home_id(home: Home) -> str:
    """Return the random name by which MLflow tells homes apart; it lies in the home and moves with it."""
    file = home.root / "mlflow.id"
    with alone(file):  # two drivers of a new home make it once
        if not file.is_file():
            write_atomically(file, uuid.uuid4().hex.encode())
    return file.read_text()


def ledger_sizes(experiment: Experiment, home: Home) -> Sizes:
    """Return how long the experiment's ledgers are now."""
    return {
        ledger.path.name: ledger.path.stat().st_size for ledger in ledgers_of(experiment, home) if ledger.path.is_file()
    }


def mark_written(experiment: Experiment, home: Home, sizes: Sizes) -> None:
    """Note that MLflow has the first bytes of the ledgers, as many as `sizes` says; {}: nothing of them."""
    marks = _marks(experiment, home)
    if marks.get(key := _place(experiment, home), {}) != sizes:
        write_atomically(_file(experiment, home), json.dumps({**marks, key: sizes}).encode())


def lacking(experiment: Experiment, home: Home, ended: Mapping[str, str] | None = None) -> int:
    """Return how many runs and trials ended since everything was in MLflow, by the mark: MLflow is not asked.

    Args:
        ended: Run_id -> status of runs and trials that MLflow has, marked or not.
    """
    marked, sizes = _marks(experiment, home).get(_place(experiment, home), {}), ledger_sizes(experiment, home)
    count, known = 0, ended or {}

    for ledger in ledgers_of(experiment, home):
        size, start = sizes.get(ledger.path.name, 0), marked.get(ledger.path.name, 0)
        if size != start:
            start = start if size > start else 0  # it was written anew
            count += sum(known.get(run_id) != one.status for run_id, one in ledger.latest(start).items())
    return count


def _file(experiment: Experiment, home: Home) -> Path:
    return home.experiment(experiment.name) / "in-mlflow.json"


def _place(experiment: Experiment, home: Home) -> str:
    uri = uri_of(experiment, home)
    return "mlflow.db" if uri == home.tracking_uri else without_secrets(uri)  # a home's own moves with it


def _marks(experiment: Experiment, home: Home) -> dict[str, Sizes]:
    """Return address -> how much of the ledgers is there."""
    try:
        marks: dict[str, Sizes] = json.loads(_file(experiment, home).read_bytes())
    except (OSError, ValueError):
        return {}
    return marks
