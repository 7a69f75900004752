from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare

SMALL = {"features": 16, "tasks": 6, "samples": 300, "topics": 3, "special": 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def data(home: Path) -> PreparedData:
    return load_prepared(prepare("synthetic", SMALL, None, home))


def joined(data: PreparedData, task: str) -> tuple[torch.Tensor, torch.Tensor]:
    samples = [data.splits[split][task] for split in SPLITS]
    return torch.cat([s.inputs for s in samples]), torch.cat([s.targets[task] for s in samples])


def topics(data: PreparedData) -> dict[str, np.ndarray]:
    table = pq.read_table(data.folder / "topics.parquet")
    return dict(zip(table["id"].to_pylist(), np.array(table["weights"].to_pylist()), strict=True))


def test_sizes_and_labels(data: PreparedData) -> None:
    assert data.manifest.counts["task00"] == {"train": 192, "val": 48, "test": 60}
    inputs, labels = joined(data, "task03")
    assert inputs.shape == (300, 16) and labels.shape == (300, 5)
    torch.testing.assert_close(labels.sum(1), torch.ones(300))
    every = torch.cat([joined(data, task.name)[0] for task in data.suite.tasks])
    assert abs(float(every.mean())) < 0.02 and abs(float(every.std()) - 1) < 0.02


def test_every_topic_has_its_special_tasks(data: PreparedData) -> None:
    special = np.array(data.suite.extras["special"])
    assert special.shape == (3, 6) and (special.sum(1) == 2).all()


def test_topic_weights_sum_to_one_and_are_nearly_hard(data: PreparedData) -> None:
    weights = np.array(list(topics(data).values()))
    assert weights.shape == (6 * 300, 3)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert np.median(weights.max(1)) > 0.99


def test_tasks_differ_where_they_are_special_and_nowhere_else(home: Path) -> None:
    """Linear maps fitted within a topic to the logarithms of the labels: those of ordinary tasks agree."""
    options = {"features": 8, "tasks": 4, "samples": 3000, "topics": 2, "special": 1, "seed": 3}
    data = load_prepared(prepare("synthetic", options, None, home))
    special, weights = np.array(data.suite.extras["special"]), topics(data)
    for topic in range(2):
        maps = []
        for task in data.suite.tasks:
            inputs, labels = (t.numpy().astype(float) for t in joined(data, task.name))
            ids = [f"{task.name}/{row:06d}" for row in range(3000)]
            order = np.concatenate([read_order(data, split, task.name) for split in SPLITS])
            hard = np.array([weights[id][topic] for id in ids])[order] > 0.99
            scores = np.log(np.maximum(labels, 1e-12))
            scores -= scores.mean(1, keepdims=True)  # a softmax forgets the common part
            maps.append(np.linalg.lstsq(inputs[hard], scores[hard], rcond=None)[0])
        ordinary = [m for m, odd in zip(maps, special[topic], strict=True) if not odd]
        odd = next(m for m, odd in zip(maps, special[topic], strict=True) if odd)
        centre = np.mean(ordinary, 0)
        spread = max(np.linalg.norm(m - centre) for m in ordinary)
        assert np.linalg.norm(odd - centre) > 3 * spread


def read_order(data: PreparedData, split: str, task: str) -> np.ndarray:
    from mtlscale.data.readers.prepared import read_ids

    return np.array([int(id.split("/")[1]) for id in read_ids(data.folder, split, task)])


def test_the_sign_turns_the_farthest_core_into_the_nearest(home: Path, data: PreparedData) -> None:
    nearest = load_prepared(prepare("synthetic", {**SMALL, "sign": -1}, None, home))
    far, near = topics(data), topics(nearest)
    differ = np.mean([far[id].argmax() != near[id].argmax() for id in far])
    assert differ > 0.9
    assert nearest.suite.extras == data.suite.extras


def test_seed_makes_other_data_and_split_another_split_of_the_same(home: Path, data: PreparedData) -> None:
    again = load_prepared(prepare("synthetic", SMALL, None, home / "again"))
    assert again.manifest.fingerprint == data.manifest.fingerprint
    other = load_prepared(prepare("synthetic", {**SMALL, "seed": 1}, None, home))
    split = load_prepared(prepare("synthetic", {**SMALL, "split": 1}, None, home))

    def rows(data: PreparedData, split: str | None = None) -> set[tuple[float, ...]]:
        samples = joined(data, "task00")[0] if split is None else data.splits[split]["task00"].inputs
        return {tuple(row) for row in samples.tolist()}

    assert not rows(data) & rows(other)
    assert rows(data) == rows(split) and rows(data, "test") != rows(split, "test")


def test_more_special_tasks_than_tasks_are_refused(home: Path) -> None:
    with pytest.raises(UserError, match="synthetic: special = 7 is more than the 6 tasks there are"):
        prepare("synthetic", {**SMALL, "special": 7}, None, home)
    with pytest.raises(UserError, match=r"synthetic: topics = 0 is outside \[1, ∞\)"):
        prepare("synthetic", {**SMALL, "topics": 0}, None, home)
