import pytest
import torch
from gramians import few, jacobians, permutation, relative
from hypothesis import given
from torch import Tensor
from torchjd.aggregation import PCGradWeighting

from mtlscale.solvers import pcgrad_weights


def by_the_book(jacobian: Tensor, order: Tensor) -> Tensor:
    """Algorithm 1 of Yu et al. (NeurIPS 2020) on the gradients themselves."""
    total = torch.zeros_like(jacobian[0])
    for task in range(len(jacobian)):
        vector = jacobian[task].clone()
        for other in order[task].tolist():
            if other != task and vector @ jacobian[other] < 0 and jacobian[other].norm() > 0:
                vector -= vector @ jacobian[other] / jacobian[other].square().sum() * jacobian[other]
        total += vector
    return total


def orders(tasks: int) -> Tensor:
    generator = torch.Generator().manual_seed(tasks)
    return torch.stack([torch.randperm(tasks, generator=generator) for _ in range(tasks)])


@pytest.mark.parametrize(
    ("gramian", "expected"),
    [
        # g₁ + (1/1) g₂ and g₂ + (1/4) g₁
        ([[4.0, -1.0], [-1.0, 1.0]], (1.25, 2.0)),
        ([[4.0, 1.0], [1.0, 1.0]], (1.0, 1.0)),
        ([[0.0, 0.0], [0.0, 1.0]], (1.0, 1.0)),
        ([[3.0]], (1.0,)),
    ],
)
def test_cases_worked_by_hand(gramian: list[list[float]], expected: tuple[float, ...]) -> None:
    weights = pcgrad_weights(torch.tensor(gramian, dtype=torch.float64))
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


@given(jacobian=jacobians(max_tasks=15, kinds=("gaussian", "duplicates", "zeros", "agreeing")))
@few
def test_is_algorithm_1_on_the_gradients(jacobian: Tensor) -> None:
    order = orders(len(jacobian))
    weights = pcgrad_weights(jacobian @ jacobian.T, order)
    difference = jacobian.T @ weights - by_the_book(jacobian, order)
    assert relative(difference, (weights * jacobian.norm(dim=1)).sum()) <= 1e-9


def test_a_single_order_serves_every_task() -> None:
    jacobian = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian, order = jacobian @ jacobian.T, torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(pcgrad_weights(gramian, order), pcgrad_weights(gramian, order.expand(5, 5)))


@given(jacobian=jacobians(kinds=("agreeing",)))
@few
def test_without_conflict_it_is_the_sum(jacobian: Tensor) -> None:
    assert torch.equal(pcgrad_weights(jacobian @ jacobian.T), torch.ones(len(jacobian), dtype=torch.float64))


@given(jacobian=jacobians())
@few
def test_permuting_tasks_and_orders_permutes_weights(jacobian: Tensor) -> None:
    gramian, permuted, order = jacobian @ jacobian.T, permutation(len(jacobian)), orders(len(jacobian))
    expected = pcgrad_weights(gramian, order)[permuted]
    # Row i of the new orders is that of old task permuted[i], in new names.
    renamed = permuted.argsort()[order[permuted]]
    weights = pcgrad_weights(gramian[permuted][:, permuted], renamed)
    torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-9)


@given(jacobian=jacobians())
@few
def test_finite_and_blind_to_scale(jacobian: Tensor) -> None:
    gramian, order = jacobian @ jacobian.T, orders(len(jacobian))
    weights = pcgrad_weights(gramian, order)
    assert bool(weights.isfinite().all())
    torch.testing.assert_close(pcgrad_weights(4.0 * gramian, order), weights, rtol=1e-12, atol=0)


def test_agrees_with_torchjd_where_the_order_does_not_matter() -> None:
    jacobian = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    gramian = jacobian @ jacobian.T
    torch.testing.assert_close(pcgrad_weights(gramian), PCGradWeighting()(gramian))


def test_random_orders_come_from_the_generator() -> None:
    jacobian = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    draws = [pcgrad_weights(gramian, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
