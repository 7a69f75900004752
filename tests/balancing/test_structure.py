"""What other libraries assert of aggregations of gradients, for every rule in both precisions, in a loop of one's own.

Of order, scale, conflicts and linearity a rule is held to what docs/site/properties.json says of it.
"""

from __future__ import annotations

import properties
import pytest
import torch
from bounds import Update, own_loop
from torch import Tensor

from mtlscale.balancing import Balancer
from mtlscale.config import build, names

# One that looks ahead is not for a loop of one's own.
RULES = [name for name in names("balancers", plugins=False) if properties.default(name) and name != "look_ahead"]
TYPES = (torch.float64, torch.float32)
MIN_NORM = ("mgda", "mgda_ub", "log_losses", "smooth")  # the shortest vector of the hull of the gradients
PROJECTIONS = ("upgrad", "dual_proj")  # onto the directions that no task loses by
SHAPES = ((2, 5), (5, 20), (9, 11))
FULL = tuple((tasks, parameters, tasks) for tasks, parameters in SHAPES)
RANKS = (*FULL, (5, 7, 1), (9, 5, 5), (9, 11, 8))


def make(name: str, tasks: int) -> Balancer:
    options = {"weights": [1.0 + task for task in range(tasks)]} if name == "static" else {}
    balancer: Balancer = build("balancers", name, options)
    return balancer


def matrix(tasks: int, parameters: int, rank: int, scale: float = 1.0) -> Tensor:
    """Gradients [T, P] of this rank, float64."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(tasks, rank, dtype=torch.float64, generator=generator)
    return scale * left @ torch.randn(rank, parameters, dtype=torch.float64, generator=generator)


def update(name: str, jacobian: Tensor, dtype: torch.dtype, losses: Tensor | None = None) -> Update:
    return own_loop(make(name, len(jacobian)), jacobian.to(dtype), None if losses is None else losses.tolist())


def spread(tasks: int) -> Tensor:
    """Losses [T] that all differ."""
    return 0.5 + torch.arange(tasks, dtype=torch.float64) / tasks


def tolerance(dtype: torch.dtype) -> float:
    return 1e-6 if dtype == torch.float64 else 2e-3


def keeping(mark: str) -> list[str]:
    """The rules of which the table says that they keep it, at least in the first step."""
    return [name for name in RULES if properties.known()[name][mark] != properties.NO]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", RULES)
def test_an_update_is_a_finite_gradient(name: str, dtype: torch.dtype) -> None:
    for tasks, parameters, rank in (*RANKS, (1, 5, 1), (3, 1, 1)):
        for scale in (1e-4, 1e4):
            direction = update(name, matrix(tasks, parameters, rank, scale), dtype).direction
            assert direction.shape == (parameters,)
            assert bool(direction.isfinite().all()), (tasks, parameters, rank, scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", RULES)
def test_nothing_moves_without_gradients_and_one_task_follows_its_own(name: str, dtype: torch.dtype) -> None:
    for tasks in (1, 2, 5):
        assert not bool(update(name, torch.zeros(tasks, 7, dtype=torch.float64), dtype).direction.any())
    alone = matrix(1, 7, 1)
    torch.testing.assert_close(update(name, alone, dtype).direction, alone[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", keeping("no conflict"))
def test_no_loss_rises_along_an_update(name: str, dtype: torch.dtype) -> None:
    for tasks, parameters, rank in RANKS:
        found = update(name, matrix(tasks, parameters, rank), dtype)
        least = -tolerance(dtype) * found.norms * found.norms.max()
        assert found.failed or bool((found.jacobian @ found.direction >= least).all()), (tasks, parameters, rank)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [name for name in keeping("order") if name != "static"])
def test_the_order_of_tasks_does_not_matter(name: str, dtype: torch.dtype) -> None:
    for tasks, parameters, rank in RANKS:
        jacobian, losses, order = matrix(tasks, parameters, rank), spread(tasks), torch.arange(tasks).roll(1)
        found, other = update(name, jacobian, dtype, losses), update(name, jacobian[order], dtype, losses[order])
        difference = float((found.direction - other.direction).norm())
        assert difference <= tolerance(dtype) * float(found.norms.max()), (tasks, parameters, rank)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", keeping("linear"))
def test_an_update_is_linear_in_the_factors_of_losses(name: str, dtype: torch.dtype) -> None:
    for tasks, parameters, rank in FULL:
        jacobian, losses = matrix(tasks, parameters, rank), spread(tasks)
        first, second = 0.2 + torch.rand(2, tasks, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        by_first, by_second, by_both = (
            update(name, factors[:, None] * jacobian, dtype, factors * losses).direction
            for factors in (first, second, 2.0 * first + 3.0 * second)
        )
        difference = float((by_both - 2.0 * by_first - 3.0 * by_second).norm())
        assert difference <= tolerance(dtype) * float(by_both.norm()), (tasks, parameters)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", keeping("scale"))
def test_factors_of_losses_leave_an_updates_direction(name: str, dtype: torch.dtype) -> None:
    for tasks, parameters, rank in FULL:
        jacobian, losses = matrix(tasks, parameters, rank), spread(tasks)
        factors = 10.0 ** torch.linspace(-1, 1, tasks, dtype=torch.float64)
        plain = update(name, jacobian, dtype, losses).direction
        scaled = update(name, factors[:, None] * jacobian, dtype, factors * losses).direction
        assert float((scaled / scaled.norm() - plain / plain.norm()).norm()) <= tolerance(dtype), (tasks, parameters)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*MIN_NORM, *PROJECTIONS])
def test_at_a_strongly_stationary_point_nothing_moves(name: str, dtype: torch.dtype) -> None:
    """Positive weights make the gradients cancel."""
    for tasks, parameters in SHAPES:
        jacobian = matrix(tasks, parameters, tasks)
        weights = 0.2 + torch.rand(tasks, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        jacobian[-1] = -(weights[:-1] @ jacobian[:-1]) / weights[-1]
        found = update(name, jacobian, dtype)
        assert float(found.direction.norm()) <= tolerance(dtype) * float(found.norms.max()), (tasks, parameters)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MIN_NORM)
def test_at_a_weakly_stationary_point_the_shortest_vector_is_none(name: str, dtype: torch.dtype) -> None:
    """Some weights that make the gradients cancel are 0."""
    for tasks, parameters in SHAPES[1:]:
        jacobian = matrix(tasks, parameters, tasks)
        jacobian[-1] = -jacobian[0] - 2.0 * jacobian[1]
        found = update(name, jacobian, dtype)
        assert float(found.direction.norm()) <= tolerance(dtype) * float(found.norms.max()), (tasks, parameters)
