"""Every bound on the length of an update holds in every type, however near the gradients come to cancelling."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from bounds import BOUNDS, KINDS, NOISES, PRECISIONS, TOLERANCE, Update, gradients, make, own_loop
from torch import nn

import mtlscale
from mtlscale.balancing import ValidationBalancer
from mtlscale.config import component, names

BOUNDED = [
    name
    for name, bound in BOUNDS.items()
    if not isinstance(bound, str) and not issubclass(component("balancers", name), ValidationBalancer)
]
CLOSE = ("cagrad", "getmtl", "getmtl_exact", "upgrad", "dual_proj", "pcd", "mgda", "nash_mtl")


def check(name: str, precision: str, kind: str, draws: int) -> None:
    """Hold the length of first updates against its bound, for each noise."""
    bound, balancer = BOUNDS[name], make(name)
    assert not isinstance(bound, str)
    for noise in NOISES:
        generator = torch.Generator().manual_seed(zlib.crc32(f"{kind} {noise}".encode()))
        for _ in range(draws):
            jacobian = gradients(kind, noise, generator).to(PRECISIONS[precision])
            ratio = float(bound(own_loop(balancer, jacobian)))
            assert ratio <= TOLERANCE, f"{ratio:.3g} times the bound, with noise of {noise:g}"


def test_every_rule_states_its_bound_or_why_it_has_none() -> None:
    assert set(BOUNDS) == set(names("balancers", plugins=False)), "tests/support/bounds.py names each balancer"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", BOUNDED)
def test_a_step_is_no_longer_than_its_method_says(name: str, precision: str) -> None:
    check(name, precision, KINDS[0], 2)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_so_it_is_for_other_gradients_that_cancel(kind: str, precision: str) -> None:
    for name in CLOSE:
        check(name, precision, kind, 1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", BOUNDED)
def test_of_two_hundred_draws_none_is_longer(name: str, precision: str) -> None:
    check(name, precision, KINDS[0], 200)
    for kind in KINDS[1:]:
        check(name, precision, kind, 20)


@pytest.mark.parametrize("amp", ["off", "bf16"])
@pytest.mark.parametrize("how", ["layer by layer", "task by task", "accumulated"])
@pytest.mark.parametrize("name", CLOSE)
def test_in_a_network_steps_keep_their_bounds(name: str, how: str, amp: Any) -> None:
    """Two heads want opposite things but for a little, and a third."""
    bound = BOUNDS[name]
    assert not isinstance(bound, str)
    for noise in (0.0, 1e-4, 1e-2):
        torch.manual_seed(0)
        trunk = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        one, other, third = torch.randn(3, 64) / 8
        heads = nn.ModuleList(nn.Linear(64, 1) for _ in range(3))
        with torch.no_grad():
            for head, weight in zip(heads, (one, -one + noise * other, third), strict=True):
                head.weight.copy_(weight[None])
                head.bias.zero_()

        loop = mtlscale.TaskBalancer(name, shared=trunk, heads=list(heads), amp=amp)
        micros = torch.randn(2, 32, 100).split(1 if how == "accumulated" else 2)
        jacobian = torch.zeros(3, 1, dtype=torch.float64)
        for index, inputs in enumerate(micros):
            with torch.autocast("cpu", torch.bfloat16) if amp == "bf16" else nullcontext():
                features = trunk(inputs.flatten(0, 1))
                losses = [1.0 + head(features).float().mean() for head in heads]
            parts = [torch.autograd.grad(loss, list(trunk.parameters()), retain_graph=True) for loss in losses]
            rows = torch.stack([torch.cat([part.double().flatten() for part in row]) for row in parts])
            jacobian = jacobian + rows / len(micros)
            step = loop.backward if index == len(micros) - 1 else loop.accumulate
            result = step(losses, features=features if how == "layer by layer" else None)

        direction = torch.cat([p.grad.double().flatten() for p in trunk.parameters() if p.grad is not None])
        eps = torch.finfo(torch.bfloat16 if amp == "bf16" else torch.float32).eps
        assert result is not None
        assert bound(Update(direction, jacobian, result.weights, eps)) <= TOLERANCE
