"""The table of what balancers keep, found by trying each on random gradients: a mark is what happened, not a claim.

Trying takes minutes, so marks are kept in `properties.json`; `python docs/site/properties.py` tries each balancer whose
settings or results have changed since. `tests/test_docs.py` tries all on a few draws, and as a slow test on all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, JacobianBalancer, State
from mtlscale.config.errors import UserError
from mtlscale.config.registry.components import build, component, names
from mtlscale.config.run.run_parts import settings
from mtlscale.solvers import inner_products

FILE = Path(__file__).with_suffix(".json")
COMMAND = "python docs/site/properties.py"
FEW, MANY = 24, 976  # draws; the few settle most
STEPS, EPOCH = 10, 3  # steps, and steps of an epoch
TASKS, PARAMETERS = 5, 20
RELATIVE = {torch.float64: 1e-5, torch.float32: 1e-2}  # difference of two updates, over their length, that is rounding
PROPERTIES = ("order", "scale", "no conflict", "linear")
YES, FIRST, NO = "yes", "first step", "–"

INTRO = (
    "Properties, tried on 1,000 random problems of five tasks (default settings, float64 and float32, ten steps for "
    "rules with a memory): *order*: the order of the tasks does not matter; *scale*: multiplying a loss does not turn "
    "the update; *no conflict*: no task's loss rises; *linear*: the update is linear in such factors. *First step*: "
    "held in all first steps, not later. '–': a counterexample was found. '?': cannot be tried this way. *State*: it "
    "remembers earlier steps."
)


def table() -> str:
    """Return the table as Markdown."""
    head = "| balancer | needs | cost of a step | order | scale | no conflict | linear | state |"
    rows = [_row(name) for name in names("balancers", plugins=False)]
    return "\n".join([INTRO, "", head, "| --- |" + " --- |" * 7, *rows])


def _row(name: str) -> str:
    cls, balancer = component("balancers", name), default(name)
    cells = ["?"] * 5
    if balancer is not None:
        held = known().get(name, dict.fromkeys(PROPERTIES, "not tried"))
        cells = [*(held[each] for each in PROPERTIES), YES if remembers(balancer) else NO]
    return f"| [`{name}`](#{name}) | {cls.needs} | {cls.cost} | {' | '.join(cells)} |"


def default(name: str) -> Balancer | None:
    """Return the balancer with its default settings; None where random gradients alone cannot try it."""
    try:
        balancer: Balancer = build("balancers", name, {"weights": [1.0] * TASKS} if name == "static" else {})
    except UserError:
        return None
    needs_more = any(hasattr(balancer, source) for source in ("from_data", "from_noise"))
    return None if needs_more or balancer.needs in ("validation", "modules") else balancer


@functools.cache
def known() -> dict[str, dict[str, str]]:
    """Return the marks in the file of each balancer whose settings and results have not changed since."""
    written = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {name: entry["marks"] for name, entry in written.items() if entry["settings"] == _settings(name)}


def write() -> None:
    """Try the balancers whose marks are not known, and bring the file up to date."""
    content = {}
    for name in names("balancers", plugins=False):
        balancer = default(name)
        if balancer is not None:
            content[name] = {"settings": _settings(name), "marks": known().get(name) or marks(balancer)}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    known.cache_clear()


def _settings(name: str) -> Any:
    """Return the settings of a balancer as the file has them; None for one that is not tried."""
    balancer = default(name) if name in names("balancers", plugins=False) else None
    return None if balancer is None else json.loads(json.dumps(settings(balancer)))


def remembers(balancer: Balancer) -> bool:
    """Return whether anything in the state of a balancer makes a step depend on those before it."""
    state = balancer.init(TASKS)
    if isinstance(balancer, JacobianBalancer):
        _, state = balancer.direction([torch.ones(TASKS, 2).double()], torch.ones(TASKS).double(), state)
    return bool(state.keys() - {*balancer.hints, *balancer.counters, *balancer.traced})


@dataclass(frozen=True)
class Draws:
    """Steps of many draws: gradients [S, B, T, P], losses before and after each step [S, B, T]."""

    jacobians: Tensor
    losses: Tensor
    after: Tensor

    def scaled(self, factors: Tensor) -> Draws:
        """Return the draws with losses multiplied by factors [B, T]."""
        return Draws(factors.unsqueeze(-1) * self.jacobians, factors * self.losses, factors * self.after)

    def permuted(self, order: Tensor) -> Draws:
        """Return the draws with the tasks in another order."""
        return Draws(self.jacobians[..., order, :], self.losses[..., order], self.after[..., order])

    def first(self) -> Draws:
        """Return the first step alone."""
        return Draws(self.jacobians[:1], self.losses[:1], self.after[:1])


def draw(count: int, generator: torch.Generator) -> Draws:
    """Return random draws.

    In half of them gradients have a part in common, of either sign; in a quarter they nearly cancel.
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    common = torch.sign(normal(1, count, TASKS, 1)) * 1.5 * normal(1, count, 1, PARAMETERS)
    kinds = (torch.arange(count) % 4).reshape(1, count, 1, 1)
    gradients = normal(STEPS, count, TASKS, PARAMETERS) + torch.where((kinds == 1) | (kinds == 2), common, 0.0)
    noise = 10.0 ** (-2.0 * uniform(1, count, 1))
    opposed = noise * gradients[..., -1, :] - (uniform(STEPS, count, TASKS - 1, 1) * gradients[..., :-1, :]).sum(-2)
    gradients[..., -1, :] = torch.where((kinds == 3).squeeze(-1), opposed, gradients[..., -1, :])
    jacobians = 10.0 ** (4.0 * uniform(1, count, TASKS, 1) - 2.0) * gradients

    losses = (0.5 + uniform(1, count, TASKS)) * (0.8 + 0.2 * uniform(STEPS, count, TASKS)).cumprod(0)
    return Draws(jacobians, losses, losses * (0.9 + 0.1 * uniform(STEPS, count, TASKS)))


def marks(balancer: Balancer, counts: Sequence[int] = (FEW, MANY)) -> dict[str, str]:
    """Return for each property whether it held in all steps, in the first ones alone, or not even there.

    Args:
        balancer: The balancer to try.
        counts: Numbers of draws; what failed on some is not tried on the next.
    """
    held = dict.fromkeys(PROPERTIES, YES)
    generator = torch.Generator().manual_seed(0)
    for count in counts:
        draws = draw(count, generator)
        factors = 10.0 ** (2.0 * torch.rand(2, count, TASKS, generator=generator, dtype=torch.float64) - 1.0)
        order = torch.randperm(TASKS, generator=generator)
        for dtype in (torch.float64, torch.float32):
            _look(balancer, draws, factors, order, dtype, held)
    return held


def _look(
    balancer: Balancer, draws: Draws, factors: Tensor, order: Tensor, dtype: torch.dtype, held: dict[str, str]
) -> None:
    """Lower the marks of the properties that do not hold on these draws."""
    alive = {name for name, mark in held.items() if mark != NO}
    if not remembers(balancer) or YES not in held.values():
        draws = draws.first()

    def run(tried: Draws) -> Tensor:
        return updates(balancer, tried, dtype)

    kept: dict[str, Tensor] = {}  # where each property held, [S, B]
    if alive & {"order", "scale", "no conflict"}:
        plain = run(draws)
    if alive & {"scale", "linear"}:
        first = run(draws.scaled(factors[0]))

    if "order" in alive:
        kept["order"] = _alike(run(draws.permuted(order)), plain, dtype)
    if "scale" in alive:
        kept["scale"] = _alike(_unit(first), _unit(plain), dtype)
    if "no conflict" in alive:
        gains = (draws.jacobians @ plain.unsqueeze(-1)).squeeze(-1)
        lengths = draws.jacobians.norm(dim=-1) * plain.norm(dim=-1, keepdim=True)
        kept["no conflict"] = (gains >= -RELATIVE[dtype] * lengths).all(-1)
    if "linear" in alive:
        second, both = (run(draws.scaled(each)) for each in (factors[1], factors.sum(0)))
        kept["linear"] = _alike(both, first + second, dtype)

    for name, where in kept.items():
        if not bool(where.all()):
            held[name] = FIRST if bool(where[0].all()) else NO


def updates(balancer: Balancer, draws: Draws, dtype: torch.dtype) -> Tensor:
    """Return the updates [S, B, P] of the shared parameters, for gradients in this type."""
    jacobians = draws.jacobians.to(dtype)
    steps, count, tasks, _ = jacobians.shape
    if isinstance(balancer, JacobianBalancer):
        return torch.stack([_directions(balancer, draws, jacobians, index) for index in range(count)], 1)

    state = balancer.init(tasks, batch=(count,))
    if "seed" in state:
        state = {**state, "seed": torch.arange(count)}
    if "precision" in balancer.hints:
        state = {**state, "precision": torch.full((count,), torch.finfo(dtype).eps, dtype=torch.float64)}

    result = []
    for step in range(steps):
        gramian = inner_products(jacobians[step], jacobians[step])
        weights, state = balancer(draws.losses[step], gramian, state)
        state = balancer.after_step(draws.after[step], state)
        if (step + 1) % EPOCH == 0:
            state = balancer.on_epoch_end(draws.losses[step + 1 - EPOCH : step + 1].mean(0), state)
        result.append((weights.unsqueeze(-2) @ jacobians[step].to(torch.float64)).squeeze(-2))
    return torch.stack(result)


def _directions(balancer: JacobianBalancer, draws: Draws, jacobians: Tensor, index: int) -> Tensor:
    """Return the updates [S, P] of one draw of a balancer that gets the gradients themselves."""
    state: State = balancer.init(jacobians.shape[-2], seed=index)
    result = []
    for jacobian, losses in zip(jacobians[:, index], draws.losses[:, index], strict=True):
        (direction,), state = balancer.direction([jacobian], losses, state)
        result.append(direction.to(torch.float64))
    return torch.stack(result)


def _unit(updates: Tensor) -> Tensor:
    return updates / updates.norm(dim=-1, keepdim=True).clamp(min=1e-300)


def _alike(one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """Return where two updates [S, B, P] are the same but for rounding."""
    size = torch.maximum(one.norm(dim=-1), other.norm(dim=-1)).clamp(min=1e-12)
    return (one - other).norm(dim=-1) <= RELATIVE[dtype] * size


if __name__ == "__main__":
    write()
