import pytest
import torch
from gramians import few, jacobians, permutation
from hypothesis import given
from torch import Tensor

from mtlscale.solvers import min_norm_weights, solve_min_norm


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gramian", "expected"),
    [
        # β₁ = clip((K₂₂ - K₁₂)/(K₁₁ + K₂₂ - 2K₁₂), 0, 1): (1 + 1)/(4 + 1 + 2) = 2/7
        ([[4.0, -1.0], [-1.0, 1.0]], (2 / 7, 5 / 7)),
        # (1 - 1.5)/(4 + 1 - 3) < 0: the shorter gradient alone
        ([[4.0, 1.5], [1.5, 1.0]], (0.0, 1.0)),
        # orthogonal gradients: β_i proportional to 1/‖g_i‖²
        ([[1.0, 0, 0], [0, 2.0, 0], [0, 0, 4.0]], (4 / 7, 2 / 7, 1 / 7)),
        # g and -g/2: (1/3) g - (2/3) g/2 = 0
        ([[1.0, -0.5], [-0.5, 0.25]], (1 / 3, 2 / 3)),
        # many minimisers: the least norm is equal weights among the equal, and among the zero gradients
        ([[1.0, 1, 1], [1, 1, 1], [1, 1, 1]], (1 / 3, 1 / 3, 1 / 3)),
        ([[0.0, 0, 0], [0, 0, 0], [0, 0, 3.0]], (0.5, 0.5, 0.0)),
        ([[0.0, 0], [0, 0]], (0.5, 0.5)),
        # a duplicated task shares its weight: orthogonal g, h, h with ‖g‖ = ‖h‖
        ([[1.0, 0, 0], [0, 1, 1], [0, 1, 1]], (0.5, 0.25, 0.25)),
        ([[7.0]], (1.0,)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], expected: tuple[float, ...]) -> None:
    weights = min_norm_weights(torch.tensor(gramian, dtype=torch.float64))
    torch.testing.assert_close(weights, tensor(*expected), rtol=1e-12, atol=1e-12)


@given(jacobian=jacobians())
@few
def test_is_optimal_on_the_simplex(jacobian: Tensor) -> None:
    gramian = jacobian @ jacobian.T
    weights, converged = solve_min_norm(gramian)
    assert bool(converged)
    assert weights.min() >= 0
    assert abs(float(weights.sum()) - 1) <= 1e-12
    # ‖Jᵀβ'‖ >= min_i ⟨g_i, m⟩/‖m‖ for every β' on the simplex, and the objective is convex: two bounds from below.
    square, worst = weights @ gramian @ weights, (gramian @ weights).min()
    bound = max(2 * worst - square, worst.clamp(min=0) ** 2 / square if square > 0 else square)
    assert square - bound <= 1e-9 * gramian.diagonal().max()


@given(jacobian=jacobians())
@few
def test_negligible_weights_are_exactly_zero(jacobian: Tensor) -> None:
    weights = min_norm_weights(jacobian @ jacobian.T)
    assert bool(((weights == 0) | (weights >= 1e-6 * weights.max())).all())


@given(jacobian=jacobians())
@few
def test_no_task_conflicts_with_the_direction(jacobian: Tensor) -> None:
    direction = jacobian.T @ min_norm_weights(jacobian @ jacobian.T)
    assert (jacobian @ direction).min() >= direction @ direction - 1e-6 * jacobian.square().sum(1).max()


@given(jacobian=jacobians())
@few
def test_permuting_tasks_permutes_weights_however_degenerate(jacobian: Tensor) -> None:
    order = permutation(len(jacobian))
    gramian = jacobian @ jacobian.T
    expected = min_norm_weights(gramian)[order]
    torch.testing.assert_close(min_norm_weights(gramian[order][:, order]), expected, rtol=0, atol=1e-6)


@given(jacobian=jacobians())
@few
def test_scale_does_not_matter(jacobian: Tensor) -> None:
    gramian = jacobian @ jacobian.T
    torch.testing.assert_close(min_norm_weights(3.7 * gramian), min_norm_weights(gramian), rtol=0, atol=1e-6)


def test_small_gradients_keep_their_digits() -> None:
    """Orthogonal gradients of norms 1, 1e-8, 2e-8: β_i proportional to 1/‖g_i‖², the first below 1e-6 of the rest."""
    torch.testing.assert_close(
        min_norm_weights(torch.diag(tensor(1.0, 1e-16, 4e-16))), tensor(0.0, 0.8, 0.2), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_least_norm_among_minimisers_that_only_some_tasks_share(seed: int) -> None:
    """g, sixteen times -g/2, and nine others: 0 = ⅓ g - ⅔ (g/2), the ⅔ shared evenly, no weight elsewhere."""
    others = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    others[:, 0] = others[:, 0].abs()  # on one side, so that they cannot cancel
    opposed = torch.zeros(17, 6, dtype=torch.float64)
    opposed[0, 1:] = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 99))
    opposed[1:] = -0.5 * opposed[0]
    jacobian = torch.cat([opposed, others])
    expected = torch.tensor([1 / 3] + [2 / 48] * 16 + [0.0] * 9, dtype=torch.float64)
    order = permutation(26)
    weights = min_norm_weights((jacobian @ jacobian.T)[order][:, order])
    torch.testing.assert_close(weights, expected[order], rtol=1e-9, atol=1e-9)


def test_batches_are_solved_one_by_one() -> None:
    jacobian = torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.mT
    weights, converged = solve_min_norm(gramian)
    assert weights.shape == (2, 3, 5)
    assert converged.shape == (2, 3)
    for index in ((0, 0), (1, 2)):
        torch.testing.assert_close(weights[index], min_norm_weights(gramian[index]), rtol=0, atol=0)


def test_answers_in_the_type_it_was_asked() -> None:
    assert min_norm_weights(torch.eye(3)).dtype == torch.float32
    torch.testing.assert_close(min_norm_weights(torch.tensor([[4, -1], [-1, 1]])), tensor(2 / 7, 5 / 7))


def test_a_gramian_that_is_not_finite_is_a_failure_and_leaves_others_alone() -> None:
    gramian = torch.eye(2, dtype=torch.float64).repeat(2, 1, 1)
    gramian[0, 0, 1] = torch.nan
    weights, converged = solve_min_norm(gramian)
    assert bool(weights[0].isnan().all())
    assert converged.tolist() == [False, True]
    torch.testing.assert_close(weights[1], tensor(0.5, 0.5))
