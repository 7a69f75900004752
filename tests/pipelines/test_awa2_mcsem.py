"""The two sets that are not to be had here, on files generated in their layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_sets import DATA_SETS

from mtlscale.config import UserError
from mtlscale.data.readers.prepared import load_prepared, read_manifest
from mtlscale.execution.preparing.prepare import prepare

SMALL = {"positives": 8, "negatives": 2, "components": 3}


@pytest.mark.parametrize("below", ["", "Animals_with_Attributes2/Features/ResNet101"])
def test_awa2_has_a_balanced_task_per_class(below: str, tmp_path: Path) -> None:
    DATA_SETS["awa2"].write(tmp_path / "awa2" / below)
    manifest = read_manifest(prepare("awa2", SMALL, tmp_path / "awa2", tmp_path))
    assert list(manifest.counts) == ["class01", "class02", "class03", "class04"]
    assert manifest.suite.input_shape == (3,)
    for counts in manifest.class_counts.values():
        assert sum(split["1"] for split in counts.values()) == 8
        assert sum(split["0"] for split in counts.values()) == 6


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / "AwA2-labels.txt").write_text("1\n2\n"), "AwA2-features.txt has 80 lines, AwA2-labels.txt 2"),
        (lambda f: _append(f / "AwA2-features.txt", "1 2\n"), "does not hold as many numbers in every line"),
        (
            lambda f: _append(f / "AwA2-features.txt", "1 2 3 nan 5 6\n"),
            "line 81 of .* that is not finite, in column 4",
        ),
    ],
)
def test_bad_files_of_awa2_are_one_line(damage: Callable[[Path], object], expected: str, tmp_path: Path) -> None:
    source = DATA_SETS["awa2"].write(tmp_path / "awa2")
    damage(source)
    with pytest.raises(UserError, match=f"^awa2: .*{expected}"):
        prepare("awa2", SMALL, source, tmp_path)


def _append(path: Path, line: str) -> None:
    path.write_text(path.read_text() + line)


def write_mcsem(folder: Path, **changes: Any) -> Path:
    DATA_SETS["mcsem"].write(folder)
    with np.load(folder / "phone.npz") as content:
        np.savez(folder / "phone.npz", **{**content, **changes})
    return folder


def test_mcsem_has_a_task_per_channel_with_distributions(tmp_path: Path) -> None:
    data = load_prepared(prepare("mcsem", {}, write_mcsem(tmp_path / "mcsem"), tmp_path))
    assert data.manifest.counts["email"] == {"train": 26, "val": 6, "test": 8}
    samples = data.splits["train"]["phone"]
    assert samples.inputs.shape == (16, 7)
    torch.testing.assert_close(samples.targets["phone"].sum(1), torch.ones(16))
    assert data.suite.tasks[0].metrics[0] == "cross_entropy"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"shares": np.ones((25, 4))}, r"features \(25, 7\) and shares \(25, 4\), not \[N, D\] and \[N, 5\]"),
        ({"shares": np.zeros((25, 5))}, "row 0 of .* has no valid shares"),
        ({"features": np.full((25, 7), np.inf)}, "row 0 of .* has inf in feature 0"),
        ({"features": np.zeros((25, 8))}, "phone.npz has 8 features, email.npz 7"),
        ({"features": np.zeros((3, 7)), "shares": np.ones((3, 5))}, "task phone has 3 samples, too few"),
    ],
)
def test_bad_files_of_mcsem_are_one_line(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^mcsem: .*{expected}"):
        prepare("mcsem", {}, write_mcsem(tmp_path / "mcsem", **changes), tmp_path)


def test_a_folder_without_channels_and_a_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mcsem: .* holds no <channel>.npz"):
        prepare("mcsem", {}, tmp_path, tmp_path / "home")
    (tmp_path / "email.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"mcsem: .* has no arrays `features` and `shares`"):
        prepare("mcsem", {}, tmp_path, tmp_path / "home")
