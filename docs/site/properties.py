"""The table of what balancers keep, found by trying each on random gradients: a mark is what happened, not a claim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer
from mtlscale.config.errors import UserError
from mtlscale.config.registry.components import build, component, names

_CASES, _TASKS, _PARAMETERS = 24, 5, 6
_RELATIVE = 1e-5  # difference of two directions, over their length, that counts as none

INTRO = (
    "What each balancer keeps at its first step and with its default settings, found on 24 draws of five random "
    "gradients of unlike lengths: *order*, the update does not depend on the order of the tasks; *scale*, multiplying "
    "a loss does not turn the update; *no conflict*, no task's loss rises along it; *linear*, it is linear in the "
    "factors of the losses. A dash: found otherwise at least once. *State*: it remembers something from step to step."
)


def table() -> str:
    """Return the table as Markdown."""
    head = "| balancer | needs | cost of a step | order | scale | no conflict | linear | state |"
    rows = [_row(name) for name in names("balancers", plugins=False)]
    return "\n".join([INTRO, "", head, "| --- |" + " --- |" * 7, *rows])


def _row(name: str) -> str:
    cls = component("balancers", name)
    marks = " | ".join(_marks(name))
    return f"| [`{name}`](#{name}) | {cls.needs} | {cls.cost} | {marks} |"


def _marks(name: str) -> list[str]:
    """Return the marks of a balancer, or `?` for one that random gradients alone cannot try."""
    try:
        balancer: Balancer = build("balancers", name, {"weights": [1.0] * _TASKS} if name == "static" else {})
        held, state = properties(balancer), balancer.init(_TASKS)
    except (UserError, NotImplementedError):
        return ["?"] * 5
    remembered = {name for name in state if name not in balancer.hints and name not in balancer.counters}
    return ["yes" if found else "–" for found in (*held, bool(remembered))]


def properties(balancer: Balancer) -> tuple[bool, bool, bool, bool]:
    """Return whether the update keeps order, scale, all losses falling, and linearity in the factors.

    Raises:
        NotImplementedError: If it needs more than the task gradients.
    """
    if balancer.needs in ("validation", "modules") or hasattr(balancer, "from_data") or hasattr(balancer, "from_noise"):
        raise NotImplementedError(balancer.name)

    generator = torch.Generator().manual_seed(0)
    order = scale = peaceful = linear = True
    for _ in range(_CASES):
        sizes = torch.randn(_TASKS, 1, generator=generator, dtype=torch.float64).exp()
        jacobian = sizes * torch.randn(_TASKS, _PARAMETERS, generator=generator, dtype=torch.float64)
        losses = 0.5 + torch.rand(_TASKS, generator=generator, dtype=torch.float64)
        first = 0.2 + torch.rand(_TASKS, generator=generator, dtype=torch.float64)
        second = 0.2 + torch.rand(_TASKS, generator=generator, dtype=torch.float64)
        permutation = torch.randperm(_TASKS, generator=generator)

        plain = update(balancer, jacobian, losses)
        order &= _alike(update(balancer, jacobian[permutation], losses[permutation]), plain)
        by_first, by_second, by_both = (
            update(balancer, factors[:, None] * jacobian, factors * losses)
            for factors in (first, second, first + second)
        )
        scale &= _alike(by_first / by_first.norm(), plain / plain.norm())
        linear &= _alike(by_both, by_first + by_second)
        peaceful &= bool((jacobian @ plain / jacobian.norm(dim=1) / plain.norm() > -_RELATIVE).all())
    return order, scale, peaceful, linear


def update(balancer: Balancer, jacobian: Tensor, losses: Tensor) -> Tensor:
    """Return the update [P] of the shared parameters at the first step."""
    state: Any = balancer.init(len(losses), seed=0)
    if isinstance(balancer, JacobianBalancer):
        (direction,), _ = balancer.direction([jacobian], losses, state)
        return direction
    weights, _ = balancer(losses, jacobian @ jacobian.T, state)
    return weights @ jacobian


def _alike(one: Tensor, other: Tensor) -> bool:
    return float((one - other).norm()) <= _RELATIVE * max(float(one.norm()), float(other.norm()), 1e-12)
