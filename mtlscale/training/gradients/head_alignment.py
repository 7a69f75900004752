"""Alignment of heads: what brings each task's gradient at the representation closer to the weighted sum of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from mtlscale.data import Workers
from mtlscale.training.gradients.gramian import Gradients, accumulate
from mtlscale.training.gradients.per_task import AtHeads, Partition, dense_everywhere


class AligningBalancer(Protocol):
    """What a balancer with `aligns_heads` has: the factor of what is added, and its limit."""

    lam: float
    limit: float


def align_heads(
    at_heads: Sequence[AtHeads],
    partition: Partition,
    weights: Tensor,
    per_sum: Tensor,
    workers: Workers,
    balancer: AligningBalancer,
    *,
    retain: bool = False,
) -> None:
    """Subtract from the heads' gradients what aligns them with the weighted sum of all.

    Args:
        at_heads: What `collect` left of each stream.
        partition: The run's parameters.
        weights: The tasks' weights [T].
        per_sum: The factors [T] from sums of losses to means.
        workers: Those of the run, over which it is summed.
        balancer: Names the factor and the limit.
        retain: Whether the graph is needed again.
    """
    added = alignment(at_heads, partition.own, weights * per_sum, per_sum, retain=retain)
    if workers.size > 1:
        rows = zip(added, partition.own, strict=True)
        workers.sum_many([tensor for row, parameters in rows for tensor in dense_everywhere(row, parameters)])
    add_limited(partition.own, added, balancer.lam, balancer.limit)


def alignment(
    at_heads: Sequence[AtHeads],
    own: Sequence[Sequence[nn.Parameter]],
    weights: Tensor,
    per_sum: Tensor,
    *,
    retain: bool = False,
) -> list[Gradients]:
    """Return the gradients by the heads' parameters of ⟨∂ℓ_t/∂z, Σ_s w_s ∂ℓ_s/∂z⟩, the second factor held constant.

    Where tasks have inputs of their own, the sum at a task's samples has one term.

    Args:
        at_heads: What `collect` left of each stream.
        own: The heads' parameters, by task.
        weights: The w [T] times the factors from sums of losses to means.
        per_sum: These factors [T].
        retain: Whether the graph is needed again.
    """
    added: list[Gradients] = [[None] * len(parameters) for parameters in own]
    for stream in at_heads:
        wide = [row.detach() if row.dtype == torch.float64 else row.detach().float() for row in stream.rows]
        common = torch.zeros_like(wide[0])
        for row, weight in zip(wide, weights[stream.tasks].tolist(), strict=True):
            common = common + weight * row

        for position, task in enumerate(stream.tasks):
            row = stream.rows[position]
            if row.requires_grad and own[task]:
                product = (row.to(common) * common).sum() * float(per_sum[task])
                keep = retain or position < len(stream.tasks) - 1
                gradients = torch.autograd.grad(product, own[task], retain_graph=keep, allow_unused=True)
                accumulate(added[task], gradients)
    return added


def add_limited(own: Sequence[Sequence[nn.Parameter]], added: Sequence[Gradients], factor: float, limit: float) -> None:
    """Subtract `factor` times `added` from the heads' `.grad`, cut to `limit` times the norm of each head's own."""
    for parameters, gradients in zip(own, added, strict=True):
        pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if p.grad is not None and g is not None]
        if not pairs:
            continue

        length = _norm([p.grad for p in parameters if p.grad is not None])
        size = factor * _norm([g for _, g in pairs])
        cut = torch.where(size > limit * length, limit * length / torch.where(size > 0, size, 1.0), 1.0)
        for parameter, gradient in pairs:
            assert parameter.grad is not None
            parameter.grad = parameter.grad - (factor * cut).to(gradient) * gradient


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    length: Tensor = torch.stack(torch._foreach_norm([tensor.double() for tensor in tensors])).norm()
    return length
