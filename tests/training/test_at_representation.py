"""Rules of the Gramian at the representation: the exact ones where both Gramians are equal, far cheaper elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from mtlscale.balancing.contract import GramianBalancer
from mtlscale.config import Experiment, Run, UserError, component, names
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.training import TaskBalancer, train

TASKS = "abc"
RULES = [
    name
    for name in names("balancers")
    if issubclass(component("balancers", name), GramianBalancer)
    and len(component("balancers", name).knobs()["at"][1].choices) == 2
]


class Net(nn.Module):
    """A trunk that keeps lengths and angles for one sample of length 1, and linear heads."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.trunk = nn.Linear(6, 5, bias=False, dtype=torch.float64)
        self.heads = nn.ModuleDict({task: nn.Linear(5, 1, dtype=torch.float64) for task in TASKS})
        for parameter in self.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def test_there_are_many_such_rules() -> None:
    known = {"mgda", "cagrad", "pcgrad", "nash_mtl", "fairgrad", "upgrad", "getmtl", "imtl_g", "aligned_mtl", "epo"}
    assert known <= set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_the_exact_one_where_the_trunk_keeps_lengths_and_angles(name: str) -> None:
    """Three steps, so that state counts."""
    generator = torch.Generator().manual_seed(5)
    exact, cheap = Net(), Net()
    cheap.load_state_dict(copy.deepcopy(exact.state_dict()))
    balancers = {
        at: TaskBalancer(
            name,
            shared=net.trunk.parameters(),
            heads={task: net.heads[task].parameters() for task in TASKS},
            at=at,
        )
        for at, net in (("parameters", exact), ("representation", cheap))
    }
    balancers["representation"].update.state = dict(balancers["parameters"].update.state)
    for _ in range(3):
        x = torch.randn(1, 6, generator=generator, dtype=torch.float64)
        x = x / x.norm()
        y = {task: torch.randn(1, 1, generator=generator, dtype=torch.float64) for task in TASKS}
        weights = {}
        for at, net in (("parameters", exact), ("representation", cheap)):
            net.zero_grad()
            z = net.trunk(x)
            losses = {task: (net.heads[task](z) - y[task]).square().mean() + 0.1 for task in TASKS}
            weights[at] = balancers[at].backward(losses, z).weights
        torch.testing.assert_close(weights["representation"], weights["parameters"], rtol=1e-8, atol=1e-10)
        for one, other in zip(exact.parameters(), cheap.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-8, atol=1e-10)
            with torch.no_grad():
                for parameter in (one, other):
                    parameter -= 0.01 * one.grad


def test_a_network_without_a_representation_is_refused_in_one_line(
    small: Callable[..., Experiment], uneven: Callable[..., PreparedData], run_of: Callable[..., Run]
) -> None:
    data = uneven(shared=True)
    method = "[{label: m, architecture: cross_stitch, balancer: {name: cagrad, at: representation}}]"
    experiment = small(methods=method, datasets="[{name: uneven, options: {shared: true}}]")
    with pytest.raises(UserError, match="cagrad needs an architecture with one shared representation, such as hps"):
        train(run_of(experiment, data), data)


def test_a_run_at_the_representation_is_another_run(small: Callable[..., Experiment]) -> None:
    """Without the setting, a run has the id that it has always had."""
    plain, exact, cheap = (
        next(small(methods=f"[{{name: hps, balancer: {{name: cagrad{at}}}}}]").runs({"uneven": "0"})).run_id
        for at in ("", ", at: parameters", ", at: representation")
    )
    assert plain == exact != cheap
