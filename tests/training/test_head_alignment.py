"""ConsMTL's heads, against the derivatives worked out by hand for linear heads and squared errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from newest_rules import fair
from numpy.typing import NDArray
from torch import nn

from mtlscale import TaskBalancer, UserError

Array = NDArray[np.float64]
LAM, LIMIT = 0.7, 0.1


@pytest.mark.parametrize("limit", [LIMIT, 1e9])
@pytest.mark.parametrize("seed", range(5))
def test_heads_follow_the_weighted_sum_of_all_gradients_at_the_representation(seed: int, limit: float) -> None:
    torch.manual_seed(seed)
    trunk = nn.Linear(4, 3).double()
    heads = nn.ModuleList(nn.Linear(3, 1).double() for _ in range(3))
    inputs, targets = torch.randn(9, 4).double(), torch.randn(9, 3).double()
    balancer = TaskBalancer("consmtl", shared=trunk, heads=heads, lam=LAM, limit=limit)

    features = trunk(inputs)
    losses = [(head(features)[:, 0] - targets[:, t]).square().mean() for t, head in enumerate(heads)]
    result = balancer.backward(losses, features=features)

    # ℓ_t = mean (z·a_t + b_t - y_t)²: ∂ℓ_t/∂z = (2/N) r a_tᵀ with the residuals r.
    x, z, y = inputs.numpy(), features.detach().numpy(), targets.numpy()
    a = np.stack([head.weight.detach().numpy()[0] for head in heads])
    b = np.array([head.bias.item() for head in heads])
    residuals = z @ a.T + b - y
    at_z = [2 / len(z) * np.outer(residuals[:, t], a[t]) for t in range(3)]
    jacobian = np.stack([np.concatenate([(g.T @ x).ravel(), g.sum(0)]) for g in at_z])
    weights = fair(jacobian, np.ones(3))
    np.testing.assert_allclose(result.weights.numpy(), weights, rtol=1e-8)
    common = sum(weight * g for weight, g in zip(weights, at_z, strict=True))

    for t, head in enumerate(heads):
        own = 2 / len(z) * np.append(residuals[:, t] @ z, residuals[:, t].sum())
        along = common @ a[t]  # ⟨a_t, D_n⟩
        added = 2 / len(z) * np.append(along @ z + residuals[:, t] @ common, along.sum())
        most = limit * np.linalg.norm(own)
        factor = LAM * min(1.0, most / (LAM * np.linalg.norm(added)))
        assert limit == LIMIT or factor == LAM
        found = np.append(head.weight.grad.numpy(), head.bias.grad.numpy())
        np.testing.assert_allclose(found, own - factor * added, rtol=1e-8, atol=1e-10)


def test_a_task_whose_inputs_are_its_own_meets_no_other() -> None:
    """The sum at its samples has its own term alone: it follows the length of its own gradient there."""
    torch.manual_seed(0)
    trunk, heads = nn.Linear(4, 3).double(), nn.ModuleList(nn.Linear(3, 1).double() for _ in range(2))
    balancer = TaskBalancer("consmtl", shared=trunk, heads=heads, lam=1e-3, limit=1e9)
    features = [trunk(torch.randn(6, 4).double()) for _ in heads]
    losses = [head(z).square().mean() for head, z in zip(heads, features, strict=True)]
    expected = []
    for head, z, loss in zip(heads, features, losses, strict=True):
        at_z, *own = torch.autograd.grad(loss, [z, *head.parameters()], create_graph=True)
        length = (at_z * at_z.detach()).sum()
        expected.append((own, torch.autograd.grad(length, list(head.parameters()), retain_graph=True)))
    result = balancer.backward(losses, features=features)
    for head, (own, added), weight in zip(heads, expected, result.weights, strict=True):
        for parameter, gradient, more in zip(head.parameters(), own, added, strict=True):
            torch.testing.assert_close(parameter.grad, gradient - 1e-3 * weight * more)


def test_what_it_needs_is_said() -> None:
    trunk, heads = nn.Linear(4, 3), nn.ModuleList(nn.Linear(3, 1) for _ in range(2))
    balancer = TaskBalancer("consmtl", shared=trunk, heads=heads)

    def losses() -> list[torch.Tensor]:
        return [head(trunk(torch.ones(2, 4))).square().mean() for head in heads]

    with pytest.raises(UserError, match=r"^consmtl reads the gradients at the features: give features to backward$"):
        balancer.backward(losses())
