"""Methods that need losses alone: cases worked by hand or against TorchJD, and properties docs/methods.md states."""

import math

import pytest
import torch
from gramians import few
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchjd import scalarization

from mtlscale.config import UserError, build


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def first(name: str, losses: Tensor, **options: object) -> Tensor:
    """The weights of the first step."""
    balancer = build("balancers", name, options)
    return balancer(losses, None, balancer.init(len(losses)))[0]


def gradient(scalarizer: torch.nn.Module, losses: Tensor) -> Tensor:
    """What TorchJD's scalarisation weighs each loss by."""
    leaf = losses.clone().requires_grad_()
    scalarizer(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


positive = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=20).map(lambda values: tensor(*values))


@pytest.mark.parametrize(
    ("name", "options", "losses", "expected"),
    [
        ("equal", {}, (3.0, 1.0), (0.5, 0.5)),
        ("equal", {"reduction": "sum"}, (3.0, 1.0), (1.0, 1.0)),
        ("static", {"weights": [2.0, 0.5]}, (3.0, 1.0), (2.0, 0.5)),
        # s = 0: ½ e⁰
        ("uncertainty", {}, (3.0, 1.0), (0.5, 0.5)),
        ("dwa", {}, (3.0, 1.0), (1.0, 1.0)),
        # L = √(1·4) = 2, ω = L/(2ℓ)
        ("gls", {}, (1.0, 4.0), (1.0, 0.25)),
        # 1/(2ℓ)
        ("log_loss", {}, (1.0, 4.0), (0.5, 0.125)),
        ("imtl_l", {}, (3.0, 1.0), (1.0, 1.0)),
        # c = ½: distances ½·1 and ½·(3 - 2.5): the first is worst, ω = c e₁
        ("tchebycheff", {"ideal": [0.0, 2.5]}, (1.0, 3.0), (0.5, 0.0)),
        ("tchebycheff", {"weights": [3.0, 1.0]}, (1.0, 3.0), (1.5, 0.5)),  # a tie at 3, shared
        # mirror ascent from (½, ½) by η = log 3: proportional to (3, 1), KL = ¾ log 1.5 + ¼ log ½ = 0.131 < ρ
        ("bandit", {"lr": math.log(3.0), "rho": 0.2}, (1.0, 0.0), (0.75, 0.25)),
        # softmax(0)/ℓ, normalised: (½/1, ½/4)/(5/8)
        ("famo", {}, (1.0, 4.0), (0.8, 0.2)),
        # λ softmax(λ ℓ/μ) with λ = ½, μ = 1: ½ (e/(e + 1), 1/(e + 1))
        ("stch", {"smoothing": 1.0}, (2.0, 0.0), (0.5 * math.e / (math.e + 1), 0.5 / (math.e + 1))),
    ],
)
def test_first_step_worked_by_hand(
    name: str, options: dict[str, object], losses: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    torch.testing.assert_close(first(name, tensor(*losses), **options), tensor(*expected), rtol=1e-7, atol=1e-9)


def test_uncertainty_descends_its_objective() -> None:
    """ds = ½(1 - e⁻ˢ ℓ): at s = 0, ℓ = (3, 1), a step of 0.1 gives s = (0.1, 0), weights ½ e⁻ˢ."""
    balancer = build("balancers", "uncertainty", {"lr": 0.1})
    _, state = balancer(tensor(3.0, 1.0), None, balancer.init(2))
    torch.testing.assert_close(state["log_variance"], tensor(0.1, 0.0))
    weights, _ = balancer(tensor(3.0, 1.0), None, state)
    torch.testing.assert_close(weights, tensor(0.5 * math.exp(-0.1), 0.5))


@given(losses=positive)
@few
def test_uncertainty_is_stationary_at_log_of_the_loss(losses: Tensor) -> None:
    balancer = build("balancers", "uncertainty", {})
    state = {"log_variance": losses.log()}
    weights, after = balancer(losses, None, state)
    torch.testing.assert_close(after["log_variance"], state["log_variance"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights, 0.5 / losses)


def test_uncertainty_takes_the_gradient_of_torchjds_objective() -> None:
    theirs = scalarization.UW(3)
    losses = tensor(3.0, 0.2, 1.0)
    parameter = next(theirs.parameters())
    parameter.data = parameter.data.double() + tensor(0.3, -0.2, 0.0)
    theirs(losses).backward()
    assert parameter.grad is not None
    balancer = build("balancers", "uncertainty", {"lr": 0.1})
    weights, state = balancer(losses, None, {"log_variance": parameter.data})
    torch.testing.assert_close(state["log_variance"], parameter.data - 0.1 * parameter.grad)
    torch.testing.assert_close(weights, gradient(theirs, losses))


def test_imtl_l_takes_the_gradient_of_torchjds_objective() -> None:
    theirs = scalarization.IMTLL(2)
    losses = tensor(2.0, 0.5)
    theirs.log_scale.data = tensor(0.3, -0.2)
    theirs(losses).backward()
    assert theirs.log_scale.grad is not None
    balancer = build("balancers", "imtl_l", {"lr": 0.1})
    weights, state = balancer(losses, None, {"log_scale": theirs.log_scale.data})
    torch.testing.assert_close(state["log_scale"], theirs.log_scale.data - 0.1 * theirs.log_scale.grad)
    torch.testing.assert_close(weights, gradient(theirs, losses))


def test_dwa_by_hand_and_as_torchjd() -> None:
    """Mean losses (2, 2), then (2, 1): r = (1, ½), τ = 2: ω = 2 softmax(½, ¼)."""
    balancer, theirs = build("balancers", "dwa", {}), scalarization.DWA(2.0)
    state = balancer.init(2)
    for losses in (tensor(2.0, 2.0), tensor(2.0, 1.0)):
        weights, _ = balancer(losses, None, state)
        torch.testing.assert_close(weights, gradient(theirs, losses))
        theirs.step()
        state = balancer.on_epoch_end(losses, state)
    weights, _ = balancer(tensor(9.0, 9.0), None, state)
    share = 1 / (1 + math.exp(-0.25))
    torch.testing.assert_close(weights, tensor(2 * share, 2 - 2 * share))
    torch.testing.assert_close(weights, gradient(theirs, tensor(9.0, 9.0)))


@given(epochs=st.lists(positive.map(lambda losses: losses[:2]), min_size=1, max_size=4))
@few
def test_dwa_sums_to_the_number_of_tasks(epochs: list[Tensor]) -> None:
    balancer = build("balancers", "dwa", {})
    state = balancer.init(2)
    for losses in epochs:
        state = balancer.on_epoch_end(losses, state)
    weights, _ = balancer(epochs[-1], None, state)
    torch.testing.assert_close(weights.sum(), torch.tensor(2.0).double())


@given(losses=positive)
@few
def test_gls_is_the_gradient_of_the_geometric_mean(losses: Tensor) -> None:
    weights = first("gls", losses)
    torch.testing.assert_close((weights * losses).sum(), losses.log().mean().exp())
    torch.testing.assert_close(weights, gradient(scalarization.GeometricMean(), losses), rtol=1e-6, atol=0)


@given(losses=positive, factor=st.floats(1e-3, 1e3))
@few
def test_log_loss_does_not_see_scale(losses: Tensor, factor: float) -> None:
    torch.testing.assert_close(factor * first("log_loss", factor * losses), first("log_loss", losses))


@given(losses=positive)
@few
def test_smooth_tchebycheff_is_its_gradient_and_tends_to_the_maximum(losses: Tensor) -> None:
    losses = losses / losses.max()
    for mu in (0.05, 1.0):
        expected = gradient(scalarization.STCH(mu), losses)
        torch.testing.assert_close(first("stch", losses, smoothing=mu), expected)
        torch.testing.assert_close(first("tchebycheff", losses, smoothing=mu), expected)
    hard = first("tchebycheff", losses)
    worst = losses == losses.max()
    torch.testing.assert_close(hard, worst.double() / worst.sum() / len(losses))


@given(losses=positive, rho=st.sampled_from((0.01, 0.3, 5.0)), steps=st.integers(1, 5))
@few
def test_bandit_stays_in_the_ball_and_grows_with_the_loss(losses: Tensor, rho: float, steps: int) -> None:
    balancer = build("balancers", "bandit", {"rho": rho})
    state = balancer.init(len(losses))
    for _ in range(steps):
        weights, state = balancer(losses, None, state)
    divergence = torch.special.xlogy(weights, len(losses) * weights).sum()
    assert divergence <= rho * (1 + 1e-9) + 1e-12
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0).double())
    assert (weights[losses.argsort()].diff() >= -1e-12).all()


def test_bandit_is_mirror_ascent_with_its_multiplier() -> None:
    """p proportional to exp((log p + η ℓ)/(1 + η λ)) for some λ >= 0 (Mao et al., ACL 2021)."""
    losses, eta = tensor(3.0, 1.0, 0.2), 0.7
    balancer = build("balancers", "bandit", {"rho": 0.1, "lr": eta})
    before = tensor(0.4, 0.35, 0.25).log()
    weights, _ = balancer(losses, None, {"log_weights": before})
    logits = before + eta * losses
    factors = (weights.log()[1:] - weights.log()[0]) / (logits[1:] - logits[0])
    torch.testing.assert_close(factors[0], factors[1])
    assert 0 < factors[0] < 1  # 1/(1 + ηλ)
    torch.testing.assert_close((weights * (3 * weights).log()).sum(), torch.tensor(0.1).double())


def test_famo_follows_torchjd_and_torchs_adam() -> None:
    """The same batch's losses after the step; TorchJD's update, and Adam with decay on softmax(ξ)·fall."""
    generator = torch.Generator().manual_seed(0)
    balancer, theirs = build("balancers", "famo", {}), scalarization.FAMO(3).double()
    state = balancer.init(3)
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=0.025, weight_decay=1e-3)
    for _ in range(40):
        before, after = torch.rand(2, 3, dtype=torch.float64, generator=generator) + 0.1
        weights, state = balancer(before, None, state)
        torch.testing.assert_close(weights, gradient(theirs, before), rtol=1e-6, atol=1e-8)
        shares = torch.softmax(logits.detach(), 0) / (before + 1e-8)
        torch.testing.assert_close(weights, shares / shares.sum(), rtol=1e-12, atol=1e-12)
        state = balancer.after_step(after, state)
        theirs.update(after)
        adam.zero_grad()
        fall = (before + 1e-8).log() - (after + 1e-8).log()
        (torch.softmax(logits, 0) @ fall).backward()
        adam.step()
        torch.testing.assert_close(state["logits"], logits.detach(), rtol=1e-12, atol=1e-12)


def test_famo_without_a_second_look_stays_where_it_is() -> None:
    """A step that was not taken, or after which a loss is no number, moves no logit."""
    balancer = build("balancers", "famo", {})
    _, state = balancer(tensor(1.0, 2.0), None, balancer.init(2))
    state = balancer.after_step(tensor(0.5, 1.9), state)
    assert state["logits"][0] < 0 < state["logits"][1]  # the first fell by more
    _, skipped = balancer(tensor(3.0, 1.0), None, state)
    assert torch.equal(skipped["logits"], state["logits"])
    for bad in (math.nan, math.inf):
        after = balancer.after_step(tensor(bad, 1.0), skipped)
        assert torch.equal(after["logits"], state["logits"])
        assert torch.equal(after["adam_step"], state["adam_step"])


def test_famo_does_not_see_the_noise_between_batches() -> None:
    """On batches of 64 the shares are those of all data (.15 here); given the next batch's losses instead,
    they are pulled together (.41)."""

    def mean_share(size: int, *, same_batch: bool) -> float:
        """The first task's over 400 steps; the second's optimum is three times as far."""
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(1024, 2, 4, dtype=torch.float64, generator=generator)
        noise = torch.randn(1024, 2, dtype=torch.float64, generator=generator)
        targets = inputs.sum(-1) * tensor(1.0, 3.0) + 0.1 * noise
        balancer = build("balancers", "famo", {})
        state, theta, shares = balancer.init(2), torch.zeros(2, 4, dtype=torch.float64), []
        for step in range(400):
            rows = torch.randperm(1024, generator=generator)[:size]
            x, y = inputs[rows], targets[rows]
            errors = (x * theta).sum(-1) - y
            losses = errors.square().mean(0)
            if not same_batch and step:
                state = balancer.after_step(losses, state)
            weights, state = balancer(losses, None, state)
            theta = theta - 0.003 * weights[:, None] * 2 * (x * errors[..., None]).mean(0)
            if same_batch:
                state = balancer.after_step(((x * theta).sum(-1) - y).square().mean(0), state)
            shares.append(torch.softmax(state["logits"], 0)[0])
        return float(torch.stack(shares).mean())

    should = mean_share(1024, same_batch=True)
    assert abs(mean_share(64, same_batch=True) - should) <= 0.02
    assert abs(mean_share(64, same_batch=False) - should) >= 0.2


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_rlw_sums_to_one_and_changes_with_every_step_and_seed(distribution: str) -> None:
    balancer = build("balancers", "rlw", {"distribution": distribution})
    losses = torch.ones(4, dtype=torch.float64)
    one, state = balancer(losses, None, balancer.init(4, seed=7))
    two, _ = balancer(losses, None, state)
    other, _ = balancer(losses, None, balancer.init(4, seed=8))
    for weights in (one, two, other):
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0).double())
        assert (weights > 0).all()
    assert not torch.equal(one, two)
    assert not torch.equal(one, other)


def test_random_static_is_drawn_once_from_the_seed() -> None:
    balancer = build("balancers", "random_static", {})
    losses = torch.ones(5, dtype=torch.float64)
    state = balancer.init(5, seed=3)
    one, after = balancer(losses, None, state)
    assert torch.equal(one, balancer(losses, None, after)[0])
    assert torch.equal(one, balancer.init(5, seed=3)["weights"])
    assert not torch.equal(one, balancer.init(5, seed=4)["weights"])
    torch.testing.assert_close(one.sum(), torch.tensor(1.0).double())


def test_random_static_covers_the_simplex_evenly() -> None:
    """A Dirichlet(1, 1, 1) coordinate has mean 1/3 and variance 1/18."""
    balancer = build("balancers", "random_static", {})
    drawn = torch.stack([balancer.init(3, seed=seed)["weights"] for seed in range(4000)])
    torch.testing.assert_close(drawn.mean(0), torch.full((3,), 1 / 3).double(), rtol=0, atol=0.02)
    torch.testing.assert_close(drawn.var(0), torch.full((3,), 1 / 18).double(), rtol=0, atol=0.005)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("static", {"weights": [1.0]}, "static: weights has 1 entries, but there are 2 tasks"),
        ("static", {}, "static: weights has 0 entries, but there are 2 tasks"),
        ("static", {"weights": [1.0, -1.0]}, r"static: weights = \[1.0, -1.0\] is outside \[0, ∞\)"),
        ("tchebycheff", {"ideal": [1.0, 2.0, 3.0]}, "tchebycheff: ideal has 3 entries, but there are 2 tasks"),
        ("stch", {"smoothing": 0.0}, "stch: smoothing = 0.0 is outside"),
        ("bandit", {"rho": -1.0}, "bandit: rho = -1.0 is outside"),
        ("getmtl", {"eps": 0.0}, r"getmtl: eps = 0.0 is outside \(0, 1\]"),
        ("getmtl", {"eps": 1.5}, r"getmtl: eps = 1.5 is outside \(0, 1\]"),
        ("cagrad", {"c": 1.0}, r"cagrad: c = 1.0 is outside \[0, 1\)"),
        ("auto_lambda", {"primary": [2]}, r"auto_lambda: primary = \[2\] must name tasks from 0 to 1"),
        ("svd_reweighting", {}, "svd_reweighting: computes its weights from training data"),
    ],
)
def test_bad_input_is_one_line_that_names_the_method(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build("balancers", name, options).init(2)
    assert "\n" not in str(caught.value)
