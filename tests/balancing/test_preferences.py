"""Balancers with a preference: their equations once more, by differentiation and by trying every vertex."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.config.preferences import central, ray_of, rays
from mtlscale.config.registry.components import build
from mtlscale.solvers import epo_weights, min_norm_weights, pmgda_weights

NAMES = ("linear_scalarization", "pbi", "cosmos", "epo", "pmgda")


def problem(seed: int, tasks: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses [T], the Gramian of T + 2 parameters, and a preference; every fifth case has a zero gradient."""
    generator = np.random.default_rng(seed)
    jacobian = 10.0 ** generator.integers(-3, 4) * generator.standard_normal((tasks, tasks + 2))
    if seed % 5 == 0:
        jacobian[0] = 0.0
    losses = np.exp(generator.standard_normal(tasks))
    return (
        torch.from_numpy(losses),
        torch.from_numpy(jacobian @ jacobian.T),
        torch.from_numpy(generator.dirichlet(np.ones(tasks))),
    )


def best_vertex(gain: np.ndarray, bounds: np.ndarray, bound: np.ndarray, total: np.ndarray) -> float:
    """Return the largest gain · x under bounds x >= bound, total · x = 1, by trying every vertex."""
    best, size = -np.inf, len(gain)
    for active in itertools.combinations(range(len(bounds)), size - 1):
        system = np.vstack([bounds[list(active)], total])
        if np.linalg.cond(system) < 1e9:
            point = np.linalg.solve(system, np.append(bound[list(active)], 1.0))
            if (bounds @ point >= bound - 1e-9 * (1 + np.abs(bound))).all():
                best = max(best, float(gain @ point))
    return best


@pytest.mark.parametrize(
    ("name", "options", "scalar"),
    [
        ("linear_scalarization", {}, lambda losses, r: (r * losses).sum()),
        (
            "cosmos",
            {"lam": 3.0},
            lambda losses, r: (r * losses).sum() - 3.0 * torch.cosine_similarity(r, losses, dim=0),
        ),
        (
            "pbi",
            {"theta": 2.0},
            lambda losses, r: (u := (1 / r) / (1 / r).norm()) @ losses + 2.0 * (losses - (u @ losses) * u).norm(),
        ),
    ],
)
def test_weights_are_the_gradient_of_the_scalarisation(name: str, options: dict[str, Any], scalar: Any) -> None:
    for seed in range(200):
        losses, _, preference = problem(seed, 2 + seed % 4)
        balancer = build("balancers", name, options)
        state = {**balancer.init(len(losses)), "preference": preference}
        leaf = losses.clone().requires_grad_()
        (expected,) = torch.autograd.grad(scalar(leaf, preference), leaf)
        weights, _ = balancer(losses, None, state)
        torch.testing.assert_close(weights, expected, rtol=1e-8, atol=1e-8)


def test_epo_is_the_best_vertex_of_its_linear_program() -> None:
    modes = set()
    for seed in range(200):
        losses, gramian, r = problem(seed, 2 + seed % 3)
        if seed % 4 == 0:
            losses = 0.7 / r  # on the ray: the descent
        weights = epo_weights(gramian, losses, r, 1e-4).weights.numpy()
        k, tasks = (gramian / gramian.diagonal().max()).numpy(), len(losses)
        products = (r * losses).numpy()
        p = products / products.sum()
        mu = float((p * np.log(p * tasks)).sum())
        move = k @ (r.numpy() * (np.log(p * tasks) - mu))
        if mu > 1e-4:
            bound = np.where(products == products.max(), 0.0, np.where(move > 0, -np.inf, move))
            bound = bound if (move > 0).any() else np.zeros(tasks)
            gain, bounds = move, k[np.isfinite(bound)]
            bound = bound[np.isfinite(bound)]
        else:
            gain, bounds = k.sum(0), np.vstack([k, move])
            bound = np.append(np.zeros(tasks), min(move.max(), 0.0))
        modes.add(mu > 1e-4)
        assert weights.sum() == pytest.approx(1.0) and weights.min() >= -1e-12
        assert (bounds @ weights >= bound - 1e-7).all()
        best = best_vertex(gain, np.vstack([bounds, np.eye(tasks)]), np.append(bound, np.zeros(tasks)), np.ones(tasks))
        assert gain @ weights == pytest.approx(best, abs=1e-8)
    assert modes == {True, False}


def test_pmgda_corrects_by_the_best_vertex_and_descends_as_mgda() -> None:
    for seed in range(120):
        losses, gramian, r = problem(seed, 2 + seed % 2)
        ray = (1 / r) / (1 / r).norm()
        tasks = len(losses)
        torch.testing.assert_close(
            pmgda_weights(gramian, 2.0 * ray, ray, 0.01, 0.9).weights, min_norm_weights(gramian), rtol=1e-9, atol=1e-12
        )
        aside = losses - (losses @ ray) * ray
        if float(aside.norm()) < 0.02 or seed % 5 == 0:
            continue
        weights = pmgda_weights(gramian, losses, ray, 0.01, 0.9).weights.numpy()
        k, slope = gramian.numpy(), (aside / aside.norm()).numpy()
        combined = np.vstack([np.eye(tasks), slope])
        full = combined @ k @ combined.T
        lengths = np.sqrt(full.diagonal())
        inner = full / lengths
        # x = shares (T + 1), then the least descent
        bounds = np.vstack(
            [
                np.hstack([inner, -np.append(np.ones(tasks), 0.0)[:, None]]),
                np.hstack([np.eye(tasks + 1), np.zeros((tasks + 1, 1))]),
            ]
        )
        bound = np.concatenate([np.zeros(tasks), [0.9 * lengths[-1]], np.zeros(tasks + 1)])
        scale = np.sqrt(k.diagonal().max())
        best = best_vertex(
            np.append(np.zeros(tasks + 1), 1.0) / scale,
            bounds / scale,
            bound / scale,
            np.append(np.ones(tasks + 1), 0.0),
        )
        assert (k @ weights).min() / scale == pytest.approx(best, abs=1e-7)
        assert slope @ k @ weights >= 0.9 * lengths[-1] * (1 - 1e-7)


@pytest.mark.parametrize("name", ["epo", "pmgda"])
def test_exact_methods_reach_the_ray_of_a_convex_problem(name: str) -> None:
    """Two squared distances in the plane: at the end r_t ℓ_t are equal."""
    targets = torch.tensor([[1.0, 0.0], [-1.0, 0.5]], dtype=torch.float64)
    for preference in ([0.8, 0.2], [0.4, 0.6]):
        balancer = build("balancers", name, {"preference": preference})
        point, state = torch.tensor([0.3, 1.0], dtype=torch.float64), balancer.init(2)
        for step in range(150):
            errors = point - targets
            losses = errors.square().sum(1)
            weights, state = balancer(losses, 4 * errors @ errors.T, state)
            point = point - 0.1 / (1 + 0.05 * step) * (2 * errors.T @ weights)
        products = torch.tensor(preference, dtype=torch.float64) * losses
        assert float(products.max() / products.min()) < 1.15, (preference, losses)


def test_an_even_grid_of_rays() -> None:
    assert rays("x", 2, 5) == [pytest.approx((0.1 + 0.2 * k, 0.9 - 0.2 * k)) for k in range(5)]
    grid = rays("x", 3, 10)
    assert len(set(grid)) == 10 and all(sum(ray) == pytest.approx(1.0) and min(ray) > 0 for ray in grid)
    assert grid[central(grid)] == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert ray_of("x", 2, "2 of 5") == pytest.approx((0.3, 0.7))
    assert rays("x", 1, 1) == [(1.0,)]
    with pytest.raises(UserError, match="x: 3 tasks have no even grid of 5 rays; choose 3 or 6"):
        rays("x", 3, 5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"preference": [0.7, 0.7]}, r"epo: preference \[0.7, 0.7\] sums to 1.4; make it sum to 1"),
        ({"preference": [-0.5, 1.5]}, r"epo: preference = \[-0.5, 1.5\] is outside \[0, 1\]"),
        ({"preference": [0.5, 0.5], "ray": "1 of 2"}, "epo: has a preference and a ray; drop one"),
        ({"ray": "6 of 5"}, "epo: ray '6 of 5' should be 'k of K', such as '2 of 5'"),
        ({"preference": 0.5}, "epo: preference = 0.5 should be a list"),
    ],
)
def test_what_is_no_preference_is_said_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        build("balancers", "epo", options)
    assert "\n" not in str(caught.value)


def test_a_preference_of_another_length_is_refused() -> None:
    with pytest.raises(UserError, match="epo: preference has 3 entries, but there are 2 tasks"):
        build("balancers", "epo", {"preference": [0.2, 0.3, 0.5]}).init(2)


@pytest.mark.parametrize("name", NAMES)
def test_a_preference_matters_and_may_be_zero(name: str) -> None:
    losses, gramian = torch.tensor([1.0, 1.0]).double(), torch.tensor([[1.0, -0.5], [-0.5, 1.0]]).double()
    answers = []
    for preference in ([1.0, 0.0], [0.5, 0.5], [0.0, 1.0]):
        options = {"lam": 0.5} if name == "cosmos" else {}  # a larger λ turns the preference round
        balancer = build("balancers", name, {"preference": preference, **options})
        weights, _ = balancer(losses, gramian, balancer.init(2))
        assert bool(weights.isfinite().all())
        answers.append(weights)
    assert float(answers[0][0]) > float(answers[0][1]), "the only task that matters weighs more"
    torch.testing.assert_close(answers[0], answers[2].flip(0))
