import itertools

import numpy as np
import pytest
import torch
from gramians import few
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from mtlscale.solvers import prox_element, prox_exclusive

PROX = {"element": prox_element, "exclusive": prox_exclusive}
both = pytest.mark.parametrize("kind", list(PROX))
steps = st.sampled_from((1e-3, 0.1, 0.7, 3.0, 40.0))


def groups(seed: int, shape: tuple[int, ...] = (3, 4, 5)) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def penalty(kind: str, theta: Tensor) -> Tensor:
    norms = theta.norm(dim=-1)
    return norms.sum() if kind == "element" else 0.5 * norms.sum(-1).square().sum()


def objective(kind: str, theta: Tensor, given_theta: Tensor, step: float) -> float:
    return float((theta - given_theta).square().sum() / (2 * step) + penalty(kind, theta))


def test_element_by_hand() -> None:
    """A group of norm 5 shrinks by 2 to norm 3; one of norm 1 vanishes."""
    theta = torch.tensor([[[3.0, 4.0], [0.6, 0.8]]], dtype=torch.float64)
    expected = torch.tensor([[[1.8, 2.4], [0.0, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(prox_element(theta, 2.0), expected)


def test_exclusive_by_hand() -> None:
    """Norms 5 and 1, s = 1: A = max(5/2, 6/3) = 5/2, so norm 5 becomes 5/2 and norm 1 vanishes."""
    theta = torch.tensor([[[3.0, 4.0], [0.6, 0.8]]], dtype=torch.float64)
    expected = torch.tensor([[[1.5, 2.0], [0.0, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(prox_exclusive(theta, 1.0), expected)
    # one task: a/(1 + s)
    torch.testing.assert_close(prox_exclusive(theta[:, :1], 1.0), theta[:, :1] / 2)


@given(seed=st.integers(0, 999), step=steps)
@few
def test_exclusive_threshold_is_the_maximum_over_all_subsets(seed: int, step: float) -> None:
    theta = groups(seed, (1, 5, 3))
    norms = theta.norm(dim=-1)[0]
    threshold = max(
        sum(float(norms[t]) for t in chosen) / (1 / step + size)
        for size in range(1, 6)
        for chosen in itertools.combinations(range(5), size)
    )
    expected = (1 - threshold / norms).clamp(min=0)[None, :, None] * theta
    torch.testing.assert_close(prox_exclusive(theta, step), expected, rtol=1e-12, atol=1e-14)


@given(seed=st.integers(0, 999), step=steps)
@few
def test_exclusive_is_stationary(seed: int, step: float) -> None:
    theta = groups(seed)
    result = prox_exclusive(theta, step)
    norms, total = result.norm(dim=-1, keepdim=True), result.norm(dim=-1).sum(-1, keepdim=True).unsqueeze(-1)
    slope = (result - theta) / step + total * result / norms.clamp(min=1e-300)
    alive = (norms > 0).expand_as(slope)
    assert slope[alive].abs().max() <= 1e-12 * (theta.abs().max() / step)
    assert (theta.norm(dim=-1) <= step * total.squeeze(-1) * (1 + 1e-12))[norms.squeeze(-1) == 0].all()


@both
@pytest.mark.parametrize("step", [0.3, 2.0])
def test_agrees_with_a_generic_solver(kind: str, step: float) -> None:
    """On the norms alone, to which both problems reduce: each group keeps its direction."""
    theta = groups(7, (1, 4, 3))
    norms = theta.norm(dim=-1)[0].numpy()

    def value(a: np.ndarray) -> float:
        size = a.sum() if kind == "element" else 0.5 * a.sum() ** 2
        return float(((a - norms) ** 2).sum() / (2 * step) + size)

    result = minimize(value, norms, bounds=[(0, None)] * 4, method="SLSQP", options={"ftol": 1e-15})
    np.testing.assert_allclose(PROX[kind](theta, step).norm(dim=-1)[0].numpy(), result.x, atol=1e-6)


@both
@given(seed=st.integers(0, 999), step=steps)
@few
def test_no_perturbation_lowers_the_objective(kind: str, seed: int, step: float) -> None:
    theta = groups(seed)
    result = PROX[kind](theta, step)
    least = objective(kind, result, theta, step)
    for shift in range(5):
        for size in (1e-3, 0.1):
            assert objective(kind, result + size * groups(1000 + shift), theta, step) >= least
    assert objective(kind, 0.99 * result, theta, step) >= least - 1e-12 * abs(least)


@both
@given(seed=st.integers(0, 999), step=steps)
@few
def test_firmly_non_expansive(kind: str, seed: int, step: float) -> None:
    one, other = groups(seed), groups(seed + 1)
    moved, apart = PROX[kind](one, step) - PROX[kind](other, step), one - other
    assert float(moved.square().sum()) <= float((moved * apart).sum()) * (1 + 1e-12)


@both
@given(seed=st.integers(0, 999), step=steps)
@few
def test_commutes_with_permutations_and_rotations(kind: str, seed: int, step: float) -> None:
    theta, prox = groups(seed), PROX[kind]
    result = prox(theta, step)
    topics, tasks = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2])
    torch.testing.assert_close(prox(theta[topics][:, tasks], step), result[topics][:, tasks])
    rotation = torch.linalg.qr(groups(seed + 2, (5, 5)))[0]
    torch.testing.assert_close(prox(theta @ rotation, step), result @ rotation)


@given(seed=st.integers(0, 999), step=steps, factor=st.sampled_from((1e-9, 0.5, 1e9)))
@few
def test_homogeneous(seed: int, step: float, factor: float) -> None:
    theta = groups(seed)
    torch.testing.assert_close(prox_element(factor * theta, factor * step), factor * prox_element(theta, step))
    torch.testing.assert_close(prox_exclusive(factor * theta, step), factor * prox_exclusive(theta, step))


@both
def test_no_step_is_the_identity_and_zero_stays_zero(kind: str) -> None:
    theta = groups(0)
    theta[0, 1] = 0.0
    assert torch.equal(PROX[kind](theta, 0.0), theta)
    assert torch.equal(PROX[kind](theta, 0.5)[0, 1], torch.zeros(5, dtype=torch.float64))


def test_element_empties_everything_and_exclusive_no_topic() -> None:
    theta = groups(0)
    assert not prox_element(theta, float(theta.norm(dim=-1).max())).any()
    result = prox_exclusive(theta, 1e6)
    assert (result.norm(dim=-1).amax(-1) > 0).all()
    assert result.norm() <= 1e-5 * theta.norm()


def test_ties_are_handled_alike() -> None:
    theta = torch.ones(1, 3, 2, dtype=torch.float64)
    norms = prox_exclusive(theta, 0.5).norm(dim=-1)
    torch.testing.assert_close(norms, norms[:, :1].expand_as(norms))


@both
def test_every_trial_of_a_batch_may_have_its_own_step(kind: str) -> None:
    theta = groups(0, (2, 3, 4, 5))
    result = PROX[kind](theta, torch.tensor([0.1, 1.0]))
    torch.testing.assert_close(result[0], PROX[kind](theta[0], 0.1), rtol=1e-7, atol=0)
    torch.testing.assert_close(result[1], PROX[kind](theta[1], 1.0), rtol=1e-7, atol=0)


@both
def test_keeps_the_type(kind: str) -> None:
    assert PROX[kind](groups(0).float(), 0.1).dtype == torch.float32
