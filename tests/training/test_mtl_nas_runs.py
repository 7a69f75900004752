"""MTL-NAS as a run: the search moves its edges, workers do not matter, and a run cut off in either phase goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtlscale.config import Run, load_plugin
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import Trainer, finish

PLUGIN = Path(__file__).parents[1] / "plugins" / "shapes.py"
DATASET = "[{name: shapes, options: {maps: false, size: 8}}]"
TRAINING = "{epochs: EPOCHS, batch_size: 16, lr: 1e-2, dtype: float64, optimizer: sgd, checkpoint_seconds: 0}"
SEARCH = "search_epochs: 2, arch_lr: 0.1"

Job = tuple[Run, PreparedData]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    load_plugin(PLUGIN)
    return load_prepared(prepare("shapes", {"maps": False, "size": 8}, None, tmp_path_factory.mktemp("home")))


@pytest.fixture
def job(small: Callable[..., Any], run_of: Callable[..., Run], data: PreparedData) -> Callable[..., Job]:
    def make(options: str = SEARCH, epochs: int = 2) -> Job:
        experiment = small(
            plugins=f"[{PLUGIN}]",
            datasets=DATASET,
            methods=f"[{{name: mtl_nas, {options}}}]",
            training=TRAINING.replace("EPOCHS", str(epochs)),
            model="{encoder: {name: resnet18, width: 2, stem: small}}",
        )
        return run_of(experiment, data), data

    return make


def test_the_search_moves_edges_and_keeps_some(job: Callable[..., Job]) -> None:
    record = finish(Trainer(*job("search_epochs: 3, arch_lr: 0.1, entropy: 0.0")))
    assert [epoch.phase for epoch in record.epochs] == ["search"] * 3 + ["retrain"] * 2
    kept = record.structure["edges"]
    assert 0 < len(kept) < 90 and len(kept) == record.epochs[2].traces["kept_edges"]
    assert all(weight > 0.5 for *_, weight in kept) and max(weight for *_, weight in kept) > 0.6
    assert all(start <= stage and source != task for source, start, task, stage, _ in kept)
    assert record.epochs[0].train_loss.keys() == {"disc", "red", "high"}


def test_the_entropy_term_settles_the_edges(job: Callable[..., Job]) -> None:
    plain, pushed = (
        finish(Trainer(*job(f"search_epochs: 4, arch_lr: 0.3, entropy: {entropy}"))).epochs[3].traces["edge_entropy"]
        for entropy in (0.0, 30.0)
    )
    assert pushed < 0.9 * plain
