"""`studies/figure3.py`: pairs of tasks trained as one batched model, and which setting has the printed shape."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import figure3


@pytest.mark.parametrize("link", ["linear", "relu"])
def test_a_pair_of_the_batched_model_is_a_network_of_its_own(link: str) -> None:
    networks = figure3.Networks([3, 4], 5, 2, link, torch.tensor([1.0, 0.0]))
    weight, bias, heads, offsets = (parameter[1] for parameter in networks.parameters)
    inputs = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0))
    shared = inputs[1] @ weight + bias
    shared = shared.relu() if link == "relu" else shared
    torch.testing.assert_close(networks.predict(inputs, 1)[1], shared @ heads[1] + offsets[1])

    labels = torch.ones(2, 7)
    networks.loss((inputs, labels), (2.0 * inputs, labels)).backward()  # type: ignore[no-untyped-call]
    of_source = networks.parameters[2].grad[:, 1].abs().sum(1)  # type: ignore[index]
    assert of_source[0] > 0 and of_source[1] == 0  # the single task has no source


def test_pairs_of_a_draw_have_the_same_target_and_start() -> None:
    setting = figure3.Setting("linear", 30, 0.5, 1, (1, 3))
    pairs = [(draw, *source) for draw in (10, 11) for source in (("", 0), ("same", 4), ("rotated", 6))]
    target, source, test, counts = figure3._data(setting, pairs)
    assert counts.tolist() == [2, 4, 6] * 2 and source[0].shape == (6, 6, 100) and test[0].shape == (6, 1000, 100)
    assert torch.equal(target[0][0], target[0][2]) and not torch.equal(target[0][0], target[0][3])
    assert bool((source[0][1, 4:] == 0).all()) and bool((source[0][1, :4] != 0).all())

    found = figure3.errors(setting, (10, 11), (4,))
    assert set(found) == {(step, *of) for step in (1, 3) for of in (("", 0), *((c, 4) for c in figure3.COVARIANCES))}
    assert all(rmse.shape == (2,) and np.isfinite(rmse).all() for rmse in found.values())
    assert (found[3, "", 0] != found[3, "same", 4]).all()


def test_classes_are_halves_of_the_training_labels_and_errors_are_percent() -> None:
    setting = figure3.Setting("linear", 30, 0.5, 1, (1, 200), classes=True)
    target, source, test, _ = figure3._data(setting, [(10, "", 0), (10, "same", 8)])
    assert target[1].sum(1).tolist() == [15.0, 15.0] and source[1][1].sum() == 4.0
    assert test[1].unique().tolist() == [0.0, 1.0]

    networks = figure3.Networks([10, 10], 100, 1, "linear", torch.zeros(2), classes=True)
    wrong = ((networks.predict(test[0], 0) > 0).float() - test[1]).abs().mean(1)
    np.testing.assert_allclose(networks.errors(*test), 100.0 * wrong.detach().numpy(), rtol=1e-6)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(networks.predict(target[0], 0), target[1])
    torch.testing.assert_close(networks.loss(target, source), 2.0 * entropy)

    found = figure3.errors(setting, (10, 11), (400,))
    assert (found[200, "same", 400] < found[1, "same", 400]).all()


def test_gains_are_relative_to_the_single_task_of_the_draw() -> None:
    found = {(9, "", 0): np.array([1.0, 2.0, 2.0]), (9, "same", 5): np.array([0.9, 1.6, 1.7])}
    [(key, (mean, half))] = figure3.gains(found).items()
    assert (
        key == (9, "same", 5) and mean == pytest.approx(15.0) and half == pytest.approx(4.3027 * 5.0 / 3**0.5, rel=1e-4)
    )


def test_the_printed_shape_is_a_gain_of_the_same_and_a_loss_of_another_covariance() -> None:
    def score(same: float, other: float, half: float = 2.0) -> float:
        return figure3.printed_shape({(1, "same", 9): (same, half), (1, "disjoint", 9): (other, half)}, 1, 9)

    assert score(8.0, -4.0) == 2.0 and score(8.0, 4.0) < 0 and score(-8.0, -4.0) < 0
    assert score(8.0, -4.0, half=1.0) == 4.0
