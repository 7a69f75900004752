import torch
from gramians import few, jacobians
from hypothesis import given
from torch import Tensor
from torchjd.aggregation import GradVacWeighting

from mtlscale.solvers import gradvac_weights, pcgrad_weights


def orders(tasks: int) -> Tensor:
    generator = torch.Generator().manual_seed(tasks)
    return torch.stack([torch.randperm(tasks, generator=generator) for _ in range(tasks)])


def test_two_tasks_by_hand() -> None:
    """K = [[4, -1], [-1, 1]]: cosine -½; target 0: v₁ = g₁ + g₂, v₂ = g₂ + g₁/4, targets move to -½ β.

    Target ½: w = ‖g₁‖ (½ √¾ + ½ √¾)/(‖g₂‖ √¾) = 2, and 1/2 for the other task.
    """
    gramian = torch.tensor([[4.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    zero = torch.zeros(2, 2, dtype=torch.float64)
    weights, targets = gradvac_weights(gramian, zero, 0.1, orders(2))
    torch.testing.assert_close(weights, torch.tensor([1.25, 2.0], dtype=torch.float64))
    torch.testing.assert_close(targets, torch.tensor([[0.0, -0.05], [-0.05, 0.0]], dtype=torch.float64))
    weights, _ = gradvac_weights(gramian, zero + 0.5, 0.1, orders(2))
    torch.testing.assert_close(weights, torch.tensor([1.5, 3.0], dtype=torch.float64))


def test_a_correction_reaches_the_target() -> None:
    jacobian = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = torch.full((2, 2), 0.95, dtype=torch.float64)
    gramian = jacobian @ jacobian.T
    one_way = targets.clone()
    one_way[1] = -1.0  # task 2 stays as it is
    weights, _ = gradvac_weights(gramian, one_way, 0.0, orders(2))
    corrected = jacobian.T @ weights - jacobian[1]
    cosine = corrected @ jacobian[1] / (corrected.norm() * jacobian[1].norm())
    torch.testing.assert_close(cosine, torch.tensor(0.95, dtype=torch.float64))


def test_follows_torchjd_over_steps() -> None:
    generator = torch.Generator().manual_seed(2)
    theirs, targets = GradVacWeighting(beta=0.3, eps=0.0), torch.zeros(2, 2, dtype=torch.float64)
    for _ in range(6):
        jacobian = torch.randn(2, 5, dtype=torch.float64, generator=generator)
        weights, targets = gradvac_weights(jacobian @ jacobian.T, targets, 0.3, orders(2))
        torch.testing.assert_close(weights, theirs(jacobian @ jacobian.T))


@given(jacobian=jacobians())
@few
def test_from_zero_targets_it_is_pcgrad_and_stays_finite(jacobian: Tensor) -> None:
    gramian, order = jacobian @ jacobian.T, orders(len(jacobian))
    zero = torch.zeros_like(gramian)
    weights, targets = gradvac_weights(gramian, zero, 0.0, order)
    torch.testing.assert_close(weights, pcgrad_weights(gramian, order), rtol=1e-6, atol=1e-6)
    assert torch.equal(targets, zero)
    weights, targets = gradvac_weights(gramian, torch.ones_like(gramian), 1.0, order)
    assert bool(weights.isfinite().all())
    assert targets.abs().max() <= 1.0
