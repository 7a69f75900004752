"""Methods with a look-ahead on validation gradients, and weights computed from data."""

import math

import pytest
import torch
from gramians import few, jacobians
from hypothesis import given
from torch import Tensor

from mtlscale.balancing import Balancer
from mtlscale.config import build


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def quadratic_problem(balancer: Balancer, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query losses at the look-ahead, the cross Gramian and its autograd twin: d q_t/d v_s through θ'(v)."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    queries = 9.0 + torch.randn(3, 5, dtype=torch.float64, generator=generator)  # on one side: not Pareto stationary
    theta = torch.zeros(5, dtype=torch.float64)
    gradients = targets.mean(0) - targets  # sum to zero, so that the projection onto the simplex changes nothing
    v = weights.clone().requires_grad_()
    ahead = theta - balancer.eta * (v @ gradients)  # type: ignore[attr-defined]
    losses = 0.5 * (ahead - queries).square().sum(1)
    slopes = torch.stack([torch.autograd.grad(loss, v, retain_graph=True)[0] for loss in losses])
    cross = (ahead.detach() - queries) @ gradients.T
    return losses.detach(), cross, slopes


def test_meta_weighting_by_hand() -> None:
    """C = diag(1, 4), η = η_v = 1: rows of H are (-1, 0), (0, -4); γ = (16, 1)/17; δ = -(16, 4)/17;

    v = (½, ½) + (16, 4)/17, projected: ½ ± 6/17.
    """
    balancer = build("balancers", "meta_weighting", {"eta": 1.0, "lr": 1.0})
    weights, state = balancer(tensor(1.0, 1.0), torch.diag(tensor(1.0, 4.0)), balancer.init(2))
    torch.testing.assert_close(weights, tensor(0.5 + 6 / 17, 0.5 - 6 / 17))
    assert torch.equal(balancer.lookahead(state), state["weights"])


def test_meta_weighting_lowers_every_query_loss() -> None:
    balancer = build("balancers", "meta_weighting", {"lr": 0.01})
    state = balancer.init(3)
    losses, cross, slopes = quadratic_problem(balancer, balancer.lookahead(state))
    torch.testing.assert_close(-balancer.eta * cross, slopes)  # the contract's H = -η C
    weights, _ = balancer(losses, cross, state)
    moved = weights - state["weights"]
    assert (slopes @ moved <= 1e-12).all()
    assert moved.abs().max() > 1e-5


def test_auto_lambda_descends_the_primary_losses() -> None:
    """Adam's first step is lr against the sign of the gradient, whatever its size."""
    for primary in ((), (1,)):
        balancer = build("balancers", "auto_lambda", {"primary": primary, "lr": 0.01})
        state = balancer.init(3)
        losses, cross, slopes = quadratic_problem(balancer, balancer.lookahead(state))
        weights, state = balancer(losses, cross, state)
        slope = slopes[list(primary) or [0, 1, 2]].sum(0)
        torch.testing.assert_close(weights, 0.1 - 0.01 * slope.sign(), rtol=1e-6, atol=1e-8)
        assert torch.equal(balancer.lookahead(state), weights)


def test_auto_lambda_follows_adam_and_stays_above_zero() -> None:
    balancer = build("balancers", "auto_lambda", {"lr": 0.03, "eta": 1.0})
    state, parameter = balancer.init(2), tensor(0.1, 0.1).requires_grad_()
    adam = torch.optim.Adam([parameter], lr=0.03)
    for step in range(6):
        cross = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        weights, state = balancer(tensor(1.0, 1.0), cross, state)
        parameter.grad = -cross.sum(0)
        adam.step()
        with torch.no_grad():
            parameter.clamp_(min=0)
        torch.testing.assert_close(weights, parameter.detach())


@pytest.mark.parametrize("name", ["meta_weighting", "auto_lambda"])
@given(jacobian=jacobians(min_tasks=1, max_tasks=10))
@few
def test_finite_for_any_cross_gramian(name: str, jacobian: Tensor) -> None:
    balancer = build("balancers", name, {})
    tasks = len(jacobian)
    weights, _ = balancer(torch.ones(tasks).double(), jacobian @ jacobian.flip(0).T, balancer.init(tasks))
    assert bool(weights.isfinite().all())
    assert weights.min() >= 0
    if tasks == 1:
        assert weights.tolist() == [1.0]


def test_svd_reweighting_by_hand() -> None:
    """X = I (4 samples): correlations (3, 0, 0, 0)/4 and (0, 1, 0, 0)/4; rank 1 holds all of the first task."""
    balancer = build("balancers", "svd_reweighting", {"rank": 1, "center": False})
    inputs = {"a": torch.eye(4), "b": torch.eye(4)}
    state = balancer.from_data(inputs, {"a": torch.tensor([3.0, 0, 0, 0]), "b": torch.tensor([0, 1.0, 0, 0])})
    weights, _ = balancer(tensor(1.0, 1.0), None, state)
    torch.testing.assert_close(weights, tensor(2.0, 0.0))
    both = build("balancers", "svd_reweighting", {"rank": 2, "center": False})
    state = both.from_data(inputs, {"a": torch.tensor([3.0, 0, 0, 0]), "b": torch.tensor([0, 1.0, 0, 0])})
    torch.testing.assert_close(state["weights"], tensor(1.5, 0.5))


def test_a_rank_above_the_number_of_tasks_is_that_of_all_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 6, generator=generator)
    targets = {name: torch.randn(30, generator=generator) for name in "ab"}
    found = [
        build("balancers", "svd_reweighting", {"rank": rank}).from_data(dict.fromkeys("ab", inputs), targets)
        for rank in (1, 2, 8)
    ]
    torch.testing.assert_close(found[1], found[2])
    assert not torch.allclose(found[0]["weights"], found[1]["weights"])


def test_svd_reweighting_of_classes_is_that_of_centred_signs() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(30, 6, generator=generator)
    classes = torch.randint(0, 2, (30,), generator=generator)
    numbers = torch.randn(30, generator=generator)
    balancer = build("balancers", "svd_reweighting", {"rank": 1})
    same = {"a": inputs, "b": inputs}
    by_class = balancer.from_data(same, {"a": classes, "b": numbers})
    by_sign = balancer.from_data(same, {"a": 2.0 * classes - 1.0, "b": numbers})
    torch.testing.assert_close(by_class, by_sign)


def test_standardised_svd_weights_see_neither_scales_nor_how_rare_a_class_is() -> None:
    """Both labels are signs of their input: one is balanced, the other true for one sample in ten."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 2, generator=generator)
    inputs[:, 1] = inputs[:, 1].lt(-1.28).float()
    targets = {"balanced": inputs[:, 0].gt(0).long(), "rare": inputs[:, 1].long()}

    def weights(standardise: bool, scale: float = 1.0) -> Tensor:
        balancer = build("balancers", "svd_reweighting", {"rank": 2, "standardise": standardise})
        scaled = inputs * torch.tensor([1.0, scale])
        state: Tensor = balancer.from_data(dict.fromkeys(targets, scaled), targets)["weights"]
        return state

    assert weights(False)[0] > 3 * weights(False)[1]
    torch.testing.assert_close(weights(True), weights(True, 100.0))
    assert (
        weights(True)[0] < weights(True)[1]
    )  # the sign of a Gaussian correlates with it by .8, a class with itself by 1
    assert not torch.allclose(weights(False), weights(False, 100.0))


def test_svd_reweighting_counts_labelled_samples_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(20, 4, generator=generator), torch.randn(20, generator=generator)
    classes = torch.randint(0, 3, (20,), generator=generator)
    balancer = build("balancers", "svd_reweighting", {})
    whole = balancer.from_data({"a": inputs, "b": inputs}, {"a": labels, "b": classes})
    padded = torch.cat([inputs, 99 * torch.ones(5, 4)])
    missing = {"a": torch.cat([labels, torch.full((5,), math.nan)]), "b": torch.cat([classes, torch.full((5,), -1)])}
    torch.testing.assert_close(balancer.from_data({"a": padded, "b": padded}, missing), whole)
