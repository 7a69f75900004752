"""Methods on the Gramian: frozen cases (derivations beside them) and what the solvers' own tests do not cover."""

import math

import pytest
import torch
from gramians import few, jacobians, relative
from hypothesis import given
from torch import Tensor

from mtlscale.config import build
from mtlscale.solvers import cagrad_weights, min_norm_weights

_SHARE = 1 / (1 + math.exp(1 / 6))
RELEASED = tuple(2 / (15 / 16 * 1.25) * (0.5 + 8 * (3 * _SHARE - 1) * share) for share in (_SHARE, 1 - _SHARE))
CONFLICT = ((4.0, -1.0), (-1.0, 1.0))  # g₁ = (2, 0), g₂ = (-½, √¾)


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def first(name: str, gramian: Tensor, losses: Tensor | None = None, **options: object) -> Tensor:
    balancer = build("balancers", name, options)
    tasks = gramian.shape[-1]
    return balancer(torch.ones(tasks).double() if losses is None else losses, gramian, balancer.init(tasks))[0]


@pytest.mark.parametrize(
    ("name", "options", "gramian", "expected"),
    [
        ("mgda", {}, CONFLICT, (2 / 7, 5 / 7)),  # (K₂₂ - K₁₂)/(K₁₁ + K₂₂ - 2K₁₂)
        ("mgda", {"normalize": "l2"}, CONFLICT, (0.5, 0.5)),  # two unit vectors
        ("mgda", {"normalize": "l2", "divide": True}, CONFLICT, (0.25, 0.5)),  # ... over the norms 2, 1
        ("mgda_ub", {}, CONFLICT, (2 / 7, 5 / 7)),
        ("pcgrad", {}, CONFLICT, (1.25, 2.0)),  # (1, 1) + (¼, 1)
        ("gradvac", {}, CONFLICT, (1.25, 2.0)),  # targets start at 0: PCGrad
        ("upgrad", {}, CONFLICT, (0.625, 1.0)),  # the mean of the same projections
        # K a = 1/a: a = (1, 2)/√2 with norm √(aᵀKa) = √2, cut to 1
        ("nash_mtl", {}, CONFLICT, (0.5, 1.0)),
        ("nash_mtl", {"max_norm": 0.0}, CONFLICT, (0.5**0.5, 2**0.5)),
        ("nash_mtl", {"max_norm": 9.0}, CONFLICT, (0.5**0.5, 2**0.5)),
        ("fairgrad", {"alpha": 1.0}, CONFLICT, (0.5**0.5, 2**0.5)),
        ("fairgrad", {"alpha": 2.0}, ((8.0, 0.0), (0.0, 27.0)), (8 ** (-2 / 3), 27 ** (-2 / 3))),  # K_ii^(-α/(1+α))
        ("imtl_g", {}, CONFLICT, (1 / 3, 2 / 3)),  # K⁻¹(2, 1) = (1, 2)
        ("aligned_mtl", {}, ((4.0, 0.0), (0.0, 1.0)), (0.25, 0.5)),  # ½ (√(1/4), 1)
        ("cagrad", {}, ((1.0, -0.5), (-0.5, 0.25)), (0.5, 0.75)),  # d = g₀(1 - c)
        ("getmtl", {"eps": 0.5, "relative": True}, ((1.0, -0.5), (-0.5, 0.25)), (2 / 3, 1.0)),  # d = g₀/(1 + κ)
        # g₁ = 2e, g₂ = -e: n = ½, κ = ε n = ¼, β = (⅓, ⅔), ‖g₂'‖ = ⅔: (½, ½ + κn/⅔ ⅔)/(1 - κ²)
        ("getmtl", {"eps": 0.5}, ((4.0, -2.0), (-2.0, 1.0)), (8 / 15, 2 / 3)),
        # in one dimension both problems have the same d = g₀/(1 + κ) = ⅙; by methods.md with ρ/s = ⅜ and -4/9 along
        # g₀: u/¾ + ⅜ ((0, ⅔) - 4/9 u)
        ("getmtl_exact", {"eps": 0.5, "relative": True}, ((1.0, -0.5), (-0.5, 0.25)), (7 / 12, 5 / 6)),
        # g₁ = 2e, g₂ = -e: x = (⅓, ⅔), β = (½, ½) over the norms, s = (1, e^⅙)/(1 + e^⅙), λ = (2 s₁ - s₂)/(½ ¼)
        ("getmtl_released", {"eps": 0.5}, ((4.0, -2.0), (-2.0, 1.0)), RELEASED),
        # orthogonal, ‖g‖² = 2, 1, λ = 1: w + u proportional to (1, 2), sum 2: w = (1/6, 5/6); (w + u)/2
        ("sdmgrad", {"lam": 1.0}, ((2.0, 0.0), (0.0, 1.0)), (1 / 3, 2 / 3)),
        # norms 3, 1, Ḡ = 2: slope (1.5, -0.5) - ½ (1) = (1, -1); a = ∓0.1: v = 2/(1 + e^±0.2)
        ("gradnorm", {"lr": 0.1}, ((9.0, 0.0), (0.0, 1.0)), (2 / (1 + math.exp(0.2)), 2 / (1 + math.exp(-0.2)))),
    ],
)
def test_cases_worked_by_hand(
    name: str, options: dict[str, object], gramian: tuple[tuple[float, ...], ...], expected: tuple[float, ...]
) -> None:
    torch.testing.assert_close(first(name, tensor(*gramian), **options), tensor(*expected), rtol=1e-7, atol=1e-9)


def test_mgda_normalised_by_losses() -> None:
    """Losses (2, 1): gradients (1, 0) and (-½, √¾): unit length, so equal; `loss+` divides by loss and norm."""
    gramian, losses = tensor(*CONFLICT), tensor(2.0, 1.0)
    torch.testing.assert_close(first("mgda", gramian, losses, normalize="loss"), tensor(0.5, 0.5))
    # lengths ½ and 1 at 120°: K = ((¼, -¼), (-¼, 1)): β₁ = (1 + ¼)/(¼ + 1 + ½) = 5/7
    torch.testing.assert_close(first("mgda", gramian, losses, normalize="loss+"), tensor(5 / 7, 2 / 7))
    assert build("balancers", "mgda", {"normalize": "loss"}).positive_losses
    assert not build("balancers", "mgda", {}).positive_losses


def test_gradnorm_balances_norms_and_favours_slow_tasks() -> None:
    """With equal rates v_t ‖g_t‖ becomes equal; a task at its initial loss gets more than one at a tenth of it."""
    balancer = build("balancers", "gradnorm", {"lr": 0.01})
    gramian = torch.diag(tensor(9.0, 1.0))
    state = balancer.init(2)
    for _ in range(400):
        weights, state = balancer(tensor(1.0, 1.0), gramian, state)
    torch.testing.assert_close(weights, tensor(0.5, 1.5), rtol=0, atol=0.02)
    state = balancer.on_epoch_end(tensor(1.0, 1.0), state)
    state = balancer.on_epoch_end(tensor(0.5, 0.5), state)
    assert torch.equal(state["initial_losses"], tensor(1.0, 1.0))  # the first epoch's alone
    slow, _ = balancer(tensor(1.0, 0.1), gramian, {**state, "logits": torch.zeros(2).double()})
    even, _ = balancer(tensor(1.0, 1.0), gramian, {**state, "logits": torch.zeros(2).double()})
    assert slow[0] > even[0]


def test_gradnorm_rates_are_those_of_the_losses_before_they_were_scaled() -> None:
    """An objective's task weights multiply the losses handed over, while epochs end with the tasks' own."""
    balancer = build("balancers", "gradnorm", {})
    gramian, losses, scale = torch.diag(tensor(1.44, 0.81, 1.0)), tensor(1.0, 0.7, 0.9), tensor(0.2, 0.5, 2.3)
    start = balancer.on_epoch_end(tensor(1.1, 0.9, 1.3), balancer.init(3))
    plain, _ = balancer(losses, gramian, start)
    told, after = balancer(losses * scale, gramian, {**start, "task_scale": scale})
    torch.testing.assert_close(told, plain, rtol=1e-12, atol=0)
    assert torch.equal(after["task_scale"], scale)
    untold, _ = balancer(losses * scale, gramian, start)
    assert relative(untold - plain, 1.0) > 1e-3


def test_gradnorm_descends_the_papers_objective() -> None:
    """Autograd of Σ |G_t - sg(Ḡ r_t^α)| / sg(Ḡ) in the logits."""
    losses, initial, lr = tensor(0.8, 1.2, 0.7), tensor(1.0, 1.0, 1.0), 0.05
    jacobian = torch.diag(tensor(0.85, 1.38, 0.77))  # between r and r^1.5 of their mean: the exponent decides the signs
    logits = tensor(0.0, 0.0, 0.0).requires_grad_()
    norms = 3 * torch.softmax(logits, 0) * jacobian.norm(dim=1)
    rates = losses / initial / (losses / initial).mean()
    mean = norms.mean().detach()
    ((norms - mean * rates**1.5).abs().sum() / mean).backward()
    assert logits.grad is not None
    expected = logits.detach() - lr * logits.grad
    balancer = build("balancers", "gradnorm", {"lr": lr})
    _, state = balancer(
        losses, jacobian @ jacobian.T, {**balancer.init(3), "logits": logits.detach(), "initial_losses": initial}
    )
    torch.testing.assert_close(state["logits"], expected - expected.mean())


def test_sdmgrad_between_mgda_and_the_average() -> None:
    jacobian = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gramian = jacobian @ jacobian.T
    torch.testing.assert_close(first("sdmgrad", gramian, lam=0.0), min_norm_weights(gramian))
    torch.testing.assert_close(first("sdmgrad", gramian, lam=1e9), torch.full((4,), 0.25).double())


@given(jacobian=jacobians(max_tasks=10))
@few
def test_sdmgrad_minimises_its_objective(jacobian: Tensor) -> None:
    """At the best w, m = g_w + λ g₀ has ⟨g_i, m⟩ >= Σ w_i ⟨g_i, m⟩."""
    lam = 0.7
    weights = first("sdmgrad", jacobian @ jacobian.T, lam=lam)
    inner = (1 + lam) * weights - lam / len(jacobian)
    assert inner.min() >= -1e-9
    slopes = jacobian @ (jacobian.T @ ((1 + lam) * weights))
    assert slopes.min() >= inner @ slopes - 1e-6 * jacobian.square().sum(1).max()


@pytest.mark.parametrize("name", ["aligned_mtl", "imtl_g", "nash_mtl", "fairgrad"])
def test_who_trains_may_say_how_precise_the_gradients_are(name: str) -> None:
    """Five gradients of rank 3 that can cancel: in float32 the Gramian alone does not tell."""
    generator = torch.Generator().manual_seed(11)
    exact = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    exact = exact @ torch.randn(3, 1000, dtype=torch.float64, generator=generator)
    gramian = (exact.float() @ exact.float().T).double()
    balancer = build("balancers", name, {})
    state = balancer.init(5, batch=(2,))
    assert state["precision"].tolist() == [torch.finfo(torch.float64).eps] * 2
    state["precision"] = torch.tensor([torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps])
    weights, after = balancer(torch.ones(2, 5).double(), gramian.expand(2, 5, 5), state)
    assert relative((weights[1] - weights[0]).norm(), weights[0].norm()) > 0.5
    if "failures" in after:
        first_, second_ = after["failures"].tolist()  # of the first, rounding decides but for imtl_g
        assert second_ == 1 and (name != "imtl_g" or first_ == 1)


@pytest.mark.parametrize("name", ["cagrad", "getmtl", "getmtl_exact", "upgrad", "dual_proj"])
def test_each_trial_of_a_batch_has_the_precision_of_its_gradients(name: str) -> None:
    """Two opposed gradients, but for what float32 does not see, and a third."""
    generator = torch.Generator().manual_seed(3)
    a, b, noise = torch.randn(3, 1000, dtype=torch.float64, generator=generator)
    jacobian = torch.stack([a, -a + 1e-5 * noise, b])
    gramian, losses = jacobian @ jacobian.T, torch.ones(3, dtype=torch.float64)
    balancer = build("balancers", name, {"eps": 0.05} if name.startswith("getmtl") else {})
    single = torch.tensor(torch.finfo(torch.float32).eps, dtype=torch.float64)
    double = torch.tensor(torch.finfo(torch.float64).eps, dtype=torch.float64)
    exact, coarse = (
        balancer(losses, gramian, {**balancer.init(3), "precision": precision})[0] for precision in (double, single)
    )
    both, _ = balancer(
        losses.expand(2, 3),
        gramian.expand(2, 3, 3),
        {**balancer.init(3, batch=(2,)), "precision": torch.stack([double, single])},
    )
    torch.testing.assert_close(both, torch.stack([exact, coarse]), rtol=0, atol=0)
    # What float32 cannot tell from nothing is no reason for weights in the thousands.
    assert coarse.abs().max() < 100.0 < 1e3 < exact.abs().max()


def test_imtl_g_counts_the_steps_that_raise_every_loss() -> None:
    """The sum of the weights of equal projections may be negative, and they are divided by it."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    common = torch.sign(normal(1000, 5, 1)) * 1.5 * normal(1000, 1, 20)
    jacobian = 10.0 ** (4.0 * torch.rand(1000, 5, 1, dtype=torch.float64, generator=generator) - 2.0)
    jacobian = jacobian * (normal(1000, 5, 20) + common)
    balancer = build("balancers", "imtl_g", {})
    weights, state = balancer(torch.ones(1000, 5).double(), jacobian @ jacobian.mT, balancer.init(5, batch=(1000,)))
    gains = (jacobian @ (weights.unsqueeze(1) @ jacobian).mT).squeeze(-1)
    uphill = (gains < 0).all(-1)
    assert 5 < int(uphill.sum()) < 50
    assert torch.equal(state["failures"] > 0, uphill)


def test_getmtl_notes_its_largest_kappa() -> None:
    gramian = torch.stack([tensor(*CONFLICT), tensor((1.0, 0.0), (0.0, 1.0)), 1e6 * torch.eye(2).double()])
    losses = torch.ones(3, 2, dtype=torch.float64)
    for name in ("getmtl", "getmtl_exact", "getmtl_released"):
        getmtl = build("balancers", name, {"eps": 0.1})
        _, state = getmtl(losses, gramian, getmtl.init(2, batch=(3,)))
        _, state = getmtl(losses, 0.25 * gramian, state)
        norms = gramian.mean((1, 2)).sqrt()  # of the average gradient
        torch.testing.assert_close(state["kappa"], (0.1 * norms).clamp(max=0.9))
        relative = build("balancers", name, {"eps": 0.1, "relative": True})
        _, state = relative(losses, gramian, relative.init(2, batch=(3,)))
        assert state["kappa"].tolist() == [0.1, 0.1, 0.1]


def test_failures_and_clamps_are_counted_per_trial() -> None:
    """Opposed gradients have no bargaining solution; a large gradient takes κ beyond 0.9."""
    gramian = torch.stack([tensor(*CONFLICT), tensor((1.0, -1.0), (-1.0, 1.0)), 1e6 * torch.eye(2).double()])
    losses = torch.ones(3, 2, dtype=torch.float64)
    nash = build("balancers", "nash_mtl", {})
    state = nash.init(2, batch=(3,))
    for _ in range(2):
        _, state = nash(losses, gramian, state)
    assert state["failures"].tolist() == [0, 2, 0]
    getmtl = build("balancers", "getmtl", {"eps": 0.1})
    _, state = getmtl(losses, gramian, getmtl.init(2, batch=(3,)))
    assert state["clamps"].tolist() == [0, 0, 1]
    assert state["failures"].tolist() == [0, 0, 0]


def test_a_direction_shorter_than_the_limit_stays_as_it_is() -> None:
    """Near a Pareto-stationary point the bargained direction is short, whatever it was cut to elsewhere."""
    gramian = tensor((1.0, -1.0), (-1.0, 1.0))
    free, cut = (first("nash_mtl", gramian, max_norm=most) for most in (0.0, 0.1))
    assert float(free @ gramian @ free) < 0.1**2
    torch.testing.assert_close(cut, free)


@pytest.mark.parametrize("name", ["mgda", "cagrad", "getmtl", "nash_mtl", "imtl_g", "upgrad", "sdmgrad", "fairgrad"])
def test_a_gramian_that_is_not_finite_is_a_counted_failure(name: str) -> None:
    balancer = build("balancers", name, {})
    gramian = tensor((math.nan, 0.0), (0.0, 1.0))
    weights, state = balancer(tensor(1.0, 1.0), gramian, balancer.init(2))
    assert int(state["failures"]) == 1
    assert bool(weights.isnan().all())


@pytest.mark.parametrize("name", ["pcgrad", "gradvac", "aligned_mtl", "cagrad", "upgrad"])
def test_a_diverged_trial_leaves_the_others_of_its_batch_alone(name: str) -> None:
    balancer = build("balancers", name, {})
    healthy = tensor(*CONFLICT)
    gramian = torch.stack([healthy, torch.full_like(healthy, math.nan), healthy])
    weights, _ = balancer(torch.ones(3, 2).double(), gramian, balancer.init(2, batch=(3,)))
    assert bool(weights[1].isnan().all())
    torch.testing.assert_close(weights[[0, 2]], first(name, healthy).expand(2, 2))


@given(jacobian=jacobians(max_tasks=10, kinds=("gaussian", "agreeing", "graded")))
@few
def test_the_direction_does_not_depend_on_the_basis(jacobian: Tensor) -> None:
    """J Q for orthogonal Q, and zero columns: the same Gramian up to rounding, the same direction."""
    columns = jacobian.shape[1]
    rotation = torch.linalg.qr(
        torch.randn(columns, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )[0]
    turned = torch.cat([jacobian @ rotation, torch.zeros(len(jacobian), 3, dtype=torch.float64)], dim=1)
    for name in ("mgda", "cagrad", "upgrad", "sdmgrad"):
        weights, other = first(name, jacobian @ jacobian.T), first(name, turned @ turned.T)
        assert relative(jacobian.T @ (weights - other), jacobian.norm(dim=1).max()) <= 1e-6


def test_averaging_jacobians_over_workers_is_not_averaging_gramians() -> None:
    """Accumulate, then solve: the joint batch's gradients are the mean of the workers'."""
    jacobian = torch.randn(2, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    joint = jacobian.mean(0)
    exact = first("cagrad", joint @ joint.T)
    wrong = first("cagrad", (jacobian @ jacobian.mT).mean(0))
    assert (exact - wrong).abs().max() > 1e-2
    torch.testing.assert_close(exact, cagrad_weights(joint @ joint.T, 0.5))
