"""R, its weights, A and the multiplier: Mao, Liu & Lin, ICML 2020, eq. 14-21."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.objectives import adversarial_value, next_multiplier, relatedness_matrix, relatedness_weights


@st.composite
def outputs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Outputs [N, T] of a discriminator, from undecided to certain, and tasks [N] of unequal size."""
    tasks = draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    counts = draw(st.lists(st.integers(1, 9), min_size=tasks, max_size=tasks))
    index = torch.arange(tasks).repeat_interleave(torch.tensor(counts))
    sharpness = draw(st.sampled_from([0.1, 1.0, 30.0]))
    logits = sharpness * torch.randn(len(index), tasks, generator=generator, dtype=torch.float64)
    return logits.softmax(1), index


@given(outputs())
@settings(max_examples=60, deadline=None)
def test_r_is_symmetric_within_bounds_and_its_weights_are_a_distribution(found: tuple[Tensor, Tensor]) -> None:
    r = relatedness_matrix(*found)
    torch.testing.assert_close(r, r.T, rtol=0, atol=0)
    assert r.min() >= 0 and r.max() <= 1 and (r.diagonal() == 1).all()
    weights = relatedness_weights(r)
    assert (weights > 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


@given(outputs(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_samples_does_not_matter_and_that_of_tasks_goes_through(found, random) -> None:
    probs, index = found
    samples = torch.tensor(random.sample(range(len(index)), len(index)))
    torch.testing.assert_close(relatedness_matrix(probs[samples], index[samples]), relatedness_matrix(probs, index))
    order = torch.tensor(random.sample(range(probs.shape[1]), probs.shape[1]))
    renamed = order.argsort()[index]
    expected = relatedness_matrix(probs, index)[order][:, order]
    torch.testing.assert_close(relatedness_matrix(probs[:, order], renamed), expected)
    for form in ("prob", "xent"):
        value = adversarial_value(probs, index, form)
        torch.testing.assert_close(adversarial_value(probs[samples], index[samples], form), value)
        torch.testing.assert_close(adversarial_value(probs[:, order], renamed, form), value)


def test_a_sample_more_of_one_task_does_not_change_its_mean() -> None:
    probs = torch.tensor([[0.6, 0.4], [0.3, 0.7]], dtype=torch.float64)
    twice = torch.cat([probs, probs[:1]])
    torch.testing.assert_close(
        relatedness_matrix(twice, torch.tensor([0, 1, 0])), relatedness_matrix(probs, torch.arange(2))
    )


def test_r_by_hand() -> None:
    probs = torch.tensor([[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0.1, 0.5, 0.4], [0.0, 0.2, 0.8]], dtype=torch.float64)
    r = relatedness_matrix(probs, torch.tensor([0, 0, 1, 2]))
    # M = [[.7, .15, .15], [.1, .5, .4], [0, .2, .8]]
    expected = [[1, 0.25 / 1.2, 0.15 / 1.5], [0.25 / 1.2, 1, 0.6 / 1.3], [0.15 / 1.5, 0.6 / 1.3, 1]]
    torch.testing.assert_close(r, torch.tensor(expected, dtype=torch.float64))
    total = 3 + 2 * (0.25 / 1.2 + 0.15 / 1.5 + 0.6 / 1.3)
    assert relatedness_weights(r)[0] == pytest.approx((1 + 0.25 / 1.2 + 0.15 / 1.5) / total)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_one_that_knows_nothing_and_one_that_knows_all(tasks: int) -> None:
    index = torch.arange(tasks).repeat(3)
    undecided = torch.full((len(index), tasks), 1 / tasks, dtype=torch.float64)
    torch.testing.assert_close(relatedness_matrix(undecided, index), torch.ones(tasks, tasks, dtype=torch.float64))
    assert adversarial_value(undecided, index) == pytest.approx(0, abs=1e-15)
    assert adversarial_value(undecided, index, "xent") == pytest.approx(0, abs=1e-15)
    certain = torch.eye(tasks, dtype=torch.float64)[index]
    r = relatedness_matrix(certain, index)
    torch.testing.assert_close(r, torch.eye(tasks, dtype=torch.float64))
    torch.testing.assert_close(relatedness_weights(r), torch.full((tasks,), 1 / tasks, dtype=torch.float64))
    assert adversarial_value(certain, index) == pytest.approx(1 - 1 / tasks)
    assert adversarial_value(certain, index, "xent") == pytest.approx(math.log(tasks))


def test_always_naming_the_largest_task_is_no_better_than_chance() -> None:
    index = torch.tensor([0] * 9 + [1])
    assert adversarial_value(torch.tensor([[1.0, 0.0]]).expand(10, 2), index) == pytest.approx(0, abs=1e-7)


def test_tasks_that_are_never_recognised_are_taken_for_each_other_or_for_third_ones() -> None:
    swapped = torch.eye(3, dtype=torch.float64)[[1, 0, 2]]
    r = relatedness_matrix(swapped, torch.arange(3))
    assert r[0, 1] == 1 and r[0, 2] == 0
    third = torch.eye(3, dtype=torch.float64)[[2, 2, 2]]
    assert relatedness_matrix(third, torch.arange(3))[0, 1] == 0  # 0/0: neither is taken for the other


def solve(rule: str, iterations: int) -> tuple[float, list[float]]:
    """min ½(x - 2)² subject to x = 0 by the augmented Lagrangian: the last x, and every λ."""
    multiplier, penalty, found = torch.tensor(1.0, dtype=torch.float64), torch.tensor(10.0, dtype=torch.float64), []
    for _ in range(iterations):
        x = (2 - multiplier) / (1 + penalty)
        multiplier = next_multiplier(multiplier, penalty, x, rule, 100.0)
        penalty = penalty + 2
        found.append(float(multiplier))
    return float(x), found


def test_ascent_finds_the_multiplier_and_the_rule_as_printed_freezes() -> None:
    x, multipliers = solve("ascent", 12)
    assert multipliers[-1] == pytest.approx(2, abs=1e-9) and x == pytest.approx(0, abs=1e-9)
    x, multipliers = solve("printed", 50)
    assert set(multipliers) == {multipliers[0]} and multipliers[0] == pytest.approx(1 - 10 / 11)
    assert x > 0.01  # what is left falls with the growing penalty alone


def test_the_multiplier_stays_within_its_bounds() -> None:
    def after(value: float, rule: str = "ascent", multiplier: float = 1.0) -> float:
        return float(next_multiplier(*(torch.tensor(v) for v in (multiplier, 10.0, value)), rule, 5.0))

    assert after(0.2) == pytest.approx(3) and after(0.9) == 5 and after(-0.5) == 0
    assert after(0.05, "printed") == pytest.approx(0.5) and after(0.2, "printed") == 1
