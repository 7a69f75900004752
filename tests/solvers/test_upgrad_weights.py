import numpy as np
import pytest
import torch
from gramians import few, jacobians, permutation, relative
from hypothesis import given
from scipy.optimize import minimize
from torch import Tensor

from mtlscale.solvers import upgrad_weights


@pytest.mark.parametrize(
    ("gramian", "expected"),
    [
        # both projections are PCGrad's for two tasks: the mean of (1, 1) and (1/4, 1)
        ([[4.0, -1.0], [-1.0, 1.0]], (0.625, 1.0)),
        ([[4.0, 1.0], [1.0, 1.0]], (0.5, 0.5)),
        # opposed: each projects to 0
        ([[1.0, -2.0], [-2.0, 4.0]], (1.5, 0.75)),
        ([[0.0, 0.0], [0.0, 1.0]], (0.5, 0.5)),
        ([[2.0]], (1.0,)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], expected: tuple[float, ...]) -> None:
    weights, converged = upgrad_weights(torch.tensor(gramian, dtype=torch.float64))
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert bool(converged)


@given(jacobian=jacobians(max_tasks=15))
@few
def test_no_task_conflicts_and_permuting_permutes(jacobian: Tensor) -> None:
    gramian, order = jacobian @ jacobian.T, permutation(len(jacobian))
    weights, converged = upgrad_weights(gramian)
    assert bool(converged)
    direction = jacobian.T @ weights
    sizes = jacobian.norm(dim=1)
    assert ((jacobian @ direction) >= -1e-8 * sizes * sizes.max()).all()
    permuted = upgrad_weights(gramian[order][:, order]).weights
    assert relative(jacobian[order].T @ permuted - direction, sizes.max()) <= 1e-8


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_a_generic_solver(seed: int) -> None:
    """Proposition 1: the projection of g_t has the weights v >= e_t that minimise vᵀKv."""
    jacobian = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).numpy()
    gramian = jacobian @ jacobian.T
    total = np.zeros(6)
    for task in range(4):
        start = np.eye(4)[task]
        result = minimize(
            lambda v: v @ gramian @ v,
            start,
            jac=lambda v: 2 * gramian @ v,
            bounds=[(low, None) for low in start],
            method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-12},
        )
        total += jacobian.T @ result.x / 4
    direction = jacobian.T @ upgrad_weights(torch.from_numpy(gramian)).weights.numpy()
    np.testing.assert_allclose(direction, total, atol=1e-5)
