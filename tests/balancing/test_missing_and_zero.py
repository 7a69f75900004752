"""References and averages of tasks whose losses are 0, or that are missing in some steps: numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mtlscale.balancing import State, balance, direct
from mtlscale.balancing import partial_simplex as mass
from mtlscale.config import build

ALL = torch.tensor([True, True, True])


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def softmax(*values: float) -> list[float]:
    exponentials = [math.exp(value) for value in values]
    return [value / sum(exponentials) for value in exponentials]


def test_dwa_counts_epochs_with_a_loss_above_zero_alone() -> None:
    """The ratio of a task with the epochs 4, 0, missing, 2, 3 is 2/4, then 3/2; until then it weighs 1."""
    dwa = build("balancers", "dwa")
    state, found = dwa.init(3), []
    for last in (4.0, 0.0, math.nan, 2.0, 3.0):
        state = dwa.on_epoch_end(tensor(1.0, 1.0, last), state)
        found.append(dwa(tensor(1.0, 1.0, 1.0), None, state)[0].tolist())
    assert found[:3] == [pytest.approx([1.0, 1.0, 1.0])] * 3
    assert found[3] == pytest.approx([3 * share for share in softmax(0.5, 0.5, 0.25)])
    assert found[4] == pytest.approx([3 * share for share in softmax(0.5, 0.5, 0.75)])


def test_dwa_weighs_the_tasks_with_ratios_among_themselves() -> None:
    dwa = build("balancers", "dwa")
    state = dwa.on_epoch_end(tensor(2.0, 1.0, 0.0), dwa.on_epoch_end(tensor(2.0, 2.0, 0.0), dwa.init(3)))
    weights, _ = dwa(tensor(1.0, 1.0, 1.0), None, state)
    torch.testing.assert_close(weights, tensor(*[2 * share for share in softmax(0.5, 0.25)], 1.0))


def test_igb_takes_the_first_mean_above_zero_as_base() -> None:
    igb, losses = build("balancers", "igb"), tensor(2.0, 4.0, 0.5)
    state = igb.on_epoch_end(tensor(1.0, 2.0, 0.0), igb.init(3))
    weights, _ = igb(losses, None, state)
    shares = softmax(2.0, 2.0)  # both twice their bases
    torch.testing.assert_close(weights, tensor(2 * shares[0] / 2.0, 2 * shares[1] / 4.0, 1 / 0.5))
    state = igb.on_epoch_end(tensor(3.0, 3.0, 0.25), state)
    assert state["base_losses"].tolist() == [1.0, 2.0, 0.25]
    weights, _ = igb(losses, None, state)
    torch.testing.assert_close(weights, tensor(1 / 2.0, 1 / 4.0, 1 / 0.5))


def test_gradnorm_has_the_rate_one_for_a_task_without_a_reference() -> None:
    gradnorm = build("balancers", "gradnorm")
    state = gradnorm.on_epoch_end(tensor(1.0, 1.0, 0.0), gradnorm.init(3))
    assert state["initial_losses"].isnan().tolist() == [False, False, True]
    rates = gradnorm._slowness(tensor(3.0, 1.0, 7.0), state["initial_losses"])
    assert rates.tolist() == [1.5, 0.5, 1.0]
    state = gradnorm.on_epoch_end(tensor(9.0, 9.0, 2.0), state)
    assert state["initial_losses"].tolist() == [1.0, 1.0, 2.0]
    assert gradnorm._slowness(tensor(0.0, 0.0, 0.0), state["initial_losses"]).tolist() == [0.0, 0.0, 0.0]


def test_ldc_mtl_compares_the_first_losses_above_zero() -> None:
    ldc = build("balancers", "ldc_mtl", {"lam": 0.0})
    weights, state = ldc(tensor(2.0, 4.0, 0.0), None, ldc.init(3))
    assert state["first_losses"].tolist() == [2.0, 4.0, 0.0]
    torch.testing.assert_close(weights, tensor(1 / 3, 1 / 6, 1 / 3))
    _, state = ldc(tensor(9.0, 9.0, 1.0), None, state)
    assert state["first_losses"].tolist() == [2.0, 4.0, 1.0]
    weights, _ = ldc(tensor(9.0, 9.0, 1.0), None, {**state, "logits": tensor(0.0, 0.0, 0.0)})
    torch.testing.assert_close(weights, tensor(1 / 6, 1 / 12, 1 / 3))
    nobody, _ = ldc(tensor(0.0, 0.0, 0.0), None, ldc.init(3))
    torch.testing.assert_close(nobody, tensor(1 / 3, 1 / 3, 1 / 3))


def test_excess_mtl_waits_for_the_first_risk() -> None:
    """A risk of 0 in the first step would leave the task's growth at 1 for ever."""
    excess = build("balancers", "excess_mtl")
    jacobian = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first = jacobian.clone()
    first[2] = 0.0
    losses = tensor(1.0, 1.0, 1.0)
    _, state = direct(excess, [first], losses, excess.init(3), ALL)
    assert state["initial_risk"][2] == 0.0
    _, state = direct(excess, [jacobian], losses, state, ALL)
    torch.testing.assert_close(state["initial_risk"][2], (jacobian[2] ** 2 / jacobian[2].abs()).sum())


@pytest.mark.parametrize("name", ["tchebycheff", "stch"])
def test_the_default_preference_is_one_over_the_tasks_of_the_step(name: str) -> None:
    losses, two = tensor(3.0, 1.0, 2.0), torch.tensor([True, False, True])
    balancer = build("balancers", name)
    found, _ = balance(balancer, losses, None, balancer.init(3), two)
    alone, _ = balancer(losses[two], None, build("balancers", name).init(2))
    assert found.tolist() == [alone[0], 0.0, alone[1]]
    own = build("balancers", name, {"weights": [0.5, 1.0, 2.0]})
    weights, _ = balance(own, losses, None, own.init(3), torch.tensor([True, False, False]))
    assert weights.tolist() == [0.5, 0.0, 0.0], "one that the user sets stays"


def test_random_weights_sum_to_one_over_the_tasks_of_the_step() -> None:
    balancer = build("balancers", "random_static")
    state = balancer.init(3, seed=4)
    whole, _ = balance(balancer, tensor(1.0, 1.0, 1.0), None, state, ALL)
    assert torch.equal(whole, state["weights"]), "bit by bit where all are there"
    part, _ = balance(balancer, tensor(1.0, 1.0, 1.0), None, state, torch.tensor([True, False, True]))
    torch.testing.assert_close(part, whole * tensor(1.0, 0.0, 1.0) / (1.0 - whole[1]))


def test_shares_of_weights_that_are_all_zero_are_equal() -> None:
    assert mass.shares(tensor(0.0, 0.0)).tolist() == [0.5, 0.5]
    assert mass.shares(tensor(0.1, 0.3)).tolist() == pytest.approx([0.25, 0.75])
    nearly = tensor(0.25, 0.75 + 1e-12)
    assert torch.equal(mass.shares(nearly), nearly)


def smoothed(of: str, masks: list[list[bool]]) -> tuple[list[list[float]], State]:
    """The weights of steps with these tasks, half of each the average."""
    balancer = build("balancers", "smooth", {"of": of, "alpha": 0.5})
    state, found = balancer.init(3), []
    for number, mask in enumerate(masks):
        jacobian = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        losses = tensor(1.0, 2.0, 4.0) + number
        weights, state = balance(balancer, losses, jacobian @ jacobian.T, state, torch.tensor(mask))
        found.append(weights.tolist())
    return found, state


def test_averages_of_equal_weights_stay_equal_whoever_is_there() -> None:
    masks = [[True] * 3, [True, False, False], [True, False, True], [True] * 3, [False, True, False]]
    for mask, weights in zip(masks, smoothed("equal", masks)[0], strict=True):
        assert weights == pytest.approx([here / sum(mask) for here in mask])


@pytest.mark.parametrize(("of", "total"), [("mgda", 1.0), ("rlw", 1.0), ("dwa", None), ("bandit", 1.0)])
def test_averages_keep_the_sum_that_the_balancer_has_for_the_tasks_of_a_step(of: str, total: float | None) -> None:
    masks = [[True] * 3, [True, True, False], [True, False, True], [False, True, True], [True] * 3, [True] * 3]
    for mask, weights in zip(masks, smoothed(of, masks)[0], strict=True):
        assert sum(weights) == pytest.approx(sum(mask) if total is None else total)
        assert not any(weight for weight, here in zip(weights, mask, strict=True) if not here)


def test_a_task_that_was_alone_comes_back_as_one_of_many() -> None:
    """Its average, 1 when it was alone, is a third's worth among three."""
    alone, state = smoothed("equal", [[False, False, True]])
    assert alone == [[0.0, 0.0, 1.0]] and state["smooth.weights"].tolist() == [0.0, 0.0, 1.0]
    weights, _ = smoothed("equal", [[False, False, True], [True] * 3])
    assert weights[1] == pytest.approx([1 / 3] * 3)


def test_averages_that_no_factor_brings_to_the_sum_begin_anew() -> None:
    balancer = build("balancers", "smooth", {"of": "equal", "alpha": 0.5})
    state = {**balancer.init(3), "smooth.weights": tensor(1.0, -1.0, 3.0), "smooth.seen": torch.tensor([2, 2, 2])}
    weights, _ = balance(balancer, tensor(1.0, 1.0, 1.0), None, state, torch.tensor([True, True, False]))
    np.testing.assert_allclose(weights.numpy(), [0.5, 0.5, 0.0])
