"""Objectives between a labelled and an unlabelled stream, in whole runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import where_installed
from transfers import job_of, transfer
from two_workers import PLUGINS

from mtlscale.config import Run, UserError, load_experiment, load_plugin
from mtlscale.data import PreparedData, Workers, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer, finish

TRAINING = "{epochs: 2, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, momentum: 0.9}"
METHODS = [
    *(f"{{objective: {name}}}" for name in ("population_correlation", "mmd", "coral", "cmd", "kl", "jan", "cdan")),
    "{objective: {name: dann, ramp: 5}}",
    "{objective: {name: proxy_a, at: encoder}}",
    "{objective: {name: cdan, entropy: true, at: encoder.layers.1}}",
    "{objective: {name: population_correlation, at: prediction}, balancer: mgda}",
    "{objective: {name: mmd, at: encoder.layers.2}, architecture: hps}",
    "{objective: {name: coral, strength: 0}}",
]
ALIGNMENTS = ("population_correlation", "mmd", "coral", "cmd", "kl", "jan", "dann", "cdan", "proxy_a")
MLP, LOG_2 = {"name": "mlp", "hidden": [4]}, math.log(2)
Job = tuple[Run, PreparedData]


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    for plugin in PLUGINS:
        load_plugin(plugin)
    return load_prepared(prepare("shifted", {}, None, tmp_path_factory.mktemp("home")))


@pytest.fixture
def job(experiment_file: Callable[..., Path], shifted: PreparedData) -> Callable[..., Job]:
    def make(method: str, **lines: str) -> Job:
        content = {
            "plugins": f"[{', '.join(map(str, PLUGINS))}]",
            "datasets": "[shifted]",
            "methods": f"[{method}]",
            "training": TRAINING,
            **lines,
        }
        experiment = load_experiment(experiment_file(**content))
        return next(experiment.runs({"shifted": shifted.manifest.fingerprint})), shifted

    return make


def end_of(job: Job, workers: Workers | None = None) -> dict[str, Any]:
    trainer = Trainer(*job, workers=workers)
    record = finish(trainer)
    assert record.status == "finished", record.error
    traces = [value for epoch in record.epochs for name, value in epoch.traces.items() if name.startswith("measured")]
    assert trainer.objective is not None
    return {
        **trainer.model.state_dict(),
        **trainer.objective.state_dict(prefix="objective."),
        "measured": torch.tensor(traces, dtype=torch.float64),
    }


def test_every_objective_moves_the_network_and_at_zero_none_does(job: Callable[..., Job]) -> None:
    plain = Trainer(*job("equal"))
    finish(plain)
    expected = plain.model.state_dict()
    ends = {method: end_of(job(method)) for method in METHODS}
    for method, end in ends.items():
        same = all(torch.equal(expected[key], end[key]) for key in expected)
        assert same is ("strength: 0" in method), method
        assert len(end["measured"]) == 2 and end["measured"].isfinite().all(), method


@pytest.mark.parametrize("found", where_installed(["equal", "stl", "aaspc", "meta_weighting", "mmd"]))
def test_without_an_objective_nothing_of_the_target_passes_the_network(found: str, tmp_path: Path) -> None:
    """Batch statistics, say, would be the target's, too."""
    trainer = Trainer(*job_of(transfer(tmp_path), {"name": found}))
    seen: set[str] = set()
    trainer.model.register_forward_pre_hook(lambda module, batches: seen.update(b.stream for b in batches))
    finish(trainer)
    assert seen == ({"class", "target"} if found == "mmd" else {"class"})


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_features_that_are_all_zero_are_trained_on(name: str, tmp_path: Path) -> None:
    """A place where nothing comes through: no distance, a cosine of 0, and no NaN."""
    trainer = Trainer(*job_of(transfer(tmp_path, scale=0.0), {"name": name}, {"epochs": 1}, MLP))
    with torch.no_grad():
        for parameter in trainer.model.encoder.parameters():
            parameter.zero_()
    record = finish(trainer)
    assert record.status == "finished", record.error
    expected = {"dann": LOG_2, "cdan": LOG_2, "proxy_a": 0.5}.get(name, 0.0)
    assert record.epochs[0].traces[f"measured.{name}"] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_a_batch_of_one_is_refused_and_two_are_compared(name: str, tmp_path: Path) -> None:
    data = transfer(tmp_path)
    with pytest.raises(
        UserError, match=f"{name} compares the samples of a batch.*set training.batch_size to 2 or more"
    ):
        job_of(data, {"name": name}, {"batch_size": 1})
    # The last batch of an epoch has a single sample all the same: 40 = 3 · 13 + 1.
    record = finish(Trainer(*job_of(data, {"name": name}, {"batch_size": 13, "epochs": 1})))
    assert record.status == "finished", record.error


@pytest.mark.parametrize(
    ("training", "search"),
    [({"selection": "test"}, None), ({"selection": "target"}, None), ({}, "test.accuracy"), ({}, "target/loss")],
)
def test_what_would_choose_by_labels_of_the_target_is_refused(
    training: dict[str, str], search: str | None, experiment_file: Callable[..., Path]
) -> None:
    content = {"plugins": f"[{', '.join(map(str, PLUGINS))}]", "datasets": "[two_domains]", "training": str(training)}
    if search:
        content["search"] = f"{{budget: 2, space: {{training.lr: [0.1, 0.2]}}, metric: {search}}}"
    with pytest.raises(UserError, match=r"which of an adaptation between domains are the target's; .* on validation"):
        load_experiment(experiment_file(**content))


def test_what_is_made_small_gets_smaller(job: Callable[..., Job]) -> None:
    """Measured alone, then with strength: training against it leaves less of it."""
    training = "{epochs: 12, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: adam}"
    for name, strength in itertools.product(("population_correlation", "mmd", "coral", "cmd"), (10,)):
        left = [
            float(end_of(job(f"{{objective: {{name: {name}, strength: {value}}}}}", training=training))["measured"][-1])
            for value in (0, strength)
        ]
        assert left[1] < left[0], name


@pytest.mark.parametrize(
    ("method", "data", "problem"),
    [
        ("{objective: mmd}", "[digits]", "draws a target domain without labels to its source, and digits has none"),
        ("{objective: {name: mmd, at: encoder.layer.1}}", "[shifted]", "has no module 'encoder.layer.1': .*encoder"),
        ("{objective: {name: coral, strength: -1}}", "[shifted]", "strength"),
        ("{objective: population_correlation, architecture: stl}", "[shifted]", "no shared representation"),
    ],
)
def test_what_cannot_be_aligned_is_said(
    method: str, data: str, problem: str, experiment_file: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=problem):
        content = {"plugins": f"[{', '.join(map(str, PLUGINS))}]", "datasets": data, "methods": f"[{method}]"}
        experiment = load_experiment(experiment_file(training=TRAINING, **content))
        prepared = load_prepared(prepare(data[1:-1], {}, None, tmp_path))
        run = next(experiment.runs({data[1:-1]: prepared.manifest.fingerprint}))
        finish(Trainer(run, prepared))
