"""Runs on a small transfer between two domains, whose pipeline is in `plugins`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from two_workers import PLUGINS

from mtlscale.config import Experiment, Run, load_plugin
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare

Options = dict[str, Any]
Job = tuple[Run, PreparedData]

TRAINING = {"epochs": 3, "batch_size": 16, "lr": 1e-2, "dtype": "float64", "optimizer": "sgd", "momentum": 0.9}
BOTTLENECK = {"name": "bottleneck", "width": 4, "dropout": 0.2}


def transfer(home: Path, **options: Any) -> PreparedData:
    for plugin in PLUGINS:
        load_plugin(plugin)
    return load_prepared(prepare("two_domains", options, None, home))


def job_of(data: PreparedData, method: Options, training: Options | None = None, encoder: Options = BOTTLENECK) -> Job:
    """A run of the method on prepared data; `training` beside or in place of what is usual here."""
    content = {
        "name": "transfer",
        "datasets": [data.suite.name],
        "methods": [method],
        "floors": [],
        "seeds": [0],
        "model": {"encoder": encoder},
        "training": {**TRAINING, **(training or {})},
    }
    experiment = Experiment.model_validate(content)
    experiment.validate_components()
    return next(experiment.runs({data.suite.name: data.manifest.fingerprint})), data
