"""The way uphill of look_ahead: where losses are computed, what it leaves as it was, and trials side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from frozen.cases import SGD, SHARED, Case, Options
from frozen.compute import compute, in_memory, run_of
from torch import Tensor

from mtlscale import TaskBalancer, UserError
from mtlscale.config.registry.components import build
from mtlscale.data import Losses
from mtlscale.training import Trainer
from mtlscale.training.gradients.look_ahead import uphill
from mtlscale.training.gradients.per_task import Partition
from mtlscale.training.gradients.update import Update

MGDA: Options = {"name": "look_ahead", "of": "mgda", "rho": 0.3}


def losses_at(point: torch.nn.Parameter) -> list[Tensor]:
    return [(point - 1.0).square().sum(), (3.0 * point + 2.0).square().sum()]


def micro(point: torch.nn.Parameter) -> Iterator[Losses]:
    losses = Losses()
    for task, loss in enumerate(losses_at(point)):
        losses.tasks.append(task)
        losses.sums.append(loss)
        losses.counts.append(torch.tensor(1))
    yield losses


def test_the_step_is_made_of_gradients_uphill() -> None:
    point = torch.nn.Parameter(torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64))
    start = point.detach().clone()
    partition = Partition([point], [[], []], [])
    update = Update(("a", "b"), partition, build("balancers", "mgda"), device=torch.device("cpu"), dtype=torch.float64)

    (mean,) = torch.autograd.grad(sum(losses_at(point)) / 2, point)
    ahead = torch.nn.Parameter(start + 0.3 * mean / mean.norm())
    with uphill(update, [micro(point)], 0.3, None, None):
        torch.testing.assert_close(point.detach(), ahead.detach())
        assert point.grad is None
        result = update([micro(point)])
    assert torch.equal(point.detach(), start), "the step begins where the way began"

    first, second = (torch.autograd.grad(loss, ahead)[0] for loss in losses_at(ahead))
    torch.testing.assert_close(point.grad, result.weights[0] * first + result.weights[1] * second)
    torch.testing.assert_close(result.losses, torch.stack([loss.detach() for loss in losses_at(ahead)]))


@pytest.mark.parametrize("options", [{}, SHARED], ids=["own inputs", "shared inputs"])
def test_a_length_of_zero_is_the_balancer_alone(options: Options) -> None:
    """Also with dropout: the way draws no random number of its own."""
    case = Case("uneven", {**MGDA, "rho": 0.0}, SGD, options, dropout=0.3)
    plain = Case("uneven", {"name": "mgda"}, SGD, options, dropout=0.3)
    assert compute(case)[0]["last"] == compute(plain)[0]["last"]
    moved = compute(Case("uneven", {**MGDA, "rho": 1e-9}, SGD, options, dropout=0.3))[0]
    for name, summary in compute(plain)[0]["last"].items():
        assert moved["last"][name][2:] == pytest.approx(summary[2:], rel=1e-5, abs=1e-7)


def test_in_a_wrapper_and_around_one() -> None:
    inside, around = (
        build("balancers", "smooth", {"of": {"look_ahead": {"rho": 0.2, "of": "mgda"}}}),
        build("balancers", "look_ahead", {"rho": 0.2, "of": {"smooth": {"of": "mgda"}}}),
    )
    assert inside.ascent == around.ascent == 0.2
    assert build("balancers", "smooth", {"of": "mgda"}).ascent == 0.0
    ends = [compute(Case("uneven", {"name": b.name, **options}, SGD))[0]["last"] for b, options in (
        (inside, {"of": {"look_ahead": {"rho": 0.2, "of": "mgda"}}}),
        (around, {"rho": 0.2, "of": {"smooth": {"of": "mgda"}}}),
    )]  # fmt: skip
    assert ends[0] == ends[1]


def test_random_numbers_and_statistics_are_as_without_the_way() -> None:
    case = Case("uneven", MGDA, SGD, dropout=0.3)
    trainer = Trainer(run_of(case), in_memory(case))
    next(trainer.train())
    after = torch.get_rng_state()
    plain = Trainer(run_of(Case("uneven", {"name": "mgda"}, SGD, dropout=0.3)), in_memory(case))
    next(plain.train())
    assert torch.equal(after, torch.get_rng_state())


def test_a_loop_of_ones_own_cannot_look_ahead() -> None:
    trunk, heads = torch.nn.Linear(2, 2), [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    with pytest.raises(UserError, match="look_ahead needs the losses at another point"):
        TaskBalancer("look_ahead", shared=trunk, heads=heads)
