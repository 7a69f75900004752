import math

import numpy as np
import pytest
import torch
from gramians import few, jacobians, permutation, relative
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from mtlscale.solvers import linear_plus_norm

radii = st.sampled_from((0.0, 1e-3, 0.3, 1.0, 30.0))


def objective(weights: Tensor, linear: Tensor, radius: float, rows: Tensor) -> Tensor:
    return linear @ weights + radius * (rows.T @ weights).norm()


def generic_solution(linear: Tensor, radius: float, rows: Tensor) -> float:
    """The dual by a general solver: the largest t with linear + rows z >= t for some ‖z‖ <= radius."""
    a, b = rows.numpy(), linear.numpy()
    constraints = [
        {"type": "ineq", "fun": lambda v: b + a @ v[1:] - v[0], "jac": lambda v: np.c_[-np.ones(len(b)), a]},
        {
            "type": "ineq",
            "fun": lambda v: radius**2 - v[1:] @ v[1:],
            "jac": lambda v: np.r_[0.0, -2 * v[1:]],
        },
    ]
    start = np.r_[b.min(), np.zeros(a.shape[1])]
    jac = np.r_[-1.0, np.zeros(a.shape[1])]
    result = minimize(
        lambda v: -v[0],
        start,
        jac=lambda v: jac,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return -float(result.fun)


def test_two_orthogonal_rows_by_hand() -> None:
    """M = I, b = 0: √(w₁² + w₂²) is least at ½, ½."""
    weights, converged = linear_plus_norm(torch.zeros(2).double(), 1.0, torch.eye(2).double())
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5]).double())
    assert bool(converged)


def test_the_linear_part_wins_where_the_radius_is_small() -> None:
    """F(e₁) = 0 + r; moving weight to task 2 costs b₂ = 1 per unit and saves at most r = 0.1."""
    weights, _ = linear_plus_norm(torch.tensor([0.0, 1.0]).double(), 0.1, torch.eye(2).double())
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.0]).double())


def test_the_minimum_may_lie_where_the_norm_vanishes() -> None:
    """g, -g and an orthogonal task that costs more: w = (½, ½, 0), F = 0, as every other w has F > 0."""
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]).double()
    weights, converged = linear_plus_norm(torch.tensor([0.0, 0.0, 1 / 3]).double(), 0.5, rows @ rows.T)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 0.0]).double())
    assert bool(converged)


def test_no_radius_leaves_the_smallest_entries() -> None:
    weights, _ = linear_plus_norm(torch.tensor([1.0, 0.0, 0.0]).double(), 0.0, torch.eye(3).double())
    torch.testing.assert_close(weights, torch.tensor([0.0, 0.5, 0.5]).double())


@given(
    rows=jacobians(max_tasks=6, kinds=("gaussian", "duplicates", "opposed", "agreeing")),
    radius=radii,
    seed=st.integers(0, 999),
)
@few
def test_agrees_with_a_generic_convex_solver(rows: Tensor, radius: float, seed: int) -> None:
    rows = rows / rows.norm(dim=1).max()
    linear = torch.randn(len(rows), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights, converged = linear_plus_norm(linear, radius, rows @ rows.T)
    assert bool(converged)
    expected = generic_solution(linear, radius, rows)
    assert abs(float(objective(weights, linear, radius, rows)) - expected) <= 1e-6 * max(1.0, radius)


@given(rows=jacobians(), radius=radii, seed=st.integers(0, 999))
@few
def test_optimality_conditions(rows: Tensor, radius: float, seed: int) -> None:
    """Where the norm does not vanish, b + r Mw/s has its smallest entries, all equal, on the support of w."""
    linear = torch.randn(len(rows), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    linear = linear * rows.norm(dim=1).max()
    weights, converged = linear_plus_norm(linear, radius, rows @ rows.T)
    assert bool(converged)
    assert weights.min() >= 0
    assert abs(float(weights.sum()) - 1) <= 1e-12
    direction = rows.T @ weights
    if direction.norm() > 1e-6 * rows.norm(dim=1).max() and radius > 0:
        slopes = linear + radius * rows @ direction / direction.norm()
        assert relative(slopes[weights > 1e-9] - slopes.min(), (1 + radius) * linear.abs().max()) <= 1e-6


@given(rows=jacobians(), radius=radii)
@few
def test_permuting_permutes(rows: Tensor, radius: float) -> None:
    linear, order = rows @ rows.mean(0), permutation(len(rows))
    gramian = rows @ rows.T
    weights = linear_plus_norm(linear, radius, gramian).weights
    permuted = linear_plus_norm(linear[order], radius, gramian[order][:, order]).weights
    value = objective(weights, linear, radius, rows)
    size = (linear.abs().max() + radius * rows.norm(dim=1).max()).clamp(min=1e-300)
    assert abs(float((objective(permuted, linear[order], radius, rows[order]) - value) / size)) <= 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_answered_by_nan_for_that_trial_alone(bad: float) -> None:
    linear = torch.ones(3, 2, dtype=torch.float64)
    linear[1, 0] = bad
    radius = torch.tensor([1.0, 1.0, math.nan], dtype=torch.float64)
    weights, converged = linear_plus_norm(linear, radius, torch.eye(2, dtype=torch.float64).expand(3, 2, 2))
    assert converged.tolist() == [True, False, False]
    torch.testing.assert_close(weights[0], torch.full((2,), 0.5).double())
    assert bool(weights[1:].isnan().all())
