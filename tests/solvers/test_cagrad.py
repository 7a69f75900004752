import pytest
import torch
from gramians import few, jacobians, permutation, relative
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.solvers import cagrad_weights, min_norm_weights, solve_cagrad

radii = st.sampled_from((0.1, 0.5, 0.9))


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def equal(tasks: int) -> Tensor:
    return torch.full((tasks,), 1.0 / tasks, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gramian", "c", "expected"),
    [
        # circulant: w = u by symmetry, so ω = u (1 + c)
        ([[1.0, -0.5], [-0.5, 1.0]], 0.5, (0.75, 0.75)),
        # g, -g/2: g₀ = g/4; the worst task is -g/2, so d = g₀ - c g₀, ω₂ = ½ + c ‖g₀‖/‖g₂‖ = ½ + ½ (¼)/(½)
        ([[1.0, -0.5], [-0.5, 0.25]], 0.5, (0.5, 0.75)),
        # zero gradients, exactly opposed gradients, c = 0, one task
        ([[0.0, 0.0], [0.0, 0.0]], 0.5, (0.5, 0.5)),
        ([[1.0, -1.0], [-1.0, 1.0]], 0.5, (0.5, 0.5)),
        ([[4.0, -1.0], [-1.0, 1.0]], 0.0, (0.5, 0.5)),
        ([[4.0]], 0.5, (1.0,)),
        # orthogonal of norms 1 and 2: checked below to be optimal; here the worst task is the short one alone when c is
        # small: b = (½, 2), ω = (½ + c √(5/4)/1, ½)
        ([[1.0, 0.0], [0.0, 4.0]], 0.1, (0.5 + 0.1 * 1.25**0.5, 0.5)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], c: float, expected: tuple[float, ...]) -> None:
    weights = cagrad_weights(torch.tensor(gramian, dtype=torch.float64), c)
    torch.testing.assert_close(weights, tensor(*expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("precision", [torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32)])
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_where_two_tasks_want_opposite_things_neither_loses_and_the_third_gains(noise: float, precision: float) -> None:
    """(1, 0), (-1, 0), (1, 1): g₀ = (1, 1)/3, and (0, 1)/3 is the point of the ball nearest to it without a loss."""
    jacobian = torch.tensor([[1.0, 0.0], [-1.0, noise], [1.0, 1.0]], dtype=torch.float64)
    weights, converged = solve_cagrad(jacobian @ jacobian.T, 0.9, precision=precision)
    assert bool(converged)
    close = 1e-6 if precision < 1e-10 else 1e-3
    torch.testing.assert_close(weights @ jacobian, tensor(0.0, 1 / 3), rtol=0, atol=close)
    assert float(weights.max()) < 1.0
    # With c = 0.5 the ball ends before that.
    weights = cagrad_weights(jacobian @ jacobian.T, 0.5, precision=precision)
    expected = tensor(1 / 3 - 0.5 * 2**0.5 / 3, 1 / 3)
    torch.testing.assert_close(weights @ jacobian, expected, rtol=0, atol=close)


@pytest.mark.parametrize(("rescale", "divisor"), [(0, 1.0), (1, 1.25), (2, 1.5)])
def test_rescale_divides_as_the_authors_code_does(rescale: int, divisor: float) -> None:
    gramian = torch.tensor([[1.0, -0.5], [-0.5, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(cagrad_weights(gramian, 0.5, rescale=rescale), tensor(0.75, 0.75) / divisor)


@given(jacobian=jacobians(), c=radii)
@few
def test_lies_on_the_boundary_of_the_ball(jacobian: Tensor, c: float) -> None:
    weights, converged = solve_cagrad(jacobian @ jacobian.T, c)
    assert bool(converged)
    average, size = jacobian.mean(0), jacobian.norm(dim=1).max()
    beyond = float((jacobian.T @ weights - average).norm() - c * average.norm())
    stationary = (jacobian.T @ min_norm_weights(jacobian @ jacobian.T)).norm() <= 1e-6 * size
    assert beyond <= 1e-8 * size
    assert stationary or beyond >= -1e-8 * size


@given(jacobian=jacobians(max_tasks=12), c=radii, seed=st.integers(0, 999))
@few
def test_no_point_of_the_ball_serves_the_worst_task_better(jacobian: Tensor, c: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    average = jacobian.mean(0)
    weights = cagrad_weights(jacobian @ jacobian.T, c)
    direction = jacobian.T @ weights
    steps = torch.randn(200, jacobian.shape[1], dtype=torch.float64, generator=generator)
    radius = c * average.norm()
    around = radius * steps / steps.norm(dim=1, keepdim=True)
    near = direction - average + 1e-3 * around
    near = near * (radius / near.norm(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1)
    best = ((average + torch.cat([around, near])) @ jacobian.T).amin(1).max()
    longest = jacobian.norm(dim=1).max()
    size = longest * max(average.norm(), 1e-6 * longest)  # the gradients may cancel to the last bit
    assert (jacobian @ direction).min() >= best - 1e-8 * size


@given(jacobian=jacobians(), c=radii)
@few
def test_scaling_all_gradients_changes_nothing(jacobian: Tensor, c: float) -> None:
    gramian = jacobian @ jacobian.T
    direction = jacobian.T @ (cagrad_weights(gramian, c) - cagrad_weights(49.0 * gramian, c))
    assert relative(direction, jacobian.norm(dim=1).max()) <= 1e-6


@given(jacobian=jacobians(), c=radii)
@few
def test_permuting_tasks_permutes_weights(jacobian: Tensor, c: float) -> None:
    gramian, order = jacobian @ jacobian.T, permutation(len(jacobian))
    expected = cagrad_weights(gramian, c)[order]
    direction = jacobian[order].T @ (cagrad_weights(gramian[order][:, order], c) - expected)
    assert relative(direction, jacobian.norm(dim=1).max()) <= 1e-6


def test_equal_tasks_get_equal_weights() -> None:
    jacobian = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    jacobian = jacobian[[0, 1, 2, 0, 1, 2]]
    weights = cagrad_weights(jacobian @ jacobian.T, 0.5)
    torch.testing.assert_close(weights[:3], weights[3:])


def test_a_large_radius_tends_to_mgda() -> None:
    jacobian = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    direction = jacobian.T @ cagrad_weights(gramian, 1e6)
    shortest = jacobian.T @ min_norm_weights(gramian)
    torch.testing.assert_close(direction / direction.norm(), shortest / shortest.norm(), rtol=0, atol=1e-5)


def test_every_trial_of_a_batch_may_have_its_own_radius() -> None:
    jacobian = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.mT
    both = cagrad_weights(gramian, tensor(0.1, 0.8))
    torch.testing.assert_close(both[0], cagrad_weights(gramian[0], 0.1), rtol=0, atol=0)
    torch.testing.assert_close(both[1], cagrad_weights(gramian[1], 0.8), rtol=0, atol=0)
