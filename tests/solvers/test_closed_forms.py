from collections.abc import Callable

import pytest
import torch
from gramians import few, jacobians, permutation, relative, single_precision
from hypothesis import given
from torch import Tensor
from torchjd.aggregation import AlignedMTLWeighting, IMTLGWeighting

from mtlscale.solvers import aligned_weights, imtl_g_weights


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("gramian", "expected"),
    [
        # K⁻¹(2, 1) = ⅓ [[1, 1], [1, 4]] (2, 1) = (1, 2), over its sum
        ([[4.0, -1.0], [-1.0, 1.0]], (1 / 3, 2 / 3)),
        # orthogonal: w_i proportional to 1/‖g_i‖
        ([[1.0, 0.0], [0.0, 16.0]], (0.8, 0.2)),
        # a duplicated task shares its weight
        ([[1.0, 0, 0], [0, 1, 1], [0, 1, 1]], (0.5, 0.25, 0.25)),
        # g and 2g: every w does; K⁺ gives the shortest, proportional to (1, 2)
        ([[1.0, 2.0], [2.0, 4.0]], (1 / 3, 2 / 3)),
        ([[0.0, 0.0], [0.0, 0.0]], (0.5, 0.5)),
        ([[4.0]], (1.0,)),
    ],
)
def test_imtl_g_by_hand(gramian: list[list[float]], expected: tuple[float, ...]) -> None:
    weights, converged = imtl_g_weights(torch.tensor(gramian, dtype=torch.float64))
    torch.testing.assert_close(weights, tensor(*expected), rtol=1e-12, atol=1e-12)
    assert bool(converged)


def test_imtl_g_fails_aloud_where_no_direction_has_equal_projections() -> None:
    weights, converged = imtl_g_weights(torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64))
    assert not bool(converged)
    assert torch.equal(weights, tensor(0.0, 0.0))


@pytest.mark.parametrize("longer", [1.0, 1.0 + 1e-3, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_imtl_g_of_opposed_gradients_stays_small(longer: float, dtype: torch.dtype) -> None:
    """Opposed up to rounding there is no such direction; a little apart, it is their short sum of unit gradients."""
    generator, eps = torch.Generator().manual_seed(0), torch.finfo(dtype).eps
    first, other, third = torch.randn(3, 1000, generator=generator).to(dtype)
    for jacobian in (torch.stack([first, -longer * first]), torch.stack([first, -longer * first, third])):
        weights, converged = imtl_g_weights((jacobian @ jacobian.T).double(), precision=eps)
        assert not bool(converged)
        assert float(weights.abs().max()) <= (0.0 if len(jacobian) == 2 else 2.0)
    apart = torch.stack([first, -longer * first + 1e-2 * other])
    weights, converged = imtl_g_weights((apart @ apart.T).double(), precision=eps)
    assert bool(converged)
    sizes = apart.double().norm(dim=1)
    torch.testing.assert_close(weights, sizes.flip(0) / sizes.sum())


def test_imtl_g_without_an_exact_answer_is_bounded() -> None:
    """Four gradients in a plane: the least-squares weights may nearly cancel, and are not divided by what is left."""
    jacobian = torch.randn(400, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, converged = imtl_g_weights(jacobian @ jacobian.mT)
    assert not bool(converged.any())
    assert float(weights.abs().sum(-1).max()) <= 100.0
    assert bool((weights.abs().sum(-1) == 0).any())


SCALES = ("min", "median", "rmse")
SOLVERS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "imtl_g": lambda gramian, eps: imtl_g_weights(gramian, precision=eps).weights,
    **{scale: lambda gramian, eps, scale=scale: aligned_weights(gramian, scale, precision=eps) for scale in SCALES},  # type: ignore[misc]
}


@pytest.mark.parametrize("kind", ["a sum", "an uneven sum", "rank 3 of 5"])
@pytest.mark.parametrize("method", SOLVERS)
def test_rank_is_judged_by_the_gradients_precision(method: str, kind: str) -> None:
    """Dependent gradients in float32 have a Gramian of full rank in float64: the direction must not be its inverse."""
    solve, misled = SOLVERS[method], []
    for seed in range(8):
        exact, rounded = single_precision(kind, seed, 300 if seed % 2 else 10_000)
        gramian = (rounded @ rounded.T).double()
        expected = exact.T @ solve(exact @ exact.T, torch.finfo(torch.float64).eps)
        found = rounded.double().T @ solve(gramian, torch.finfo(torch.float32).eps)
        assert expected.norm() > 0
        assert relative((found - expected).norm(), expected.norm()) <= 1e-3
        untold = rounded.double().T @ solve(gramian, torch.finfo(torch.float64).eps)
        misled.append(relative((untold - expected).norm(), expected.norm()))
    assert method == "median" or max(misled) > 0.05


@pytest.mark.parametrize("method", SOLVERS)
def test_precision_changes_nothing_for_independent_gradients(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    jacobian = torch.randn(2, 4, 9, dtype=torch.float64, generator=generator)
    gramian = jacobian @ jacobian.mT
    told = torch.tensor([torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps])
    weights = SOLVERS[method](gramian, told)  # type: ignore[arg-type]
    torch.testing.assert_close(weights[0], SOLVERS[method](gramian[0], 0.0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights[1], SOLVERS[method](gramian[1], 0.0), rtol=1e-12, atol=1e-12)


@given(jacobian=jacobians())
@few
def test_imtl_g_projections_are_equal_or_the_failure_is_flagged(jacobian: Tensor) -> None:
    weights, converged = imtl_g_weights(jacobian @ jacobian.T)
    assert bool(weights.isfinite().all())
    sizes = jacobian.norm(dim=1)
    if bool(converged) and sizes.max() > 0:
        live = sizes > 0
        projections = (jacobian @ (jacobian.T @ weights))[live] / sizes[live]
        assert relative(projections - projections.mean(), (weights.abs() * sizes).sum()) <= 1e-5


def test_imtl_g_agrees_with_torchjd_for_independent_gradients() -> None:
    jacobian = torch.randn(5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    torch.testing.assert_close(imtl_g_weights(gramian).weights, IMTLGWeighting()(gramian))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        # K = diag(4, 1): every component brought to √1, √1 (torch's lower median), √2.5
        ("min", (0.25, 0.5)),
        ("median", (0.25, 0.5)),
        ("rmse", (0.25 * 2.5**0.5, 0.5 * 2.5**0.5)),
    ],
)
def test_aligned_by_hand(scale: str, expected: tuple[float, ...]) -> None:
    torch.testing.assert_close(aligned_weights(torch.diag(tensor(4.0, 1.0)), scale), tensor(*expected))


@pytest.mark.parametrize("scale", ["min", "median", "rmse"])
def test_aligned_agrees_with_torchjd_and_batches(scale: str) -> None:
    jacobian = torch.randn(3, 5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.mT
    expected = torch.stack([AlignedMTLWeighting(scale_mode=scale)(part) for part in gramian])
    torch.testing.assert_close(aligned_weights(gramian, scale), expected)


@given(jacobian=jacobians(kinds=("gaussian", "duplicates", "zeros", "all zero")))
@few
def test_aligned_is_equivariant_and_blind_to_scale(jacobian: Tensor) -> None:
    gramian, order = jacobian @ jacobian.T, permutation(len(jacobian))
    weights = aligned_weights(gramian)
    assert bool(weights.isfinite().all())
    torch.testing.assert_close(aligned_weights(gramian[order][:, order]), weights[order], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(aligned_weights(16.0 * gramian), weights, rtol=1e-5, atol=1e-6)


def test_aligned_of_zero_gradients_is_equal_and_of_one_task_itself() -> None:
    assert torch.equal(aligned_weights(torch.zeros(2, 2).double()), tensor(0.5, 0.5))
    torch.testing.assert_close(aligned_weights(torch.full((1, 1), 9.0).double()), tensor(1.0))
