"""The losses that cells are searched by: their gradients, of first and second order, and what they do not see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_cells import plain
from torch import Tensor
from torch.func import functional_call

from mtlscale.architectures import StepView
from mtlscale.config import Task, TaskSuite
from mtlscale.data import Batch, Samples
from mtlscale.nas.cells import OPERATIONS
from mtlscale.nas.search.mixed_cell import LeavingStates
from mtlscale.nas.search.sources import (
    ArchitectureLosses,
    ChoiceSource,
    WeightsSource,
    attacked,
    from_uniform,
    under_attack,
)
from mtlscale.nas.search.supernet import CellSupernet, Size
from mtlscale.nas.search.unrolled import RADIUS, hessian_product, look_ahead, steps_of
from mtlscale.training import SupervisedSource

SUITE = TaskSuite(
    name="p",
    tasks=(Task(name="kind", loss="cross_entropy", outputs=3, metrics=("accuracy",)),),
    inputs="shared",
    input_kind="image",
    input_shape=(2, 6, 6),
    unlabelled=("ood",),
)


@pytest.fixture(autouse=True)
def _double() -> object:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("states", [(0, 1), (3,)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("operations", [8, 3])
def test_grouped_calls_equal_plain_ones(states: tuple[int, ...], stride: int, operations: int) -> None:
    if stride == 2 and states != (0, 1):
        return
    torch.manual_seed(0)
    kept = [[OPERATIONS[o] for o in sorted(torch.randperm(8)[:operations].tolist())] for _ in range(14)]
    leaving = LeavingStates(states, 3, stride, kept)
    maps = [torch.randn(4, 3, 6, 6, requires_grad=True) for _ in states]
    weights = torch.rand(14, 8, requires_grad=True)
    found, wanted = leaving(maps, weights, maps), plain(leaving, maps, weights, maps)
    along = [torch.randn_like(each) for each in found]
    of = [weights, *maps, *leaving.parameters()]
    grads = []
    for one in (found, wanted):
        total = sum((a * b).sum() for a, b in zip(one, along, strict=True))
        assert isinstance(total, Tensor)
        grads.append(torch.autograd.grad(total, of, allow_unused=True))
    for left, right in zip([*found, *grads[0]], [*wanted, *grads[1]], strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            torch.testing.assert_close(left, right.expand_as(left), rtol=1e-9, atol=1e-9)


def test_divergence_from_uniform() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 4)
    p = logits.softmax(1)
    uniform = torch.full_like(p, 0.25)
    torch.testing.assert_close(from_uniform(logits), (uniform * (uniform / p).log()).sum(1))
    torch.testing.assert_close(from_uniform(logits + 3), from_uniform(logits))
    assert (from_uniform(logits) > 0).all() and from_uniform(torch.ones(1, 4)).abs() < 1e-12


def test_attacks_stay_near_and_within_the_range() -> None:
    torch.manual_seed(0)
    pixels, gradient = torch.rand(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    epsilon = torch.tensor([0.1, 0.3])[:, None, None]
    low, high = torch.zeros(2, 1, 1), torch.ones(2, 1, 1)
    start = 2 * torch.rand(3, 2, 4, 4) - 1
    found = attacked(pixels, gradient, start, epsilon, low, high)
    assert ((found - pixels).abs() <= epsilon + 1e-12).all() and (found >= 0).all() and (found <= 1).all()
    inside = (pixels > epsilon) & (pixels < 1 - epsilon)
    assert ((found - pixels) * gradient.sign() > 0)[inside].all()  # uphill: the step is longer than the start is far
    assert torch.equal(attacked(pixels, gradient, start, epsilon * 0, low, high), pixels)


def _search(
    wanted: Callable[[CellSupernet], ArchitectureLosses], decay: float = 0.1
) -> tuple[CellSupernet, ChoiceSource, torch.optim.SGD]:
    torch.manual_seed(1)
    model = CellSupernet(SUITE, Size(cells=1, channels=2), 0.0, "x", lambda _: {})
    source = ChoiceSource(model, wanted(model))
    source.bind(SupervisedSource(model, SUITE), "off")
    return model, source, torch.optim.SGD(model.weights(), lr=0.05, momentum=0.9, weight_decay=decay)


def _batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(2)
    found = []
    for stream in ("all", "all", "ood"):
        inputs = torch.randn(6, 2, 6, 6, generator=generator)
        targets = {} if stream == "ood" else {"kind": torch.randint(3, (6,), generator=generator)}
        found.append(Batch(stream, Samples(inputs, targets), 6))
    return found


def _gradients(model: CellSupernet, source: ChoiceSource, micro: list[Batch]) -> dict[str, list[Tensor]]:
    found = {}
    for losses in source(micro):
        [place], [total], [count] = losses.tasks, losses.sums, losses.counts
        grads = torch.autograd.grad(total / count, model.choices())
        found[source.names[place]] = list(grads)
    return found


def _five(second: bool) -> Callable[[CellSupernet], ArchitectureLosses]:
    def wanted(model: CellSupernet) -> ArchitectureLosses:
        targets = {name: (costs, 0.1, float(costs.max())) for name, costs in model.costs.items()}
        return ArchitectureLosses(second=second, ood=50.0, epsilon=0.03, targets=targets)

    return wanted


def test_first_order_gradients_are_those_of_the_losses() -> None:
    model, source, _ = _search(_five(False))
    _, val, ood = _batches()
    statistics = [value.clone() for value in model.buffers()]
    found = _gradients(model, source, [val, ood])
    assert all(torch.equal(a, b) or a.dtype == torch.int64 for a, b in zip(statistics, model.buffers(), strict=True))
    logits = model(Batch("all", val.samples, 6)).predictions["kind"]
    loss = torch.nn.functional.cross_entropy(logits, val.samples.targets["kind"])
    for left, right in zip(found["validation"], torch.autograd.grad(loss, model.choices()), strict=True):
        torch.testing.assert_close(left, right if right is not None else torch.zeros_like(left))
    assert not torch.equal(found["adversarial"][1], found["validation"][1])


def test_costs_do_not_see_the_weights() -> None:
    model, source, optimizer = _search(_five(True))
    train, val, ood = _batches()
    source.before_step(StepView(turns={"weights": ([[train]], optimizer)}))
    before = _gradients(model, source, [val, ood])
    with torch.no_grad():
        for parameter in model.weights():
            parameter.mul_(1.3).add_(0.1)
    after = _gradients(model, source, [val, ood])
    for name in ("parameters", "flops"):
        assert all(torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True))
        assert any(bool(g.any()) for g in before[name])
    assert not torch.equal(before["validation"][1], after["validation"][1])


def test_second_order_without_a_step_is_first_order() -> None:
    train, val, ood = _batches()
    model, source, optimizer = _search(_five(True))
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    source.before_step(StepView(turns={"weights": ([[train]], optimizer)}))
    second = _gradients(model, source, [val, ood])
    first = _gradients(*_search(_five(False))[:2], [val, ood])
    for name, grads in first.items():
        for left, right in zip(grads, second[name], strict=True):
            assert torch.equal(left, right), name


@pytest.mark.parametrize(("radius", "tolerance"), [(1e-6, 1e-5), (RADIUS, 0.25)])  # further off than ReLUs bend
def test_second_order_is_the_gradient_through_the_step(
    radius: float, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against an exact derivative, with momentum and weight decay; the weights come back to where they were."""
    monkeypatch.setattr("mtlscale.nas.search.unrolled.RADIUS", radius)
    model, source, optimizer = _search(lambda _: ArchitectureLosses(second=True))
    train, val, _ = _batches()
    for parameter in model.weights():
        optimizer.state[parameter]["momentum_buffer"] = torch.randn_like(parameter) * 0.01
    names = {id(p): name for name, p in model.named_parameters()}
    of_weights, chosen = model.weights(), model.choices()
    buffers = dict(model.named_buffers())
    fixed = {names[id(p)]: p for p in chosen}

    def loss(batch: Batch, weights: dict[str, Tensor]) -> Tensor:
        state = {**{n: b.clone() for n, b in buffers.items()}, **fixed, **weights}
        logits = functional_call(model, state, (batch,)).predictions["kind"]
        return torch.nn.functional.cross_entropy(logits, batch.samples.targets["kind"])

    weights = {names[id(p)]: p for p in of_weights}
    gradients = torch.autograd.grad(loss(train, weights), of_weights, create_graph=True, allow_unused=True)
    ahead = {}
    for parameter, gradient in zip(of_weights, gradients, strict=True):
        move = 0.9 * optimizer.state[parameter]["momentum_buffer"] + 0.1 * parameter
        ahead[names[id(parameter)]] = parameter - 0.05 * (move + (0.0 if gradient is None else gradient))
    exact = torch.autograd.grad(loss(val, ahead), chosen, allow_unused=True)
    before = [p.detach().clone() for p in of_weights]
    source.before_step(StepView(turns={"weights": ([[train]], optimizer)}))
    found = _gradients(model, source, [val])["validation"]
    assert all(torch.equal(a, b) for a, b in zip(before, of_weights, strict=True))
    first = _gradients(*_search(lambda _: ArchitectureLosses())[:2], [val])["validation"]
    assert exact[1] is not None  # the one cell is a reduction
    assert (found[1] - exact[1]).norm() < tolerance * exact[1].norm()
    assert (first[1] - exact[1]).norm() > 0.3 * exact[1].norm()


def test_the_product_with_the_hessian_on_a_smooth_problem() -> None:
    torch.manual_seed(0)
    weights, choices = [torch.randn(3, requires_grad=True)], [torch.randn(2, requires_grad=True)]
    mixing = torch.randn(2, 3)

    def loss() -> Tensor:
        return (choices[0] @ mixing @ weights[0] ** 2) + (choices[0] ** 2).sum() * weights[0].sum()

    def closure(of: object) -> list[Tensor]:
        return list(torch.autograd.grad(loss(), choices))

    v = torch.randn(3)
    [found] = hessian_product(closure, weights, choices, [v])
    [of_weights] = torch.autograd.grad(loss(), weights, create_graph=True)
    [exact] = torch.autograd.grad(of_weights @ v, choices)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-9)  # quadratic in the weights: differences are exact
    assert not hessian_product(closure, weights, choices, [torch.zeros(3)])[0].any()


def test_looking_ahead_is_the_step_that_sgd_takes() -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, weight_decay=0.2)
    parameter.grad = torch.randn(4)
    optimizer.step()
    gradient, before = torch.randn(4), parameter.detach().clone()
    look_ahead(steps_of(optimizer), [gradient])
    there = parameter.detach().clone()
    with torch.no_grad():
        parameter.copy_(before)
    parameter.grad = gradient
    optimizer.step()
    torch.testing.assert_close(there, parameter.detach())


def test_weights_learn_the_loss_under_attack_where_it_is_asked_for() -> None:
    """Its gradient is that of plain cross entropy on images that were attacked by hand."""
    torch.manual_seed(1)
    model = CellSupernet(SUITE, Size(cells=1, channels=2), 0.0, "x", lambda _: {})
    supervised = SupervisedSource(model, SUITE)
    sources = {"plain": WeightsSource(model, 1.0, True), "attack": WeightsSource(model, 1.0, True, 0.03)}
    for source in sources.values():
        source.bind(supervised, "off")
    target = _batches()[0].samples.targets["kind"]
    images = torch.rand(6, 2, 6, 6) * 255  # attacks leave no pixel outside this range
    images = (images - model.mean) / model.std
    batch = Batch("all", Samples(images.clone(), {"kind": target}), 6)

    def loss(pixels: Tensor) -> Tensor:
        prediction = model(Batch("all", Samples(pixels, {"kind": target}), 6)).predictions["kind"]
        return torch.nn.functional.cross_entropy(prediction, target)

    images.requires_grad_()
    (by_pixels,) = torch.autograd.grad(loss(images), images)
    wanted = under_attack(model, batch, images.detach(), by_pixels, 0.03)
    reach = 0.03 * 255 / model.std
    assert ((wanted - images).abs() <= reach + 1e-9).all() and not torch.equal(wanted, images)

    [clean] = sources["plain"]([batch])
    task_loss, added = sources["attack"]([batch])
    torch.testing.assert_close(task_loss.sums[0], clean.sums[0])
    assert added.extra is not None and added.extra > clean.sums[0] / 6 and not added.sums
    found = torch.autograd.grad(added.extra, model.weights(), allow_unused=True)
    for left, right in zip(found, torch.autograd.grad(loss(wanted), model.weights(), allow_unused=True), strict=True):
        torch.testing.assert_close(left, right)
    [alone] = sources["attack"]([batch], terms=False)
    assert alone.extra is None
