"""The Poisson bootstrap over test items: its weights, and that its sums are those of the metrics."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from metric_checks import compute

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics import item_sums, poisson_weights, read_sums, resampled, sums_per_item

torch.set_num_threads(1)

LABELS = ("accuracy", "error", "cross_entropy")
NUMBERS = ("mse", "rmse", "mae")
CASES = [  # loss, outputs, shape of an item, metrics
    ("cross_entropy", 4, (), LABELS),
    ("cross_entropy", 4, (3, 2), ("miou", "pixel_accuracy", "pixel_error")),
    ("soft_cross_entropy", 3, (), (*LABELS, "soft_error")),
    ("bce", 3, (), LABELS),
    ("mse", 1, (), NUMBERS),
    ("l1", 1, (3, 2), ("abs_err", "rel_err", "mae")),
    ("cosine", 3, (3, 2), ("angle_mean", "angle_rmse", "within_11.25", "within_22.5", "within_30")),
]


def split(loss: str, outputs: int, shape: tuple[int, ...], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions and targets of so many items, a quarter of the labels missing."""
    generator = torch.Generator().manual_seed(0)
    prediction = torch.randn(count, outputs, *shape, generator=generator)
    absent = torch.rand(count, *shape, generator=generator) < 0.25
    if loss == "cross_entropy":
        target = torch.randint(0, outputs, (count, *shape), generator=generator)
        return prediction, torch.where(absent, MISSING_CLASS, target)
    noise = torch.randn(count, outputs, *shape, generator=generator)
    target = {
        "soft_cross_entropy": noise.softmax(1),
        "bce": (noise > 0.5).float(),
        "cosine": torch.nn.functional.normalize(prediction + noise, dim=1),
    }.get(loss, noise.abs() + 0.1)
    return prediction, torch.where(absent.unsqueeze(1), math.nan, target)


@pytest.mark.parametrize(
    ("loss", "outputs", "shape", "metric"),
    [(loss, outputs, shape, metric) for loss, outputs, shape, metrics in CASES for metric in metrics],
)
def test_sums_over_drawn_items_give_the_metric_of_these_items(loss, outputs, shape, metric):
    task = Task(name="t", loss=loss, outputs=outputs, metrics=(metric,))
    prediction, target = split(loss, outputs, shape, 12)
    assert resampled(task)
    shares = item_sums(task, prediction, target)
    assert shares.shape == (12, sums_per_item(task))
    weights = poisson_weights(7, torch.arange(12), 3)
    found = read_sums(task, weights.T @ shares)
    for replicate, value in enumerate(found.tolist()):
        drawn = torch.arange(12).repeat_interleave(weights[:, replicate].long())
        wanted = compute(task, (prediction[drawn], target[drawn]))[metric]
        assert value == pytest.approx(wanted, rel=1e-6)


def test_metrics_that_are_no_ratio_of_sums_are_left_out():
    task = Task(name="t", loss="cross_entropy", outputs=4, metrics=("auroc", "accuracy"))
    assert not resampled(task)
    assert resampled(dataclasses.replace(task, metrics=("accuracy", "auroc")))  # the main one counts


def test_weights_are_poisson_and_independent():
    weights = poisson_weights(5, torch.arange(20_000), 100).numpy()
    assert weights.mean() == pytest.approx(1, abs=0.01) and weights.var() == pytest.approx(1, abs=0.02)
    for count in range(5):
        assert (weights == count).mean() == pytest.approx(math.exp(-1) / math.factorial(count), abs=0.003)
    assert abs(np.corrcoef(weights[:, :20].T) - np.eye(20)).max() < 0.04  # replicates
    assert abs(np.corrcoef(weights[:-1].ravel(), weights[1:].ravel())[0, 1]) < 0.01  # items beside each other
    assert weights.mean(axis=0).std() == pytest.approx(20_000**-0.5, rel=0.25)


def test_weights_belong_to_an_item_wherever_it_is_looked_at():
    whole = poisson_weights(5, torch.arange(50), 8)
    assert torch.equal(whole[30:], poisson_weights(5, torch.arange(30, 50), 8))
    assert torch.equal(whole[:, :3], poisson_weights(5, torch.arange(50), 3))
    assert not torch.equal(whole, poisson_weights(6, torch.arange(50), 8))


def test_the_spread_of_an_accuracy_is_that_of_a_share():
    task = Task(name="t", loss="cross_entropy", outputs=2, metrics=("accuracy",))
    target = torch.zeros(400, dtype=torch.int64)
    right = (torch.arange(400) % 5 > 0).float()  # four of five
    prediction = torch.stack([right, 1 - right], dim=1)
    replicates = read_sums(task, poisson_weights(1, torch.arange(400), 1000).T @ item_sums(task, prediction, target))
    assert replicates.mean().item() == pytest.approx(80, abs=0.3)
    assert replicates.std().item() == pytest.approx(100 * math.sqrt(0.8 * 0.2 / 400), rel=0.1)
