"""The way of balancers that decide module by module: task gradients at the noticed modules, plain sums elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.data import Losses
from mtlscale.training.gradients import Gradients, accumulate, combine, gramian
from mtlscale.training.means import Means, head_weights
from mtlscale.training.rows import Partition, TaskGradients, collect, dense_everywhere, reduce, values_of
from mtlscale.training.ways import Asked, Draft, Ways


@dataclass(frozen=True)
class _Gathered:
    """The gradients of a step, summed over workers.

    rows: [T] x noticed parameters; times `unscaled` those of the sums of losses. plain: means -> what is no module's to
    decide, in the order of `Partition.all`: the other parameters' gradients, and those of an objective's terms. all:
    every gradient there is.
    """

    table: Tensor
    rows: list[Gradients]
    unscaled: Tensor | float
    plain: Callable[[Means], Gradients]
    all: Callable[[], list[Tensor]]


def by_modules(ways: Ways, asked: Asked) -> Draft:
    """One decision for each module. Nothing is differentiated task by task where the tasks' sum is all that is asked
    for, in steps of one micro-batch: the losses weighted by their counts are differentiated once."""
    partition = ways.partition
    found = _at_once(ways, asked) if len(asked.micros) == 1 else _task_by_task(ways, asked)
    parts, start = [], 0
    for places in partition.modules:
        parts.append([row[start : start + len(places)] for row in found.rows])
        start += len(places)
    size = len(ways.names)
    k = torch.stack([gramian(part, ways.ones()) for part in parts]) if parts else ways.ones().new_zeros(0, size, size)
    means = ways.means(asked, found.table, k, found.all)
    per_sum = means.per_sum * found.unscaled
    weights, state = ways.balance(asked, means, means.gramian(per_sum))
    ways.zero()
    for parameter, gradient in zip(partition.all, found.plain(means), strict=True):
        parameter.grad = gradient
    still = []
    for places, part, row in zip(partition.modules, parts, weights, strict=True):
        module = [partition.shared[place] for place in places]
        if not bool(row.any()):
            still += module
            continue
        for parameter, gradient in zip(module, combine(part, row * per_sum, module), strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    penalty = asked.penalty()
    if penalty is not None:
        penalty.backward(inputs=partition.all if partition.partial else None)
    ways.densify()
    return Draft(means.losses, torch.full_like(means.losses, float("nan")), state, still=still)


def _noticed(ways: Ways) -> list[int]:
    """Places among the shared parameters, module by module."""
    return [place for places in ways.partition.modules for place in places]


def _at_once(ways: Ways, asked: Asked) -> _Gathered:
    partition, workers = ways.partition, ways.workers
    noticed = [partition.shared[place] for place in _noticed(ways)]
    g, micro = TaskGradients.empty(partition), []
    for losses in asked.micros[0]:
        g.note(losses)
        micro.append(losses)
    table = workers.sum(ways.table(g))
    factors, sizes = ways.factors(asked)
    rows: list[Gradients] = [[None] * len(noticed) for _ in ways.names]
    for losses in micro if noticed else ():
        for task, total in zip(losses.tasks, losses.sums, strict=True):
            scaled = total if factors is None else total * factors[task]
            accumulate(rows[task], torch.autograd.grad(scaled, noticed, retain_graph=True, allow_unused=True))
    per_sum = head_weights(ways.balancer, table[0], table[1] > 0) / table[1].clamp(min=1)
    per_sum = per_sum if asked.scale is None else per_sum * asked.scale
    plain = _plain(micro, per_sum * asked.loss_scale, asked.loss_scale, partition, {id(p) for p in noticed})
    micro.clear()
    if workers.size > 1:
        everything = dense_everywhere(plain, partition.all)
        for row in rows:
            everything += dense_everywhere(row, noticed)
        workers.sum_many(everything)
    return _Gathered(
        table,
        rows,
        sizes / asked.loss_scale,
        lambda means: [None if g is None else _dense(g) / asked.loss_scale for g in plain],
        lambda: values_of([plain, *rows]),
    )


def _plain(
    micro: Sequence[Losses], factors: Tensor, extra_factor: float, partition: Partition, noticed: set[int]
) -> Gradients:
    """One backward pass of the losses times `factors` [T], to the parameters that are not noticed, and one of an
    objective's terms, if there are any; in the order of `Partition.all`."""
    total: Tensor | None = None
    extra: Tensor | None = None
    for losses in micro:
        for task, each in zip(losses.tasks, losses.sums, strict=True):
            part = each * factors[task].to(each.dtype)
            total = part if total is None else total + part
        if losses.extra is not None and losses.extra.requires_grad:
            term = losses.extra * extra_factor
            extra = term if extra is None else extra + term
    everything = partition.all
    shared, own = len(partition.shared), len(everything) - len(partition.extra)
    others = [place for place in range(own) if id(everything[place]) not in noticed]
    reached = [*range(shared), *range(own, len(everything))]
    found: Gradients = [None] * len(everything)
    for loss, places, keep in ((total, others, extra is not None), (extra, reached, False)):
        if loss is not None and loss.requires_grad and places:
            targets = [everything[place] for place in places]
            part_of = torch.autograd.grad(loss, targets, retain_graph=keep, allow_unused=True)
            _add(found, places, part_of)
    return found


def _task_by_task(ways: Ways, asked: Asked) -> _Gathered:
    partition = ways.partition
    factors, sizes = ways.factors(asked)
    unscaled = sizes / asked.loss_scale
    g = collect(asked.micros, partition, factors, asked.loss_scale)
    table = ways.table(g)
    reduce(g, table, partition, ways.workers, True)
    noticed = _noticed(ways)
    others = sorted(set(range(len(partition.shared))) - set(noticed))

    def plain(means: Means) -> Gradients:
        weights = head_weights(ways.balancer, means.losses, means.present) * means.per_sum * unscaled
        rows = [[row[place] for place in others] for row in g.shared]
        found: Gradients = [None] * len(partition.shared)
        _add(found, others, combine(rows, weights, [partition.shared[place] for place in others]))
        for row, weight, group in zip(g.own, weights, partition.own, strict=True):
            found += combine([row], weight.reshape(1), group)
        found += [None] * len(partition.extra)
        terms = [None if term is None else _dense(term) / asked.loss_scale for term in (*g.extra_shared, *g.extra_own)]
        reached = [*range(len(partition.shared)), *range(len(found) - len(partition.extra), len(found))]
        _add(found, reached, terms)
        return found

    return _Gathered(table, [[row[place] for place in noticed] for row in g.shared], unscaled, plain, g.all)


def _add(total: Gradients, places: Sequence[int], gradients: Sequence[Tensor | None]) -> None:
    """total[places] += gradients, where there are any."""
    for place, gradient in zip(places, gradients, strict=True):
        if gradient is not None:
            before = total[place]
            total[place] = gradient if before is None else before + gradient


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient
