"""Balancers made of functions, as plugins and in a loop of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtlscale import TaskBalancer, UserError
from mtlscale.balancing import Balancer, balancer
from mtlscale.config import build, component, knob, load_plugin

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "inverse_loss.py"


def test_a_plugin_of_functions_is_built_like_any_other() -> None:
    load_plugin(EXAMPLE)
    inverse = build("balancers", "inverse_loss", {"power": 2})
    weights, state = inverse(torch.tensor([1.0, 2.0]), None, inverse.init(2))
    assert weights.tolist() == [1.0, 0.25] and state == {}
    assert inverse.knob_values() == {"power": 2.0}
    inverse.rehearse()
    cls = component("balancers", "inverse_loss")
    assert cls.summary() == "Weights inversely proportional to a power of the losses."
    assert cls.knobs()["power"][1].search == (0.1, 4.0, "log")
    with pytest.raises(UserError, match=r"power = -1.0 is outside \[0, ∞\)"):
        build("balancers", "inverse_loss", {"power": -1.0})
    with pytest.raises(UserError, match="unknown option 'pover'"):
        build("balancers", "inverse_loss", {"pover": 1.0})
    shortest = build("balancers", "shortest", {})
    assert (shortest.needs, shortest.heads) == ("gramian", "mean")
    assert shortest(torch.ones(2), torch.diag(torch.tensor([4.0, 1.0])), {})[0].tolist() == [0.0, 1.0]


def test_functions_of_gradients_return_the_update() -> None:
    @balancer(needs="gradients")
    def signs(gradients: Tensor, step: float = 0.5) -> Tensor:
        return step * gradients.sign().sum(0)

    layer, head = nn.Linear(3, 2), nn.Linear(2, 1)
    losses = [layer(torch.ones(4, 3)).square().mean(), layer(-torch.ones(4, 3)).exp().mean()]
    expected = []
    for parameter in layer.parameters():
        rows = [torch.autograd.grad(loss, parameter, retain_graph=True)[0].sign() for loss in losses]
        expected.append(0.25 * sum(rows))
    TaskBalancer(signs, shared=layer, heads=[[], []], step=0.25).backward(losses)
    for parameter, value in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, value)
    assert issubclass(signs, Balancer) and signs.heads == "sum" and head.weight.grad is None


def test_a_function_of_losses_and_the_gramian() -> None:
    @balancer(needs="gramian", source="here", batchable=True, positive_losses=True)
    def both(losses: Tensor, gramian: Tensor) -> Tensor:
        return losses / gramian.diagonal(dim1=-2, dim2=-1)

    assert both.batchable and both.positive_losses and both.source == "here" and both.heads == "weighted"
    weights, _ = both()(torch.ones(5, 2), torch.eye(2).expand(5, 2, 2) * 2, {})
    assert torch.equal(weights, torch.full((5, 2), 0.5))


def _no_gramian(losses: Any) -> Any:
    return losses


def _no_default(losses: Any, power: Any) -> Any:
    return losses**power


@pytest.mark.parametrize(
    ("function", "needs", "message"),
    [
        (_no_gramian, "gramian", "no parameter gramian, but needs = 'gramian'"),
        (_no_default, "losses", "power is no input .*settings need a default"),
        (_no_gramian, "jacobian", "needs = 'jacobian' is unknown; choose losses, gramian, gradients"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(function: Any, needs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        balancer(needs=needs)(function)


def test_an_update_of_another_size_is_refused() -> None:
    @balancer(needs="gradients")
    def short(gradients: Tensor) -> Tensor:
        return gradients.sum(1)

    layer = nn.Linear(3, 2)
    with pytest.raises(UserError, match=r"returns a direction of shape \[2\]; it has to be of shape \[8\]"):
        TaskBalancer(short, shared=layer, tasks=2).backward([layer(torch.ones(3)).sum(), layer(torch.ones(3)).prod()])


def test_weights_of_another_form_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "scalar.py"
    file.write_text(
        "from mtlscale.balancing import balancer\n\n\n@balancer()\ndef scalar(losses):\n    return losses.sum()\n"
    )
    load_plugin(file)
    with pytest.raises(UserError, match=r"scalar returns weights of shape \[\]"):
        build("balancers", "scalar", {}).rehearse()


def test_settings_are_declared_with_or_without_a_range() -> None:
    @balancer()
    def plain(losses: Tensor, power: float = 1.0, bounded: int = knob(2, low=1, high=3)) -> Tensor:
        return losses

    assert {name: default for name, (default, _) in plain.knobs().items()} == {"power": 1.0, "bounded": 2}
    with pytest.raises(UserError, match=r"bounded = 4 is outside \[1, 3\]"):
        plain(bounded=4)
