"""Distances between two domains' features: what they are unchanged by, worked examples, gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import mtlscale.objectives
from mtlscale.config import UserError
from mtlscale.config.registry import components
from mtlscale.objectives.discrepancies._discrepancies import (
    covariance_distance,
    mean_discrepancy,
    moment_discrepancy,
    population_correlation,
    symmetric_divergence,
)

DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "population_correlation": population_correlation,
    "mmd": lambda s, t: mean_discrepancy([s], [t]),
    "coral": covariance_distance,
    "cmd": lambda s, t: moment_discrepancy(s.sigmoid(), t.sigmoid()),
    "kl": symmetric_divergence,
}


def features(seed: int, rows: int, size: int = 4) -> Tensor:
    return torch.randn(rows, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    pair = [features(seed, rows).requires_grad_() for seed, rows in ((0, 5), (1, 7))]
    if name == "mmd":  # its widths have no gradient: of one row per domain they cancel in none of the kernels
        widths = mean_discrepancy
        source, target = pair
        value = widths([source], [target])
        value.backward()
        assert source.grad is not None and source.grad.isfinite().all() and source.grad.abs().sum() > 0
        return
    assert torch.autograd.gradcheck(DISTANCES[name], pair)


@pytest.mark.parametrize("name", DISTANCES)
@given(seed=st.integers(0, 50))
def test_domains_may_be_exchanged_and_rows_reordered(name: str, seed: int) -> None:
    source, target = features(seed, 6), features(seed + 1000, 9)
    distance = DISTANCES[name]
    value = distance(source, target)
    assert torch.isclose(distance(target, source), value, rtol=1e-9)
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
    assert torch.isclose(distance(source[order], target), value, rtol=1e-9)


@pytest.mark.parametrize("name", ["mmd", "coral", "cmd", "kl"])
def test_equal_sets_lie_nowhere_apart(name: str) -> None:
    same = features(0, 8)
    assert DISTANCES[name](same, same.flip(0)).abs() < 1e-12
    assert DISTANCES[name](same, same + 1.0 * features(1, 1)) > 1e-6 or name in ("coral", "kl")


@given(seed=st.integers(0, 50))
def test_population_correlation_is_of_directions_alone(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    source, target = features(seed, 6), features(seed + 1000, 9)
    value = population_correlation(source, target)
    assert -2 <= value <= 2
    scale = torch.rand(6, 1, dtype=torch.float64, generator=generator) + 0.1
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator))[0]
    assert torch.isclose(population_correlation(source * scale, target), value, rtol=1e-9)
    assert torch.isclose(population_correlation(source @ rotation, target @ rotation), value, rtol=1e-9)
    assert torch.isclose(population_correlation(source, source * scale), torch.tensor(2.0, dtype=torch.float64))


def test_population_correlation_of_a_worked_example() -> None:
    source = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    target = torch.tensor([[3.0, 0.0], [3.0, 4.0], [-1.0, 0.0]])
    # cosines [[1, .6, -1], [0, .8, 0]]: rows 1 and .8, columns 1, .8 and 0
    assert population_correlation(source, target) == pytest.approx(0.9 + 0.6)


def test_a_row_of_zeros_has_cosine_zero_and_no_gradient() -> None:
    source = torch.tensor([[0.0, 0.0], [1.0, 0.0]], requires_grad=True)
    value = population_correlation(source, torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    assert float(value.detach()) == pytest.approx(0.5 + 1.0)
    value.backward()
    assert source.grad is not None and source.grad.isfinite().all() and not source.grad[0].any()
    nothing = torch.zeros(3, 2, requires_grad=True)
    population_correlation(nothing, torch.zeros(2, 2)).backward()
    assert nothing.grad is not None and not nothing.grad.any()


def test_the_gradient_goes_through_the_maximiser_alone() -> None:
    source = torch.tensor([[1.0, 0.2]], dtype=torch.float64)
    target = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    (population_correlation(source, target)).backward()
    assert target.grad is not None
    alone = target.detach()[:1].requires_grad_()
    population_correlation(source, alone).backward()
    assert alone.grad is not None
    # Its row of the second sum counts once in two rows, the row of the first sum whole.
    assert torch.allclose(target.grad[0], alone.grad[0] * 0.75)


def test_features_of_any_size_of_number_are_compared() -> None:
    source, target = features(0, 4), features(1, 5)
    value = population_correlation(source, target)
    for scale in (1e-200, 1e200):
        assert torch.isclose(population_correlation(source * scale, target), value, rtol=1e-9)


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [((3, 2), (3, 4), "are [Ns, q] and [Nt, q]"), ((0, 2), (3, 2), "has no sample"), ((3,), (3,), "are [Ns, q]")],
)
def test_what_cannot_be_compared_is_said(source: tuple[int, ...], target: tuple[int, ...], problem: str) -> None:
    with pytest.raises(UserError, match=problem.replace("[", r"\[")):
        population_correlation(torch.zeros(source), torch.zeros(target))


def test_the_public_name_stays_a_function_when_the_component_is_loaded() -> None:
    component = components.build("objectives", "population_correlation", {})
    assert component.name == "population_correlation"
    assert mtlscale.objectives.population_correlation is population_correlation


def test_coral_and_cmd_by_hand() -> None:
    source, target = features(0, 6), features(1, 8)
    by_hand = (torch.cov(source.T) - torch.cov(target.T)).square().sum() / (4 * 16)
    assert torch.isclose(covariance_distance(source, target), by_hand)
    one, other = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [0.5]])
    # means agree; central moments of the first: 1/4, 0, 1/16, 0
    assert moment_discrepancy(one, other) == pytest.approx(0.25 + 0.0625)


def test_one_sample_of_each_domain_is_enough() -> None:
    for name, distance in DISTANCES.items():
        source = features(0, 1).requires_grad_()
        value = distance(source, features(1, 1))
        assert value.isfinite(), name
        if value.requires_grad and value.grad_fn is not None:
            value.backward()
            assert source.grad is None or source.grad.isfinite().all(), name
