import math

import numpy as np
import pytest
import torch
from gramians import few, jacobians, permutation, relative
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from mtlscale.solvers import cagrad_weights, getmtl_weights, min_norm_weights, solve_getmtl

kappas = st.sampled_from((0.025, 0.3, 0.85))


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def equal(tasks: int) -> Tensor:
    return torch.full((tasks,), 1.0 / tasks, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gramian", "kappa", "expected"),
    [
        # g, -g/2: β = (⅓, ⅔), g₀ = g/4, g₂' = -g/3 is worst; κn = ½·¼, ω = (u + κn/(1/3) (0, ⅔))/(1 - κ²)
        ([[1.0, -0.5], [-0.5, 0.25]], 0.5, (2 / 3, 1.0)),
        # identical gradients: d = g/(1 - κ)
        ([[1.0, 1.0], [1.0, 1.0]], 0.5, (1.0, 1.0)),
        # circulant: CAGrad(κ)/(1 - κ²) = u (1 + κ)/(1 - κ²)
        ([[1.0, -0.5], [-0.5, 1.0]], 0.5, (1.0, 1.0)),
        # orthogonal, norms 1 and 2: β = (4/5, 1/5), g' of norms 4/5 and 2/5, b = (2/5, 2/5) = ⟨g_i', g₀⟩; with equal b
        # the norm decides, w = (1/5, 4/5), ‖g_w'‖ = √(16 + 64)/25, κn = ½ √5/2
        (
            [[1.0, 0.0], [0.0, 4.0]],
            0.5,
            (
                (0.5 + 0.25 * 5**0.5 / (80**0.5 / 25) * 4 / 25) / 0.75,
                (0.5 + 0.25 * 5**0.5 / (80**0.5 / 25) * 4 / 25) / 0.75,
            ),
        ),
        ([[0.0, 0.0], [0.0, 0.0]], 0.5, (0.5, 0.5)),
        ([[5.0]], 0.5, (1.0,)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], kappa: float, expected: tuple[float, ...]) -> None:
    weights = getmtl_weights(torch.tensor(gramian, dtype=torch.float64), kappa, relative=True)
    torch.testing.assert_close(weights, tensor(*expected), rtol=1e-12, atol=1e-12)


def test_a_task_whose_share_vanishes_is_left_out_of_the_worst_case() -> None:
    """g₁ = (1, 0), g₂ = (2, 0): β = (1, 0), so w = e₁ and d = g₀/(1-κ²) + κ‖g₀‖/(1-κ²) ĝ₁, κ = ½, ‖g₀‖ = 3/2."""
    weights = getmtl_weights(torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64), 0.5, relative=True)
    torch.testing.assert_close(weights, tensor(0.5 + 0.75, 0.5) / 0.75)


@pytest.mark.parametrize("kappa", [0.1, 0.5])
def test_two_opposed_gradients(kappa: float) -> None:
    """g and -s g: d = g₀/(1 + κ); exactly opposed: d = 0. See docs/methods.md."""
    for size in (0.2, 0.9, 1.0):
        jacobian = torch.tensor([[3.0], [-3.0 * size]], dtype=torch.float64)
        direction = jacobian.T @ getmtl_weights(jacobian @ jacobian.T, kappa, relative=True)
        torch.testing.assert_close(direction, jacobian.mean(0) / (1 + kappa), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("precision", [torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32)])
def test_where_two_tasks_want_opposite_things_neither_loses(precision: float, exact: bool) -> None:
    """(1, 0), (-1, 0), (1, 1): β = (½, ½, 0), and of the directions with ⟨g₁, d⟩ = 0 that nearest to the centre."""
    jacobian = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    weights = getmtl_weights(jacobian @ jacobian.T, 0.85, relative=True, exact=exact, precision=precision)
    direction, average = weights @ jacobian, jacobian.mean(0)
    along = average @ direction / average.norm() if exact else direction.norm()
    assert (direction - average).norm() <= 0.85 * along
    assert float(direction[0]) <= (0.05 if exact else 1e-3)  # the printed problem's set ends before 0
    assert float(direction[1]) > 0.3
    assert float(weights.max()) < 10.0


@given(jacobian=jacobians(), kappa=kappas)
@few
def test_distance_to_the_average_is_kappa_times_the_length(jacobian: Tensor, kappa: float) -> None:
    weights, converged, clamped = solve_getmtl(jacobian @ jacobian.T, kappa, relative=True)
    assert bool(converged)
    assert not bool(clamped)
    direction, average = jacobian.T @ weights, jacobian.mean(0)
    size = jacobian.norm(dim=1).max()
    beyond = float((direction - average).norm() - kappa * direction.norm())
    stationary = (jacobian.T @ min_norm_weights(jacobian @ jacobian.T)).norm() <= 1e-6 * size
    assert beyond <= 1e-8 * size
    assert stationary or beyond >= -1e-8 * size


@given(jacobian=jacobians(kinds=("gaussian", "duplicates", "agreeing", "graded")), kappa=kappas)
@few
def test_strong_duality_over_the_support(jacobian: Tensor, kappa: float) -> None:
    """min_i ⟨g_i', d⟩ over the tasks with a share equals J(w*), recovered from d = (g_w' + λ g₀)/((1 - κ²) λ)."""
    gramian = jacobian @ jacobian.T
    shares = min_norm_weights(gramian)
    # Where tasks cancel, λ is a quotient of roundings.
    assume((shares @ jacobian).norm() > 1e-9 * jacobian.norm(dim=1).max())
    weights = getmtl_weights(gramian, kappa, relative=True)
    average = jacobian.mean(0)
    norm = average.norm()
    # κ‖g₀‖/‖g_w'‖ β∘w = (1 - κ²) ω - u, and w sums to one
    pull = (1 - kappa**2) * weights - equal(len(jacobian))
    support = shares > 0
    scale = (pull[support] / shares[support]).sum()
    worst = jacobian.T @ (pull / scale)
    value = (worst @ average + kappa * norm * worst.norm()) / (1 - kappa**2)
    reached = (shares.unsqueeze(1) * jacobian)[support] @ (jacobian.T @ weights)
    size = (shares * jacobian.norm(dim=1)).max() * norm / (1 - kappa)
    assert abs(float(reached.min() - value)) <= 1e-7 * size


@given(
    jacobian=jacobians(max_tasks=12, kinds=("gaussian", "duplicates", "opposed", "agreeing")),
    kappa=kappas,
    seed=st.integers(0, 999),
)
@few
def test_no_point_of_the_ball_does_better(jacobian: Tensor, kappa: float, seed: int) -> None:
    gramian = jacobian @ jacobian.T
    shares = min_norm_weights(gramian)
    weights = getmtl_weights(gramian, kappa, relative=True)
    direction = jacobian.T @ weights
    average = jacobian.mean(0)
    centre, radius = average / (1 - kappa**2), kappa * average.norm() / (1 - kappa**2)
    steps = torch.randn(300, jacobian.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    around = radius * steps / steps.norm(dim=1, keepdim=True)
    near = direction - centre + 1e-3 * around
    near = near * (radius / near.norm(dim=1, keepdim=True).clamp(min=1e-300)).clamp(max=1)
    rescaled = (shares.unsqueeze(1) * jacobian)[shares > 0]
    best = ((centre + torch.cat([around, near])) @ rescaled.T).amin(1).max()
    size = rescaled.norm(dim=1).max() * average.norm() / (1 - kappa)
    assert (rescaled @ direction).min() >= best - 1e-8 * size


@pytest.mark.parametrize("seed", range(8))
def test_exact_variant_solves_the_problem_as_printed(seed: int) -> None:
    """max_d min_i ⟨g_i', d⟩ subject to ‖d - g₀‖ <= ε⟨g₀, d⟩, by a general solver."""
    jacobian = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    gramian = jacobian @ jacobian.T
    rescaled = (min_norm_weights(gramian).unsqueeze(1) * jacobian).numpy()
    rescaled = rescaled[np.linalg.norm(rescaled, axis=1) > 0]
    average = jacobian.mean(0).numpy()
    norm = np.linalg.norm(average)
    kappa = 0.6
    direction = (jacobian.T @ getmtl_weights(gramian, kappa, relative=True, exact=True)).numpy()
    assert np.linalg.norm(direction - average) <= kappa * average @ direction / norm * (1 + 1e-9)
    result = minimize(
        lambda v: -v[0],
        np.r_[0.0, average],
        constraints=[
            {"type": "ineq", "fun": lambda v: rescaled @ v[1:] - v[0]},
            {
                "type": "ineq",
                "fun": lambda v: (kappa / norm * average @ v[1:]) ** 2 - (v[1:] - average) @ (v[1:] - average),
            },
            {"type": "ineq", "fun": lambda v: average @ v[1:]},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert (rescaled @ direction).min() == pytest.approx(-result.fun, rel=1e-5, abs=1e-8)


def test_both_variants_agree_in_the_published_range() -> None:
    jacobian = torch.randn(6, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gramian = jacobian @ jacobian.T
    one, other = (jacobian.T @ getmtl_weights(gramian, 0.025, relative=True, exact=exact) for exact in (False, True))
    cosine = one @ other / (one.norm() * other.norm())
    assert math.degrees(math.acos(min(1.0, float(cosine)))) < 1e-3


@given(jacobian=jacobians())
@few
def test_small_eps_tends_to_the_average(jacobian: Tensor) -> None:
    size = jacobian.norm(dim=1).max()
    difference = jacobian.T @ getmtl_weights(jacobian @ jacobian.T, 1e-9, relative=True) - jacobian.mean(0)
    assert relative(difference, size) <= 1e-8


@given(seed=st.integers(0, 999), tasks=st.integers(2, 20), kappa=kappas)
@few
def test_on_a_circulant_gramian_it_is_cagrad(seed: int, tasks: int, kappa: float) -> None:
    spectrum = torch.rand(tasks // 2 + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.1
    first = torch.fft.irfft(spectrum, n=tasks)
    gramian = torch.stack([first.roll(shift) for shift in range(tasks)])
    expected = cagrad_weights(gramian, kappa) / (1 - kappa**2)
    torch.testing.assert_close(getmtl_weights(gramian, kappa, relative=True), expected, rtol=1e-7, atol=1e-9)


@given(jacobian=jacobians(kinds=("gaussian", "duplicates", "agreeing")), kappa=kappas)
@few
def test_scaling_gradients_by_c_is_dividing_eps_by_c(jacobian: Tensor, kappa: float) -> None:
    gramian = jacobian @ jacobian.T
    eps = float(kappa / jacobian.mean(0).norm())
    one, other = getmtl_weights(gramian, eps), getmtl_weights(9.0 * gramian, eps / 3.0)
    fixed = getmtl_weights(9.0 * gramian, kappa, relative=True)
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(one, fixed, rtol=1e-6, atol=1e-6)


def test_kappa_is_cut_where_the_problem_is_unbounded() -> None:
    gramian = torch.tensor([[100.0, 10.0], [10.0, 400.0]], dtype=torch.float64)
    weights, converged, clamped = solve_getmtl(gramian, 1.0)
    assert bool(clamped)
    assert bool(converged)
    torch.testing.assert_close(weights, getmtl_weights(gramian, 0.9, relative=True))
    assert not bool(solve_getmtl(gramian, 1e-3).clamped)


@given(jacobian=jacobians(kinds=("gaussian", "duplicates", "agreeing", "zeros", "all zero")), kappa=kappas)
@few
def test_permuting_tasks_permutes_weights(jacobian: Tensor, kappa: float) -> None:
    gramian, order = jacobian @ jacobian.T, permutation(len(jacobian))
    for exact in (False, True):
        expected = getmtl_weights(gramian, kappa, relative=True, exact=exact)[order]
        permuted = getmtl_weights(gramian[order][:, order], kappa, relative=True, exact=exact)
        difference = jacobian[order].T @ (permuted - expected)
        assert relative(difference, jacobian.norm(dim=1).max()) <= 1e-6


def test_every_trial_of_a_batch_may_have_its_own_eps() -> None:
    jacobian = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.mT
    both = getmtl_weights(gramian, tensor(0.01, 0.2))
    torch.testing.assert_close(both[1], getmtl_weights(gramian[1], 0.2), rtol=0, atol=0)
