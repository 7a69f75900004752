"""Gradient strategy for balancers of Gramians at the shared representation."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.config import UserError
from mtlscale.solvers import inner_products
from mtlscale.training.gradients.per_task import AtRepresentation, TaskGradients, at_representation, by_task
from mtlscale.training.gradients.strategies import Draft, GradientStrategy, StepRequest, plus


def by_representation(strategy: GradientStrategy, request: StepRequest) -> Draft:
    """Draft the update by the Gramian at the representation (MGDA-UB) and one backward pass through the trunk.

    Tasks with inputs of their own have representations of different samples, hence orthogonal gradients there.
    """
    partition, names = strategy.partition, strategy.names
    task_gradients = TaskGradients.empty(partition)
    at_z: list[AtRepresentation] = []
    k = torch.zeros(len(names), len(names), dtype=torch.float64, device=strategy.device)
    extra: Tensor | None = None
    factors, sizes = strategy.factors(request)

    for losses in request.micros[0]:
        task_gradients.note(losses)
        extra = plus(extra, losses.extra)
        if not losses.sums:
            continue
        if losses.representation is None or not losses.branches:
            raise UserError(
                f"{strategy.balancer.name} needs an architecture with one shared representation, such as hps"
            )

        grads = torch.stack(at_representation(task_gradients.own, losses, partition, factors))
        at_z.append(AtRepresentation(losses.representation, losses.tasks, grads))
        flat = grads.flatten(1)
        k += by_task(inner_products(flat, flat), losses.tasks, len(names))

    table = strategy.table(task_gradients)
    strategy.workers.sum_many([table, k])
    stats = strategy.stats(request, table, k)
    per_sum = stats.per_sum * sizes

    weights, state = strategy.balance(request, stats, stats.gramian(per_sum / request.loss_scale))
    finite = strategy.through(request, task_gradients, at_z, extra, weights, per_sum, stats)
    return Draft(stats.losses, weights, stats.balanced, state, finite)
