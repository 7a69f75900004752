import pytest
import torch
from gramians import few, jacobians, permutation
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchjd.aggregation import FairGradWeighting

from mtlscale.solvers import fair_weights, min_norm_weights, nash_weights


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def is_stationary(jacobian: Tensor) -> bool:
    """Whether the hull of the unit gradients comes near 0: a fixed point is then out of reach of float64."""
    units = jacobian[jacobian.norm(dim=1) > 0]
    units = units / units.norm(dim=1, keepdim=True)
    return len(units) == 0 or float((units.T @ min_norm_weights(units @ units.T)).norm()) < 1e-4


@pytest.mark.parametrize(
    ("gramian", "alpha", "expected"),
    [
        # 4a - b = 1/a and b - a = 1/b: 4a² = b², so b = 2a, 2a² = 1
        ([[4.0, -1.0], [-1.0, 1.0]], 1.0, (0.5**0.5, 2 * 0.5**0.5)),
        # orthogonal: K_ii w = w^(-1/α) gives w = K_ii^(-α/(1+α))
        ([[8.0, 0.0], [0.0, 27.0]], 2.0, (8 ** (-2 / 3), 27 ** (-2 / 3))),
        ([[16.0, 0.0], [0.0, 1.0]], 1.0, (0.25, 1.0)),
        # a zero gradient has no part in the bargain
        ([[0.0, 0.0], [0.0, 4.0]], 1.0, (0.0, 0.5)),
        ([[0.0, 0.0], [0.0, 0.0]], 1.0, (0.5, 0.5)),
        ([[9.0]], 2.0, (1.0,)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], alpha: float, expected: tuple[float, ...]) -> None:
    weights, converged = fair_weights(torch.tensor(gramian, dtype=torch.float64), alpha)
    torch.testing.assert_close(weights, tensor(*expected), rtol=1e-9, atol=1e-12)
    assert bool(converged)


@given(jacobian=jacobians(), alpha=st.sampled_from((0.5, 1.0, 2.0, 8.0)))
@few
def test_is_the_fixed_point_or_a_counted_failure(jacobian: Tensor, alpha: float) -> None:
    weights, converged = fair_weights(jacobian @ jacobian.T, alpha)
    assert bool(weights.isfinite().all())
    assert weights.min() >= 0
    if is_stationary(jacobian):
        return
    assert bool(converged)
    live = jacobian.norm(dim=1) > 0
    gains = (jacobian @ (jacobian.T @ weights))[live]
    terms = ((jacobian @ jacobian.T).abs() @ weights)[live]
    wanted = weights[live] ** (-1 / alpha)
    assert ((gains - wanted).abs() <= 1e-7 * (terms + wanted)).all()


@given(jacobian=jacobians(kinds=("gaussian", "duplicates", "graded")))
@few
def test_permuting_and_scaling(jacobian: Tensor) -> None:
    if is_stationary(jacobian):
        return
    order, gramian = permutation(len(jacobian)), jacobian @ jacobian.T
    weights = nash_weights(gramian).weights
    torch.testing.assert_close(nash_weights(gramian[order][:, order]).weights, weights[order], rtol=1e-5, atol=0)
    torch.testing.assert_close(nash_weights(9.0 * gramian).weights, weights / 3.0, rtol=1e-5, atol=0)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_opposed_gradients_have_no_fixed_point(alpha: float) -> None:
    jacobian = tensor(1.0, -2.0).unsqueeze(1)
    weights, converged = fair_weights(jacobian @ jacobian.T, alpha)
    assert not bool(converged)
    assert float((jacobian.T @ weights).norm()) <= 1e-3


def test_agrees_with_torchjd() -> None:
    jacobian = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    torch.testing.assert_close(
        fair_weights(gramian, 2.0).weights, FairGradWeighting(alpha=2.0)(gramian), rtol=1e-5, atol=1e-7
    )
