"""Own loops as people write them: what changes between steps, what is not finite, and what torch adds to a graph."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mtlscale
from mtlscale.config import UserError, names
from mtlscale.training import Diverged

TASKS = 3
NEEDED: dict[str, dict[str, Any]] = {
    "static": {"weights": [0.5, 0.3, 0.2]},
    **{name: {"preference": [0.5, 0.3, 0.2]} for name in ("linear_scalarization", "pbi", "cosmos", "epo", "pmgda")},
    **{name: {"of": "mgda"} for name in ("smooth", "log_losses")},
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.heads = nn.ModuleList([nn.Linear(3, 1) for _ in range(TASKS)])

    def losses(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        features = self.trunk(inputs)
        return [head(features).square().mean() + 0.1 for head in self.heads], features


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


def balancer_of(name: str, network: Network, **more: Any) -> mtlscale.TaskBalancer | None:
    """The balancer of an own loop; None for those that are refused there."""
    shared: Any = [network.trunk[0], network.trunk[2]] if name == "conflict_noticed" else network.trunk
    try:
        return mtlscale.TaskBalancer(name, shared=shared, heads=network.heads, **NEEDED.get(name, {}), **more)
    except UserError:
        return None


def step(balancer: mtlscale.TaskBalancer, network: Network, inputs: Tensor, spoil: Callable[..., Any] | None) -> None:
    losses, features = network.losses(inputs)
    if spoil is not None:
        losses[1] = losses[1] + spoil(network, features)
    needs_features = balancer.balancer.at == "representation" or balancer.balancer.aligns_heads
    balancer.backward(losses, features=features if needs_features else None)
    balancer.after_step([loss.detach() for loss in network.losses(inputs)[0]])


def steep(tensor: Tensor) -> Tensor:
    """A norm of exactly 0, which is finite and whose slope is not."""
    return (tensor - tensor.detach()).square().sum().sqrt()


PLACES: dict[str, Callable[[Network, Tensor], Tensor]] = {
    "head": lambda network, features: steep(network.heads[1].weight),
    "trunk": lambda network, features: steep(features),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", names("balancers"))
def test_a_gradient_that_is_not_finite_names_its_task_and_changes_nothing(
    name: str, place: str, network: Network, inputs: Tensor
) -> None:
    balancer = balancer_of(name, network)
    if balancer is None:
        pytest.skip(f"{name} is not for own loops")
    for before in (0, 3):
        for _ in range(before):
            step(balancer, network, inputs, None)
        gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
        state = copy.deepcopy(balancer.state_dict())
        with pytest.raises(Diverged, match=r"task 1 "):
            step(balancer, network, inputs, PLACES[place])
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            assert (parameter.grad is None) == (gradient is None)
            assert gradient is None or torch.equal(parameter.grad, gradient)
        assert str(balancer.state_dict()) == str(state)


def test_an_absent_task_leaves_no_nan(network: Network, inputs: Tensor) -> None:
    for name in ("equal", "mgda", "uncertainty"):
        balancer = balancer_of(name, network)
        losses, _ = network.losses(inputs)
        losses[1] = (network.heads[1](network.trunk(inputs)) * torch.zeros(8, 1)).sum() / 0.0
        balancer.backward(losses, counts=[8, 0, 8])
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in network.parameters())


def test_a_physics_informed_network_learns_its_equation() -> None:
    """u'' = -sin x with u(0) = u(π) = 0, and two measured points: residual, boundary and data are three tasks."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    balancer = mtlscale.TaskBalancer("config", shared=network, tasks=["residual", "boundary", "data"])
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    ends, measured = torch.tensor([[0.0], [math.pi]]), torch.tensor([[1.0], [2.0]])
    for _ in range(300):
        x = torch.linspace(0, math.pi, 32)[:, None].requires_grad_()
        (slope,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        residual = (curvature + torch.sin(x)).square().mean()
        optimizer.zero_grad()
        losses = [residual, network(ends).square().mean(), (network(measured) - measured.sin()).square().mean()]
        balancer.backward(losses)
        optimizer.step()
    assert float((network(x) - torch.sin(x)).detach().abs().max()) < 0.2


@pytest.mark.parametrize("name", ["equal", "mgda"])
def test_parameters_that_change_are_trained_or_refused(name: str, network: Network, inputs: Tensor) -> None:
    network.trunk[0].requires_grad_(False)
    balancer = balancer_of(name, network)
    step(balancer, network, inputs, None)
    assert network.trunk[0].weight.grad is None

    network.trunk[0].requires_grad_(True)  # gradual unfreezing
    network.heads[1] = nn.Linear(3, 1)  # other classes
    network.trunk.load_state_dict({k: v.clone() for k, v in network.trunk.state_dict().items()}, assign=True)
    step(balancer, network, inputs, None)
    assert all(p.grad is not None and float(p.grad.norm()) > 0 for p in network.parameters())

    network.zero_grad()
    network.trunk[0].requires_grad_(False)
    step(balancer, network, inputs, None)
    assert network.trunk[0].weight.grad is None and network.heads[1].weight.grad is not None

    features = network.trunk(inputs)
    losses = [head(features if t else features.detach()).square().mean() for t, head in enumerate(network.heads)]
    with pytest.raises(UserError, match="the loss of task 0 does not depend on the shared parameters"):
        balancer.backward(losses)


def test_a_state_of_other_tasks_settings_or_sizes_is_refused(network: Network) -> None:
    def made(*tasks: str, width: int = 3, **more: Any) -> mtlscale.TaskBalancer:
        heads = {task: nn.Linear(width, 1) for task in tasks}
        return mtlscale.TaskBalancer("cagrad", shared=nn.Linear(4, width), heads=heads, **more)

    balancer = made("a", "b")
    for other in (made("b", "a"), made("a", "c"), made("a", "b", c=0.1), made("a", "b", width=5)):
        with pytest.raises(UserError, match=r"^the state is of .* this balancer of .*; load the state that belongs"):
            balancer.load_state_dict(other.state_dict())
    balancer.load_state_dict(made("a", "b").state_dict())


def test_micro_batches_of_an_unfinished_step_end_with_the_epoch(network: Network, inputs: Tensor) -> None:
    balancer, first = balancer_of("mgda", network), []
    for _ in range(2):
        network.zero_grad()
        balancer.backward(network.losses(inputs)[0])
        first.append(network.trunk[0].weight.grad.clone())
        balancer.accumulate(network.losses(inputs * 3)[0])
        balancer.end_epoch()
    assert torch.equal(*first)


@pytest.mark.parametrize("name", ["equal", "uncertainty", "mgda", "pcgrad", "graddrop"])
def test_optimisers_in_the_backward_pass_step_once(name: str, network: Network, inputs: Tensor) -> None:
    called: list[Tensor] = []
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in network.parameters()}

    def step_now(parameter: Tensor) -> None:
        called.append(parameter)
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in network.parameters():
        parameter.register_post_accumulate_grad_hook(step_now)
    before = network.trunk[0].weight.detach().clone()
    step(balancer_of(name, network), network, inputs, None)
    assert len(called) == len(list(network.parameters())) and not torch.equal(before, network.trunk[0].weight)


def test_parameters_that_products_do_not_serve_are_refused_at_the_start() -> None:
    for module, reason in (
        (nn.LazyLinear(3), "has no size yet"),
        (nn.Linear(3, 3).to(device="meta"), "meta"),
    ):
        with pytest.raises(UserError, match=reason):
            mtlscale.TaskBalancer("mgda", shared=nn.ModuleList([module, nn.Linear(3, 3)]), tasks=2)


def test_a_graph_may_be_used_again_and_writing_in_place_is_torch_s_own_error(network: Network, inputs: Tensor) -> None:
    losses, features = network.losses(inputs)
    balancer_of("mgda", network).backward(losses, retain_graph=True)
    (0.01 * features.square().mean()).backward()

    heads = nn.ModuleList([nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1)) for _ in range(2)])
    balancer = mtlscale.TaskBalancer("mgda", shared=network.trunk, heads=heads)
    for given in (False, True):
        features = network.trunk(inputs)
        losses = [head(features).square().mean() for head in heads]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            balancer.backward(losses, features=features if given else None)


def test_a_compiled_network_is_no_reason_for_advice(network: Network, inputs: Tensor) -> None:
    def compiled() -> list[Tensor]:
        torch._dynamo.reset()
        return torch.compile(lambda x: network.losses(x)[0], backend="aot_eager")(inputs)

    balancer_of("equal", network).backward(compiled())
    assert all(p.grad is not None for p in network.parameters())
    with torch._functorch.config.patch(donated_buffer=False):
        balancer_of("mgda", network).backward(compiled())


def test_losses_that_the_scaler_has_scaled_are_refused(network: Network, inputs: Tensor) -> None:
    scaler = torch.amp.GradScaler("cpu")
    balancer = balancer_of("mgda", network, scaler=scaler)
    losses, _ = network.losses(inputs)
    with pytest.raises(UserError, match="the loss of task 0 was scaled by the GradScaler: hand over the loss itself"):
        balancer.backward([scaler.scale(loss) for loss in losses])


def test_losses_may_be_negative_where_the_formula_has_a_value(network: Network, inputs: Tensor) -> None:
    for name in ("uncertainty", "dwa"):
        losses, _ = network.losses(inputs)
        balancer_of(name, network).backward([loss - 5.0 for loss in losses])
    with pytest.raises(UserError, match="gls needs losses ≥ 0, but task 0 has -"):
        balancer_of("gls", network).backward([loss - 5.0 for loss in network.losses(inputs)[0]])


def test_a_rule_that_never_hears_of_an_epoch_says_so_once(network: Network, inputs: Tensor) -> None:
    for name, expected in (("dwa", 1), ("equal", 0)):
        balancer = balancer_of(name, network)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(600):
                balancer.backward(network.losses(inputs)[0])
        assert len([w for w in caught if "call end_epoch() after every epoch" in str(w.message)]) == expected


def test_a_component_of_another_kind_is_named(network: Network) -> None:
    with pytest.raises(UserError, match="unknown balancer 'mmoe': it is an architecture"):
        mtlscale.TaskBalancer("mmoe", shared=network.trunk, heads=network.heads)


def test_losses_that_a_scaler_of_the_loop_has_scaled_are_refused_at_the_first_step(
    network: Network, inputs: Tensor
) -> None:
    scaler = torch.amp.GradScaler("cpu")
    for scaled in (scaler.scale, lambda loss: scaler.scale([loss])[0], lambda loss: scaler.scale(loss) / 2):
        losses, _ = network.losses(inputs)
        with pytest.raises(UserError, match="task 0 was scaled by a GradScaler that the balancer was not given: make"):
            balancer_of("mgda", network).backward([scaled(loss) for loss in losses])

    # A weight is no scale, even beside a scaler, and a scaler that is off scales nothing.
    off = torch.amp.GradScaler("cpu", enabled=False)
    for scaled in (lambda loss: 0.5 * loss, lambda loss: torch.tensor(2.0) * loss, off.scale):
        losses, _ = network.losses(inputs)
        balancer_of("mgda", network).backward([scaled(loss) for loss in losses])


def test_a_frozen_trunk_is_named_as_the_cause(network: Network, inputs: Tensor) -> None:
    network.trunk.requires_grad_(False)
    cause = r"mgda balances the gradients of shared parameters, but all 4 of them are frozen .*: thaw some"
    with pytest.raises(UserError, match=cause):
        mtlscale.TaskBalancer("mgda", shared=network.trunk, heads=network.heads)

    losses, features = network.losses(inputs)
    with pytest.raises(UserError, match=r"the features of task 0 have no graph: .* is frozen or .*leave features out"):
        balancer_of("equal", network).backward(losses, features=features)
    balancer_of("equal", network).backward(losses)  # the heads alone learn


def test_parts_of_one_stacked_tensor_and_swapped_heads_have_a_sentence_each(network: Network, inputs: Tensor) -> None:
    losses, _ = network.losses(inputs)
    balancer = balancer_of("equal", network)
    stacked = torch.stack(losses)
    of_all = r"heads of all tasks, as every part of torch.stack\(losses\) does: give a list of losses$"
    for parts in (stacked, list(stacked), [stacked[task] for task in range(TASKS)]):
        with pytest.raises(UserError, match=of_all):
            balancer.backward(parts)

    with pytest.raises(UserError, match=r"head of task 2: are heads and losses in one order\?$"):
        balancer.backward(losses[::-1])
