"""How the gradients of many trials arise: the losses of a step with their graphs, and their differentiation.

Of what is shared, a balancer of Gramians wants every task's gradient. Where tasks are side by side it comes from one
pass: each task works on a copy of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.parts import Part
from mtlscale.batched.slots import Layout
from mtlscale.batched.streams import Streams
from mtlscale.batched.taps import Taps
from mtlscale.solvers import layer_gramian

Gradients = list[Tensor | None]  # one entry per slot; None where no loss reaches it


@dataclass(frozen=True)
class Graph:
    """The losses of one step, differentiable in the leaves: of the slots, with a copy of what is shared per task where
    `expanded`."""

    leaves: list[Tensor]
    expanded: bool
    sums: Tensor  # [B, T]
    counts: Tensor  # [B, T]


def forward(
    network: BatchedNetwork, train: Streams, values: Sequence[Tensor], parts: Sequence[Part], *, expanded: bool = False
) -> Graph:
    """The losses of all tasks of a step."""
    layout, size = network.layout, len(network.layout.names)
    leaves = [value.detach() for value in values]
    if expanded:
        leaves = [
            leaf.unsqueeze(1).expand(-1, size, *leaf.shape[1:]) if slot.shared else leaf
            for slot, leaf in zip(layout.slots, leaves, strict=True)
        ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    if layout.joined:
        cut = layout.of_groups(leaves, [slot.side_by_side or expanded for slot in layout.slots])
        found = [network.losses_of_group(part, train, own, expanded) for part, own in zip(parts, cut, strict=True)]
        sums, counts = (layout.by_task(torch.cat(side, dim=1)) for side in zip(*found, strict=True))
    else:
        place = {str(part.stream): place for place, part in enumerate(parts)}
        streams = [parts[place[stream]] for stream in network.suite.streams]  # in the order of the tasks
        found = [network.losses_of_stream(part, train, leaves) for part in streams]
        sums, counts = (torch.cat(side, dim=1) for side in zip(*found, strict=True))
    return Graph(leaves, expanded, sums, counts)


def tapped(
    network: BatchedNetwork, train: Streams, values: Sequence[Tensor], part: Part, taps: Taps, *, check: bool
) -> tuple[Graph, Gradients, Tensor] | None:
    """Where tasks share their input and no more than linear layers: the losses of a step, the gradients of what is a
    task's own, and the products [B, T, T] of the tasks' gradients of what is shared, none of which is made.

    None where a `check` finds that the layers were not used as the taps read them.
    """
    leaves = [value.detach().requires_grad_() for value in values]
    size, rows = len(values[0]), part.indices.shape[-1]
    zeros = [leaves[0].new_zeros(size, rows, layer.out_features).requires_grad_() for layer in taps.layers]
    sums, counts, inputs = network.tapped_losses(part, train, leaves, taps, zeros)
    if check and not taps.hold(inputs, sums, [leaves[i] for i in network.layout.shared]):
        return None
    result: Gradients = [None] * len(leaves)
    columns = []
    for task, total in enumerate(sums):
        own = [i for i, slot in enumerate(network.layout.slots) if slot.task == task]
        wanted = [*zeros, *(leaves[i] for i in own)]
        found = torch.autograd.grad(total.sum(), wanted, allow_unused=True, retain_graph=True)
        columns.append(found[: len(zeros)])
        for i, gradient in zip(own, found[len(zeros) :], strict=True):
            result[i] = gradient
    k = leaves[0].new_zeros(size, len(sums), len(sums), dtype=torch.float64)
    for place, (layer, before) in enumerate(zip(taps.layers, inputs, strict=True)):
        deltas = torch.stack([column[place] for column in columns], dim=1)
        if layer.bias is not None:
            before = torch.cat([before, before.new_ones(*before.shape[:-1], 1)], dim=-1)
        k += layer_gramian(before, deltas)
    return Graph(leaves, False, torch.stack(sums, 1), counts), result, k


def joined(graph: Graph, layout: Layout, own: Gradients, along: Tensor, of_own: Tensor) -> Gradients:
    """What is shared by one backward pass of the sums times `along` [B, T]; the tasks' own times `of_own` [B, T]."""
    total = (graph.sums * along.to(graph.sums, non_blocking=True)).sum()
    trunk = torch.autograd.grad(total, [graph.leaves[i] for i in layout.shared], allow_unused=True)
    result = [None if g is None else g * fit(s.of_task(of_own), g) for s, g in zip(layout.slots, own, strict=True)]
    for i, gradient in zip(layout.shared, trunk, strict=True):
        result[i] = gradient
    return result


def weighted(graph: Graph, layout: Layout, factors: Tensor, of_heads: Tensor | None) -> Gradients:
    """One backward pass of the sums times `factors` [B, T]; a second where what is a task's own has other ones."""
    total = (graph.sums * factors.to(graph.sums, non_blocking=True)).sum()
    if of_heads is None:
        return list(torch.autograd.grad(total, graph.leaves, allow_unused=True))
    other = (graph.sums * of_heads.to(graph.sums, non_blocking=True)).sum()
    heads = torch.autograd.grad(other, graph.leaves, allow_unused=True, retain_graph=True)
    trunk = torch.autograd.grad(total, graph.leaves, allow_unused=True)
    return [t if slot.shared else h for slot, h, t in zip(layout.slots, heads, trunk, strict=True)]


def by_task(graph: Graph, layout: Layout) -> Gradients:
    """Gradients of the sums of losses: of what is shared by task [B, T, ...], of what is a task's own as it is."""
    leaves, shared = graph.leaves, layout.shared
    if graph.expanded:
        return list(torch.autograd.grad(graph.sums.sum(), leaves, allow_unused=True))
    result: Gradients = [None] * len(leaves)
    rows: list[list[Tensor | None]] = []
    for task in range(len(layout.names)):
        own = [i for i, slot in enumerate(layout.slots) if slot.task == task]
        wanted = [leaves[i] for i in (*shared, *own)]
        found = torch.autograd.grad(graph.sums[:, task].sum(), wanted, allow_unused=True, retain_graph=True)
        rows.append(list(found[: len(shared)]))
        for i, gradient in zip(own, found[len(shared) :], strict=True):
            result[i] = gradient
    for position, i in enumerate(shared):
        column = [row[position] for row in rows]
        if any(g is not None for g in column):
            result[i] = torch.stack([torch.zeros_like(leaves[i]) if g is None else g for g in column], dim=1)
    return result


def gramian(rows: Gradients, layout: Layout, like: Tensor) -> Tensor:
    """[B, T, T] float64: inner products of the tasks' gradients of what is shared. like: [B, T]."""
    k = like.new_zeros(*like.shape, like.shape[-1], dtype=torch.float64)
    for i in layout.shared:
        row = rows[i]
        if row is not None:
            flat = row.reshape(*row.shape[:2], -1)
            k += (flat @ flat.mT).to(torch.float64)
    return k


def combine(rows: Gradients, layout: Layout, along: Tensor, own: Tensor) -> Gradients:
    """The gradients by task times `along` [B, T] summed over tasks, and the tasks' own times `own` [B, T]."""
    result, like = list(rows), next(row for row in rows if row is not None)
    along, own = torch.stack([along, own]).to(like, non_blocking=True)  # one copy to the device
    for i, (slot, row) in enumerate(zip(layout.slots, rows, strict=True)):
        if row is not None and slot.shared:
            flat = along.unsqueeze(1) @ row.reshape(*row.shape[:2], -1)
            result[i] = flat.reshape(len(row), *row.shape[2:])
        elif row is not None:
            result[i] = row * fit(slot.of_task(own), row)
    return result


def fit(numbers: Tensor, like: Tensor) -> Tensor:
    """[B] or [B, T] such that it broadcasts against [B, ...] or [B, T, ...]."""
    return numbers.to(like).reshape(*numbers.shape, *[1] * (like.ndim - numbers.ndim))
