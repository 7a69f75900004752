"""Methods that see the gradients themselves."""

import torch
from torch import Tensor
from torchjd.aggregation import ExcessMTLWeighting, GradDrop

from mtlscale.balancing import JacobianBalancer
from mtlscale.config import build
from mtlscale.solvers import min_norm_weights


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def split(jacobian: Tensor) -> list[Tensor]:
    """[T, 6] as two parameters of shapes [2] and [2, 2]."""
    return [jacobian[:, :2], jacobian[:, 2:].reshape(-1, 2, 2)]


def joined(direction: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in direction])


def run(balancer: JacobianBalancer, jacobians: list[Tensor], seed: int = 0) -> list[Tensor]:
    tasks = len(jacobians[0])
    state, answers = balancer.init(tasks, seed=seed), []
    for jacobian in jacobians:
        direction, state = balancer.direction(split(jacobian), torch.ones(tasks).double(), state)
        assert [part.shape for part in direction] == [(2,), (2, 2)]
        answers.append(joined(direction))
    return answers


def test_graddrop_keeps_one_sign_per_coordinate() -> None:
    jacobian = randn(0, 4, 6)
    jacobian[:, 0] = jacobian[:, 0].abs()  # P = 1: all kept
    jacobian[:, 1] = -jacobian[:, 1].abs()  # P = 0: all kept
    jacobian[:, 2] = 0.0
    balancer = build("balancers", "graddrop", {})
    for direction in run(balancer, [jacobian] * 5):
        torch.testing.assert_close(direction[:2], jacobian[:, :2].sum(0))
        assert direction[2] == 0
        for column, value in zip(jacobian[:, 3:].T, direction[3:], strict=True):
            choices = torch.stack([column.clamp(min=0).sum(), column.clamp(max=0).sum()])
            assert (choices - value).abs().min() <= 1e-12


def test_graddrop_keeps_positive_parts_with_their_purity() -> None:
    """Gradients 3 and -1 in every coordinate: P = ½(1 + 2/4) = ¾."""
    jacobian = torch.tensor([[3.0], [-1.0]], dtype=torch.float64).expand(2, 20_000)
    balancer = build("balancers", "graddrop", {})
    direction, _ = balancer.direction([jacobian], torch.ones(2).double(), balancer.init(2, seed=1))
    assert set(direction[0].unique().tolist()) == {3.0, -1.0}
    assert abs(float((direction[0] > 0).double().mean()) - 0.75) <= 0.015


def test_graddrop_leak_lets_the_sum_through_as_torchjd_does() -> None:
    jacobian = randn(1, 3, 6)
    (everything,) = run(build("balancers", "graddrop", {"leak": 1.0}), [jacobian])
    torch.testing.assert_close(everything, GradDrop(leak=torch.ones(3).double())(jacobian))
    (half,) = run(build("balancers", "graddrop", {"leak": 0.5}), [jacobian], seed=5)
    (none,) = run(build("balancers", "graddrop", {}), [jacobian], seed=5)
    torch.testing.assert_close(half, 0.5 * (everything + none))


def test_graddrop_draws_from_seed_and_step() -> None:
    jacobian = randn(2, 3, 6)
    balancer = build("balancers", "graddrop", {})
    once, again, other = (run(balancer, [jacobian] * 8, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(once, other, strict=True))
    assert not all(torch.equal(once[0], b) for b in once)


def test_excess_mtl_follows_torchjd_after_its_warm_up_step() -> None:
    """TorchJD with one warm-up step has the same baseline; its 1e-7 in the denominators is the difference."""
    theirs = ExcessMTLWeighting(robust_step_size=0.3, n_warmup_steps=1)
    jacobians = [randn(seed, 3, 6) for seed in range(5)]
    ours = run(build("balancers", "excess_mtl", {"lr": 0.3}), jacobians)
    for jacobian, direction in zip(jacobians, ours, strict=True):
        torch.testing.assert_close(direction, jacobian.T @ theirs(jacobian), rtol=1e-4, atol=1e-5)


def test_excess_mtl_does_not_see_scale_and_survives_silence() -> None:
    jacobians = [randn(seed, 3, 6) for seed in range(3)]
    balancer = build("balancers", "excess_mtl", {})
    small = run(balancer, [1e-12 * jacobian for jacobian in jacobians])
    for one, other in zip(run(balancer, jacobians), small, strict=True):
        torch.testing.assert_close(1e-12 * one, other, rtol=1e-9, atol=0)
    (silent,) = run(balancer, [torch.zeros(3, 6, dtype=torch.float64)])
    assert not silent.any()


def test_moco_by_hand() -> None:
    """J = diag(2, 1), β = ½: Y = diag(1, ½), YYᵀλ = (½, ⅛) over 1; λ = (½, ½) - γ (½, ⅛), projected: ½ ∓ 3γ/16."""
    balancer = build("balancers", "moco", {"beta": 0.5, "gamma": 0.8})
    direction, state = balancer.direction(
        [torch.diag(torch.tensor([2.0, 1.0]).double())], torch.ones(2).double(), balancer.init(2)
    )
    torch.testing.assert_close(state["weights"], torch.tensor([0.35, 0.65]).double())
    torch.testing.assert_close(direction[0], torch.tensor([0.35, 0.325]).double())


def test_moco_on_constant_gradients_finds_the_min_norm_point() -> None:
    jacobian = randn(3, 3, 6)
    directions = run(build("balancers", "moco", {"beta": 1.0, "gamma": 5.0}), [jacobian] * 4000)
    expected = jacobian.T @ min_norm_weights(jacobian @ jacobian.T)
    torch.testing.assert_close(directions[-1], expected, rtol=0, atol=0.02)


def test_moco_is_blind_to_scale_and_plain_for_one_task() -> None:
    jacobians = [randn(seed, 3, 6) for seed in range(3)]
    balancer = build("balancers", "moco", {})
    small = run(balancer, [1e-12 * jacobian for jacobian in jacobians])
    for one, other in zip(run(balancer, jacobians), small, strict=True):
        torch.testing.assert_close(1e-12 * one, other, rtol=1e-9, atol=0)
    single = [randn(seed, 1, 6) for seed in range(2)]
    for jacobian, direction in zip(single, run(balancer, single), strict=True):
        assert torch.equal(direction, jacobian[0])


def test_permuting_tasks_changes_nothing_and_one_task_is_its_gradient() -> None:
    for name in ("excess_mtl", "moco", "graddrop"):
        balancer = build("balancers", name, {})
        jacobians = [randn(seed, 4, 6) for seed in range(3)]
        order = [2, 0, 3, 1]
        for one, other in zip(run(balancer, jacobians), run(balancer, [j[order] for j in jacobians]), strict=True):
            torch.testing.assert_close(one, other)
        for scale in (1e-12, 1.0, 1e12):
            (single,) = run(balancer, [scale * randn(9, 1, 6)])
            torch.testing.assert_close(single, scale * randn(9, 1, 6)[0], rtol=1e-12, atol=0)
