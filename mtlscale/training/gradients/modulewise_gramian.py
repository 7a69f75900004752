"""Gradient strategy for balancers that decide module by module.

Task gradients are made at the noticed modules, plain sums elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.balancing import balanced_tasks
from mtlscale.data import Losses
from mtlscale.training.gradients.gramian import Gradients, accumulate, combine, gramian
from mtlscale.training.gradients.per_task import Partition, TaskGradients, collect, dense_everywhere, reduce, values_of
from mtlscale.training.gradients.step_stats import StepStats, head_weights
from mtlscale.training.gradients.strategies import Draft, GradientStrategy, StepRequest, densify


@dataclass(frozen=True)
class _Gathered:
    """Gradients of a step, summed over workers.

    Attributes:
        table: sums of losses and counts [2, T].
        rows: [T] x noticed parameters; times `unscaled` those of the sums of losses.
        unscaled: factors [T] from what was differentiated to the sums of losses.
        plain: from the means to what no module decides, in the order of `Partition.all`: the other parameters'
            gradients, and those of an objective's terms.
        all: returns every gradient there is.
    """

    table: Tensor
    rows: list[Gradients]
    unscaled: Tensor | float
    plain: Callable[[StepStats], Gradients]
    all: Callable[[], list[Tensor]]


def by_modules(strategy: GradientStrategy, request: StepRequest) -> Draft:
    """Draft the update with one decision for each module.

    Nothing is differentiated task by task where only the tasks' sum is needed, in steps of one micro-batch: the losses
    weighted by their counts are differentiated once.
    """
    partition = strategy.partition
    gathered = (
        _at_once(strategy, request)
        if len(request.micros) == 1 and request.earlier is None
        else _task_by_task(strategy, request)
    )
    parts, start = [], 0
    for indices in partition.modules:
        parts.append([row[start : start + len(indices)] for row in gathered.rows])
        start += len(indices)

    size = len(strategy.names)
    k = (
        torch.stack([gramian(part, strategy.ones()) for part in parts])
        if parts
        else strategy.ones().new_zeros(0, size, size)
    )

    stats = strategy.stats(request, gathered.table, k, gathered.all)
    per_sum = stats.per_sum * gathered.unscaled
    weights, state = strategy.balance(request, stats, stats.gramian(per_sum))

    strategy.zero()
    for parameter, gradient in zip(partition.all, gathered.plain(stats), strict=True):
        parameter.grad = gradient

    unmoved = []
    for indices, part, row in zip(partition.modules, parts, weights, strict=True):
        module = [partition.shared[index] for index in indices]
        if not bool(row.any()):
            unmoved += module
            continue
        for parameter, gradient in zip(module, combine(part, row * per_sum, module), strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    penalty = request.penalty()
    if penalty is not None:
        penalty.backward(inputs=partition.all if partition.partial else None)
    densify(strategy.partition.all)
    no_weights = torch.full_like(stats.losses, float("nan"))
    return Draft(stats.losses, no_weights, stats.balanced, state, strategy.all_finite(), unmoved=unmoved)


def _noticed(strategy: GradientStrategy) -> list[int]:
    """Return the positions of the noticed parameters among the shared ones, module by module."""
    return [index for indices in strategy.partition.modules for index in indices]


def _at_once(strategy: GradientStrategy, request: StepRequest) -> _Gathered:
    partition, workers = strategy.partition, strategy.workers
    noticed = [partition.shared[index] for index in _noticed(strategy)]
    task_gradients, micro = TaskGradients.empty(partition), []
    for losses in request.micros[0]:
        task_gradients.note(losses)
        micro.append(losses)

    table = workers.sum(strategy.table(task_gradients))
    factors, sizes = strategy.factors(request)

    rows: list[Gradients] = [[None] * len(noticed) for _ in strategy.names]
    for losses in micro if noticed else ():
        for task, total in zip(losses.tasks, losses.sums, strict=True):
            scaled = total if factors is None else total * factors[task]
            accumulate(rows[task], torch.autograd.grad(scaled, noticed, retain_graph=True, allow_unused=True))

    present = table[1] > 0
    balanced = balanced_tasks(strategy.balancer, table[0], present) if strategy.balancer.heads == "mean" else present
    per_sum = head_weights(strategy.balancer, table[0], present, balanced) / table[1].clamp(min=1)
    per_sum = per_sum if request.scale is None else per_sum * request.scale
    noticed_ids = {id(p) for p in noticed}
    factors_of_sums = per_sum * request.loss_scale
    plain = _plain(micro, factors_of_sums, request.loss_scale, partition, noticed_ids, retain=request.retain)
    micro.clear()

    if workers.size > 1:
        everything = dense_everywhere(plain, partition.all)
        for row in rows:
            everything += dense_everywhere(row, noticed)
        workers.sum_many(everything)

    return _Gathered(
        table,
        rows,
        sizes / request.loss_scale,
        lambda stats: [None if gradient is None else _dense(gradient) / request.loss_scale for gradient in plain],
        lambda: values_of([plain, *rows]),
    )


def _plain(
    micro: Sequence[Losses],
    factors: Tensor,
    extra_factor: float,
    partition: Partition,
    noticed: set[int],
    *,
    retain: bool,
) -> Gradients:
    """Return the gradients of the losses times `factors` [T], and of an objective's terms, as `Partition.all` lists."""
    total: Tensor | None = None
    extra: Tensor | None = None
    for losses in micro:
        for task, loss_sum in zip(losses.tasks, losses.sums, strict=True):
            part = loss_sum * factors[task].to(loss_sum.dtype)
            total = part if total is None else total + part
        if losses.extra is not None and losses.extra.requires_grad:
            term = losses.extra * extra_factor
            extra = term if extra is None else extra + term

    everything = partition.all
    shared, own_end = len(partition.shared), len(everything) - len(partition.extra)
    unnoticed = [index for index in range(own_end) if id(everything[index]) not in noticed]
    reached = [*range(shared), *range(own_end, len(everything))]

    gradients: Gradients = [None] * len(everything)
    # One backward pass for the losses, to parameters that are not noticed; one for the terms.
    for loss, indices, keep in ((total, unnoticed, retain or extra is not None), (extra, reached, retain)):
        if loss is not None and loss.requires_grad and indices:
            targets = [everything[index] for index in indices]
            new_gradients = torch.autograd.grad(loss, targets, retain_graph=keep, allow_unused=True)
            _add(gradients, indices, new_gradients)

    return gradients


def _task_by_task(strategy: GradientStrategy, request: StepRequest) -> _Gathered:
    partition = strategy.partition
    factors, sizes = strategy.factors(request)
    unscaled = sizes / request.loss_scale
    task_gradients = collect(request.micros, partition, factors, request.loss_scale, request.earlier)
    table = strategy.table(task_gradients)
    reduce(task_gradients, table, partition, strategy.workers, True)
    noticed = _noticed(strategy)
    unnoticed = sorted(set(range(len(partition.shared))) - set(noticed))

    def plain(stats: StepStats) -> Gradients:
        of_heads = head_weights(strategy.balancer, stats.losses, stats.present, stats.balanced)
        weights = of_heads * stats.per_sum * unscaled
        rows = [[row[index] for index in unnoticed] for row in task_gradients.shared]
        gradients: Gradients = [None] * len(partition.shared)
        _add(gradients, unnoticed, combine(rows, weights, [partition.shared[index] for index in unnoticed]))
        for row, weight, group in zip(task_gradients.own, weights, partition.own, strict=True):
            gradients += combine([row], weight.reshape(1), group)
        gradients += [None] * len(partition.extra)
        terms = [
            None if term is None else _dense(term) / request.loss_scale
            for term in (*task_gradients.extra_shared, *task_gradients.extra_own)
        ]
        reached = [*range(len(partition.shared)), *range(len(gradients) - len(partition.extra), len(gradients))]
        _add(gradients, reached, terms)
        return gradients

    return _Gathered(
        table, [[row[index] for index in noticed] for row in task_gradients.shared], unscaled, plain, task_gradients.all
    )


def _add(total: Gradients, places: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
    """Add `gradients` to `total` at the positions `places`, where there are any."""
    for index, gradient in zip(places, gradients, strict=True):
        if gradient is not None:
            previous = total[index]
            total[index] = gradient if previous is None else previous + gradient


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient
