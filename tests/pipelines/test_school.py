from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from mtlscale.execution.preparing.prepare import prepare


def write(path: Path, sizes: tuple[int, ...] = (30, 22, 40), **changes: Any) -> Path:
    rng = np.random.default_rng(0)
    x, y = np.empty((1, len(sizes)), object), np.empty((1, len(sizes)), object)
    for school, size in enumerate(sizes):
        x[0, school] = rng.integers(0, 2, (size, 28)).astype(np.uint8)
        x[0, school][:, 3] = rng.integers(8, 92, size)
        x[0, school][:, -1] = 1
        y[0, school] = rng.integers(1, 71, (size, 1)).astype(np.uint8)
    path.mkdir(exist_ok=True)
    savemat(path / "school.mat", {"X": x, "Y": y, **changes})
    return path


def test_segments_and_features(tmp_path: Path) -> None:
    source = write(tmp_path / "school")
    folder = prepare("school", {}, source, tmp_path)
    data = load_prepared(folder)
    assert list(data.suite.streams) == ["school001", "school002", "school003"]
    raw = loadmat(source / "school.mat")
    scores = np.concatenate([y.ravel() for y in raw["Y"].ravel()]).astype(int)
    expected = [(scores < 10).sum(), ((scores >= 10) & (scores < 20)).sum(), (scores >= 20).sum()]
    found = torch.cat([data.splits[split][task].targets[task] for split in SPLITS for task in data.suite.streams])
    assert torch.bincount(found).tolist() == expected
    train = torch.cat([data.splits["train"][task].inputs for task in data.suite.streams])
    assert abs(float(train[:, 3].mean())) < 1e-5 and float(train[:, 3].std(correction=0)) == pytest.approx(1)
    assert set(train[:, 5].tolist()) == {0.0, 1.0} and set(train[:, 27].tolist()) == {1.0}
    scaled = data.manifest.notes["standardised"]  # by which raw features of new pupils become the same
    pupils = np.concatenate(raw["X"].ravel()).astype(float)
    again = (pupils - np.array(scaled["mean"])) / np.array(scaled["deviation"])
    every = torch.cat([data.splits[split][task].inputs for split in SPLITS for task in data.suite.streams])
    assert sorted(map(tuple, again.astype(np.float32).tolist())) == sorted(map(tuple, every.tolist()))


def test_scores_as_regression(tmp_path: Path) -> None:
    data = load_prepared(prepare("school", {"target": "score"}, write(tmp_path / "school"), tmp_path))
    target = data.splits["train"]["school001"].targets["school001"]
    assert target.dtype == torch.float32 and 0 < float(target.max()) <= 7.0
    assert data.suite.tasks[0].metrics == ("rmse", "mae")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sizes": (30, 3)}, "task school002 has 3 samples, too few"),
        ({"Y": np.zeros((1, 3))}, r"X of school 1 is \(30, 28\), not 1 x 28"),
        ({"X": np.zeros((2, 2))}, "has not the cells X and Y"),
    ],
)
def test_a_bad_source_is_one_line(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^school: .*{expected}"):
        prepare("school", {}, write(tmp_path / "school", **changes), tmp_path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "school.mat").write_bytes(b"not a mat file" * 100)
    with pytest.raises(UserError, match=r"school: .* is no MATLAB file or damaged"):
        prepare("school", {}, tmp_path, tmp_path / "home")


def test_the_school_set_itself(shared_data: Path, tmp_path: Path) -> None:
    prints = set()
    for split in (0, 1):
        folder = prepare("school", {"split": split}, shared_data / "school", tmp_path)
        manifest = read_manifest(folder)
        assert len(manifest.counts) == 139
        assert sum(sum(counts.values()) for counts in manifest.counts.values()) == 15_362
        tests = sum(counts["test"] for counts in manifest.counts.values())
        assert tests == pytest.approx(0.2 * 15_362, rel=0.01)
        assert min(count for task in manifest.class_counts.values() for count in task["train"].values()) >= 1
        prints.add(manifest.fingerprint)
    assert len(prints) == 2
