from pathlib import Path

import pytest
import torch

from mtlscale.config import SPLITS, UserError
from mtlscale.data.readers.prepared import load_prepared, read_ids, read_manifest
from mtlscale.execution.preparing.prepare import prepare

PER_DIGIT = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of scikit-learn's documentation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("digits", {}, None, tmp_path_factory.mktemp("home"))


def test_every_task_has_all_its_digits_and_twenty_of_each_other(folder: Path) -> None:
    counts = read_manifest(folder).class_counts
    for digit, expected in enumerate(PER_DIGIT):
        task = counts[f"digit{digit}"]
        assert sum(task[split][str(digit)] for split in SPLITS) == expected
        assert sum(task[split]["rest"] for split in SPLITS) == 180


def test_an_image_is_once_in_a_task_and_in_one_split_everywhere(folder: Path) -> None:
    split_of: dict[str, str] = {}
    for digit in range(10):
        ids = [(id, split) for split in SPLITS for id in read_ids(folder, split, f"digit{digit}")]
        assert len({id for id, _ in ids}) == len(ids)
        for id, split in ids:
            assert split_of.setdefault(id, split) == split
    share = sum(split == "test" for split in split_of.values()) / len(split_of)
    assert share == pytest.approx(0.2, abs=0.03)


def test_negatives_are_spread_over_the_images(folder: Path) -> None:
    """1,800 negatives of 1,797 images: hardly any is a negative of two tasks."""
    times: dict[str, int] = {}
    for digit in range(10):
        for split in SPLITS:
            samples = load_prepared(folder, [split]).splits[split][f"digit{digit}"]
            labels = samples.targets[f"digit{digit}"].tolist()
            for id, label in zip(read_ids(folder, split, f"digit{digit}"), labels, strict=True):
                times[id] = times.get(id, 0) + (label == 0)
    assert max(times.values()) <= 2
    assert sum(count == 2 for count in times.values()) < 30


def test_pixels_are_the_images_of_scikit_learn(folder: Path) -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    samples = load_prepared(folder).splits["val"]["digit3"]
    rows = [int(id) for id in read_ids(folder, "val", "digit3")]
    assert samples.inputs.dtype == torch.float32
    assert torch.equal(samples.inputs, torch.tensor(images[rows] / 16, dtype=torch.float32))
    assert samples.targets["digit3"].tolist() == (labels[rows] == 3).tolist()


def test_the_share_of_negatives_is_an_option(tmp_path: Path) -> None:
    counts = read_manifest(prepare("digits", {"negatives": 3}, None, tmp_path)).class_counts
    assert sum(counts["digit0"][split]["rest"] for split in SPLITS) == 27
    with pytest.raises(UserError, match="negatives = 500 is outside"):
        prepare("digits", {"negatives": 500}, None, tmp_path)
