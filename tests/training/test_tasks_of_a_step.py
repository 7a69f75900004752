"""Which tasks a step has: those with labels, less those at rest, wherever the number of tasks counts."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtlscale import TaskBalancer
from mtlscale.balancing import Balancer, State, ValidationBalancer
from mtlscale.balancing.contract import balanced_tasks
from mtlscale.config import build, component, names
from mtlscale.data import Losses, Workers
from mtlscale.testing.training import by_threads
from mtlscale.training import Partition, StepResult, Tally, Update

TASKS = 10
REFUSED = ("svd_reweighting", "noise_oracle", "look_ahead", "meta_weighting", "auto_lambda", "modo")
USABLE = [name for name in names("balancers", plugins=False) if name not in REFUSED]


class Net(nn.Module):
    """A trunk of two layers, and a head for each task."""

    def __init__(self, tasks: int = TASKS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(6, 1) for _ in range(tasks))
        self.double()

    def losses(self, seed: int = 0) -> tuple[list[Tensor], Tensor]:
        inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        features: Tensor = self.trunk(inputs)
        return [head(features).square().mean() + 0.1 for head in self.heads], features

    def balancer(self, method: str | Balancer, **settings: Any) -> TaskBalancer:
        modules = method == "conflict_noticed"
        shared = [self.trunk[0], self.trunk[2]] if modules else self.trunk
        if method == "static":
            settings["weights"] = (1.0,) * len(self.heads)
        return TaskBalancer(method, shared=shared, heads=self.heads, **settings)

    def gradient(self) -> Tensor:
        """The gradients of all parameters, and none from here on."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters()]
        for parameter in self.parameters():
            parameter.grad = None
        return torch.cat([part.reshape(-1) for part in parts])


def only(losses: list[Tensor], *tasks: int) -> list[Tensor | None]:
    return [loss if task in tasks else None for task, loss in enumerate(losses)]


def masked(losses: list[Tensor], *tasks: int) -> list[Tensor]:
    """The losses, of these tasks as a mask of zeros leaves them."""
    return [loss * (0.0 if task in tasks else 1.0) for task, loss in enumerate(losses)]


@pytest.mark.parametrize("name", USABLE)
def test_a_task_alone_trains_trunk_and_head_by_its_plain_gradient(name: str) -> None:
    """Also in later steps, in which rules that average weights remember steps with other tasks."""
    net = Net()
    balancer = net.balancer(name)
    for step, present in enumerate((range(TASKS), [3], range(5), [3], [7])):
        losses, features = net.losses(step)
        balancer.backward(only(losses, *present), features=features)
        found = net.gradient()
        if len(present) == 1:
            losses, _ = net.losses(step)
            losses[present[0]].backward()
            torch.testing.assert_close(found, net.gradient(), rtol=1e-9, atol=1e-12)
        balancer.after_step(only(net.losses(step)[0], *present))


@pytest.mark.parametrize("name", [name for name in USABLE if component("balancers", name).heads == "mean"])
def test_heads_are_divided_by_the_number_of_tasks_in_the_step(name: str) -> None:
    net = Net()
    balancer = net.balancer(name)
    losses, features = net.losses()
    balancer.backward(only(losses, 1, 4, 8, 9), features=features)
    heads = [net.heads[task].weight.grad for task in range(TASKS)]
    net.gradient()
    torch.stack(net.losses()[0]).sum().backward()
    for task, head in enumerate(heads):
        plain = net.heads[task].weight.grad
        assert (head is None) == (task not in (1, 4, 8, 9)), task
        if head is not None and plain is not None:
            torch.testing.assert_close(head, plain / 4)


# -- losses of zero ----------------------------------------------------------------------------------------------------


def weights_of(balancer: TaskBalancer, net: Net, losses: list[Any], features: Tensor) -> tuple[Tensor, Tensor]:
    result = balancer.backward(losses, features=features)
    gradient = net.gradient()
    assert not bool(result.losses.isnan()[[loss is not None for loss in losses]].any()), "losses of 0 are noted as 0"
    return result.weights.nan_to_num(), gradient


@pytest.mark.parametrize("name", USABLE)
def test_a_masked_loss_is_a_missing_one_or_one_like_any_other(name: str) -> None:
    """A mask of zeros in the first epoch, in later steps, and for all tasks: step by step as if the loss were None, or
    else as the weighted sum of the losses says."""
    net, steps = Net(3), [(2,), (2,), (), (1, 2), (), (0, 1, 2), (0,), (), ()]
    balancers = [net.balancer(name) for _ in range(2)]
    leaves_out = not bool(balanced_tasks(balancers[0].balancer, torch.zeros(1), torch.tensor([True])).any())
    for step, tasks in enumerate(steps):
        losses, features = net.losses(step)
        weights, gradient = weights_of(balancers[0], net, masked(losses, *tasks), features)
        assert bool(gradient.isfinite().all() & weights.isfinite().all())
        losses, features = net.losses(step)
        other = only(losses, *({0, 1, 2} - set(tasks))) if leaves_out else masked(losses, *tasks)
        expected = weights_of(balancers[1], net, other, features)
        torch.testing.assert_close(weights, expected[0], rtol=1e-12, atol=0.0)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-9, atol=1e-14)
        if not leaves_out:
            sum(w * loss for w, loss in zip(weights, masked(net.losses(step)[0], *tasks), strict=True)).backward()
            torch.testing.assert_close(gradient, net.gradient(), rtol=1e-9, atol=1e-14)

        for balancer, tasks_after in ((balancers[0], ()), (balancers[1], tasks if leaves_out else ())):
            after = [loss.detach() * 0.9 for loss in net.losses(step)[0]]
            balancer.after_step(only(after, *({0, 1, 2} - set(tasks_after))))
        if step % 2:
            for balancer in balancers:
                balancer.end_epoch()
    for key, value in balancers[0].update.state.items():
        torch.testing.assert_close(value, balancers[1].update.state[key], equal_nan=True)


@pytest.mark.parametrize("name", ["ldc_mtl", "igb", "dwa", "gradnorm"])
def test_a_reference_waits_for_the_first_loss_above_zero(name: str) -> None:
    """A loss of 0 in one epoch rules nothing: each later weight is near that of the run in which it was not 0."""
    net, zero_in = Net(3), int(name == "dwa")
    found, undisturbed = (net.balancer(name) for _ in range(2))
    for epoch in range(6):
        pairs = []
        for balancer, tasks in ((found, (2,) if epoch == zero_in else ()), (undisturbed, ())):
            losses, features = net.losses(epoch)
            pairs.append(weights_of(balancer, net, masked(losses, *tasks), features)[0])
            balancer.end_epoch()
        if epoch > zero_in:
            ratio = pairs[0] / pairs[1]
            assert bool((ratio > 0.4).all() and (ratio < 2.5).all()), [pair.tolist() for pair in pairs]


def test_a_loss_of_zero_with_a_gradient_is_a_loss() -> None:
    """A policy's surrogate loss may be exactly 0 where it is not least: its gradient tells."""
    for name in ("mgda", "graddrop", "pcgrad", "conflict_noticed"):
        net = Net(2)
        losses, _ = net.losses()
        result = net.balancer(name).backward([losses[0], losses[1] - losses[1].detach()])
        assert result.losses[1] == 0 and result.balanced.tolist() == [True, True], name
        assert bool(net.heads[1].weight.grad.any()), name


def test_what_is_balanced_by_losses_alone_is_told_by_the_loss() -> None:
    present = torch.tensor([True, True, False])
    losses = torch.tensor([1.0, 0.0, torch.nan])
    for name, left in (("equal", True), ("bandit", True), ("famo", False), ("mgda", False), ("graddrop", False)):
        assert balanced_tasks(build("balancers", name), losses, present).tolist() == [True, left, False]
    squares = torch.tensor([1.0, 4.0, 0.0])
    assert balanced_tasks(build("balancers", "mgda"), losses, present, squares).tolist() == [True, True, False]
    squares[1] = 0.0
    assert balanced_tasks(build("balancers", "mgda"), losses, present, squares).tolist() == [True, False, False]


def test_famo_is_not_judged_by_a_task_that_was_masked_in_the_step() -> None:
    """After the step the mask may be gone; the task's last logarithm is of another batch, or of none."""
    net = Net(3)
    balancer = net.balancer("famo")
    losses, _ = net.losses()
    balancer.backward(masked(losses, 2))
    saved = io.BytesIO()
    torch.save(balancer.state_dict(), saved)
    saved.seek(0)
    resumed = net.balancer("famo")
    resumed.load_state_dict(torch.load(saved, weights_only=True))
    for each in (balancer, resumed):
        each.after_step([0.5 * losses[0], 0.9 * losses[1], losses[2]])
        logits = each.update.state["logits"]
        assert logits[2] == 0.0 and logits[1] > logits[0], "what fell less gets more"


# -- weights that are kept for several steps ---------------------------------------------------------------------------


class Counting(Balancer):
    """The tasks' shares of the squared norms, with a count of calls."""

    name = "counting"
    needs = "gramian"
    heads = "mean"

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"calls": torch.zeros(batch, dtype=torch.int64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        squares = gramian.diagonal()
        return squares / squares.sum(), {"calls": state["calls"] + 1}


KEPT: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [  # tasks, masked ones among them, calls so far
    ((0, 1, 2), (), 1),
    ((0, 1, 2), (), 1),
    ((0, 2), (), 2),  # others: anew
    ((0, 2), (), 2),
    ((0, 1, 2), (1,), 2),  # a mask of zeros makes them the same
    ((1,), (), 3),
    ((0, 1, 2), (), 4),
    ((0, 1, 2), (), 4),
    ((0, 1, 2), (), 5),  # the eighth step after the first: due
]


@pytest.mark.parametrize("micros", [1, 2])
def test_weights_are_kept_for_steps_with_the_same_tasks_alone(micros: int) -> None:
    net = Net(3)
    balancer, weights = net.balancer(Counting(), gramian_every=8), torch.zeros(0)
    for step, (tasks, zeros, calls) in enumerate(KEPT):
        before, called = weights, int(balancer.update.state["calls"])
        for part in range(micros):
            losses, features = net.losses(10 * step + part)
            given = only(masked(losses, *zeros), *tasks)
            if part < micros - 1:
                balancer.accumulate(given, features=features)
            else:
                weights = balancer.backward(given, features=features).weights
        net.gradient()
        assert int(balancer.update.state["calls"]) == calls, step
        assert (weights > 0).tolist() == [task in tasks and task not in zeros for task in range(3)]
        assert float(weights.sum()) == pytest.approx(1.0)
        assert calls != called or torch.equal(weights, before)


def test_weights_that_are_kept_survive_a_checkpoint() -> None:
    net = Net(3)
    balancer, resumed = (net.balancer(Counting(), gramian_every=8) for _ in range(2))
    balancer.backward(only(net.losses()[0], 0, 2))
    resumed.load_state_dict(balancer.state_dict())
    for each in (balancer, resumed):
        assert each.backward(only(net.losses(1)[0], 0, 2)).weights[1] == 0
        assert int(each.update.state["calls"]) == 1
        assert each.backward(net.losses(2)[0]).weights[1] > 0
        assert int(each.update.state["calls"]) == 2


def test_a_task_that_one_worker_alone_has_is_a_task_of_the_step() -> None:
    """Of two workers, the second lacks a task in the third step: the weights are kept; none has it: balanced anew."""

    def work(workers: Workers) -> list[int]:
        net = Net(3)
        shared, heads = list(net.trunk.parameters()), [list(head.parameters()) for head in net.heads]
        more = {"device": torch.device("cpu"), "dtype": torch.float64, "gramian_every": 8, "workers": workers}
        update = Update(["a", "b", "c"], Partition(shared, heads), Counting(), **more)
        calls = []
        for lacking in ((), (), (1,), (0, 1)):
            losses, _ = net.losses(workers.rank)
            tasks = [task for task in range(3) if task != 1 or workers.rank not in lacking]
            update([[Losses(tasks, [losses[task] for task in tasks], [torch.tensor(1)] * len(tasks))]])
            calls.append(int(update.state["calls"]))
        return calls

    assert by_threads(work) == [[1, 1, 1, 2]] * 2


# -- weights from a look ahead -----------------------------------------------------------------------------------------


def of_query(balancer: ValidationBalancer, present: tuple[int, ...], judged: tuple[int, ...]) -> tuple[Update, Tensor]:
    """The update and its weights where some tasks have labels, and some of them query labels."""
    net = Net(3)
    partition = Partition(list(net.trunk.parameters()), [list(head.parameters()) for head in net.heads])
    update = Update(["a", "b", "c"], partition, balancer, device=torch.device("cpu"), dtype=torch.float64)

    def stream(seed: int, tasks: tuple[int, ...]) -> Any:
        losses, _ = net.losses(seed)
        yield Losses(list(tasks), [losses[task] for task in tasks], [torch.tensor(1)] * len(tasks))

    result = update([stream(0, present)], query=[stream(1, judged)])
    return update, result.weights


@pytest.mark.parametrize("name", ["meta_weighting", "modo"])
def test_weights_of_a_look_ahead_sum_to_one_over_the_tasks_of_the_step(name: str) -> None:
    balancer = build("balancers", name)
    for present, judged in (((0, 1, 2), (0, 1, 2)), ((0, 2), (0, 1, 2)), ((0, 1, 2), (0, 2)), ((0, 2), (1,))):
        _, weights = of_query(balancer, present, judged)
        assert float(weights.sum()) == pytest.approx(1.0), (present, judged)
        assert (weights != 0).tolist() == [task in present for task in range(3)]


def test_weights_without_a_sum_are_kept_where_a_task_has_no_query_label() -> None:
    update, weights = of_query(build("balancers", "auto_lambda"), (0, 1, 2), (0, 2))
    torch.testing.assert_close(weights, update.state["weights"])
    assert weights[1] == 0.1 and weights[0] != 0.1
    _, alone = of_query(build("balancers", "auto_lambda"), (1,), (0, 1, 2))
    assert alone.tolist() == [0.0, 1.0, 0.0]


# -- what epochs are told ----------------------------------------------------------------------------------------------


def results() -> list[StepResult]:
    nan = torch.nan
    losses = torch.tensor([[2.0, 0.0, nan], [4.0, 0.0, 3.0], [6.0, 5.0, nan]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.4, 0.6, 0.0]], dtype=torch.float64)
    return [StepResult(loss, weight, ~loss.isnan() & (loss != 0)) for loss, weight in zip(losses, weights, strict=True)]


def test_an_epoch_notes_losses_of_zero_and_tells_the_balancer_the_others() -> None:
    tally = Tally(3)
    for result in results():
        tally.add(result)
    assert tally.mean_losses.tolist() == [4.0, pytest.approx(5 / 3), 3.0]
    assert tally.balanced_losses.tolist() == [4.0, 5.0, 3.0]
    assert tally.balanced.tolist() == [3, 1, 1] and tally.seen.tolist() == [3, 3, 1]
    assert float(tally.departure) == pytest.approx(0.2), "the third step's; the others are equal among their tasks"
    assert results()[0].balanced_losses.tolist()[0] == 2.0 and results()[0].balanced_losses.isnan().tolist()[1:]

    never = Tally(3)
    never.add(replace(results()[0], losses=torch.zeros(3).double(), balanced=torch.zeros(3, dtype=torch.bool)))
    assert never.mean_losses.tolist() == [0.0] * 3 and bool(never.balanced_losses.isnan().all())
    assert float(never.departure) == 0.0

    batched = Tally(2, 3)
    for result in results():
        pair = [torch.stack([part, part.flip(0)]) for part in (result.losses, result.weights, result.balanced)]
        batched.add(StepResult(*pair))
    torch.testing.assert_close(batched.of(1).balanced_losses, tally.balanced_losses.flip(0))


def test_a_loop_of_ones_own_resumes_within_an_epoch_with_masked_losses() -> None:
    net = Net(3)
    balancer, resumed = net.balancer("igb"), net.balancer("igb")
    balancer.backward(masked(net.losses()[0], 2))
    resumed.load_state_dict(balancer.state_dict())
    for each in (balancer, resumed):
        each.backward(net.losses(1)[0])
        each.end_epoch()
    assert torch.equal(balancer.update.state["base_losses"], resumed.update.state["base_losses"])
    assert balancer.update.state["base_losses"][2] == net.losses(1)[0][2].item(), "the mean of the one step that counts"


def test_equal_stays_the_mean_of_the_losses() -> None:
    net = Net(3)
    net.balancer("equal").backward(masked(net.losses()[0], 1))
    found = net.gradient()
    torch.stack(masked(net.losses()[0], 1)).mean().backward()
    torch.testing.assert_close(found, net.gradient())
