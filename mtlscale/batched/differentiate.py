"""Gradients of many trials: the losses of a step with their graphs, and their differentiation.

Of what is shared, a balancer of Gramians wants every task's gradient. Where tasks are side by side it comes from one
pass: each task works on a copy of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlscale.batched.batch_plan import StreamBatch
from mtlscale.batched.linear_hooks import Taps
from mtlscale.batched.network import BatchedNetwork
from mtlscale.batched.parameter_layout import Layout
from mtlscale.batched.streams import Streams
from mtlscale.solvers import inner_products, layer_gramian

Gradients = list[Tensor | None]  # one entry per slot; None where no loss reaches it


@dataclass(frozen=True)
class Graph:
    """Losses of one step, differentiable in the leaves, those of the slots.

    Where `expanded`, each task has a copy of what is shared.
    """

    leaves: list[Tensor]
    expanded: bool
    sums: Tensor  # [B, T]
    counts: Tensor  # [B, T]


def forward(
    network: BatchedNetwork,
    train: Streams,
    values: Sequence[Tensor],
    parts: Sequence[StreamBatch],
    *,
    expanded: bool = False,
) -> Graph:
    """Compute the losses of all tasks of a step."""
    layout, size = network.layout, len(network.layout.names)
    leaves = [value.detach() for value in values]
    if expanded:
        leaves = [
            leaf.unsqueeze(1).expand(-1, size, *leaf.shape[1:]) if slot.shared else leaf
            for slot, leaf in zip(layout.slots, leaves, strict=True)
        ]
    leaves = [leaf.requires_grad_() for leaf in leaves]

    if layout.joined:
        group_values = layout.of_groups(leaves, [slot.side_by_side or expanded for slot in layout.slots])
        pairs = [
            network.losses_of_group(part, train, own_values, expanded)
            for part, own_values in zip(parts, group_values, strict=True)
        ]
        sums, counts = (layout.by_task(torch.cat(side, dim=1)) for side in zip(*pairs, strict=True))
    else:
        part_index = {str(part.stream): part_index for part_index, part in enumerate(parts)}
        streams = [parts[part_index[stream]] for stream in network.suite.streams]  # in the order of the tasks
        pairs = [network.losses_of_stream(part, train, leaves) for part in streams]
        sums, counts = (torch.cat(side, dim=1) for side in zip(*pairs, strict=True))

    return Graph(leaves, expanded, sums, counts)


def tapped(
    network: BatchedNetwork, train: Streams, values: Sequence[Tensor], part: StreamBatch, taps: Taps, *, check: bool
) -> tuple[Graph, Gradients, Tensor] | None:
    """Return losses, own gradients and Gramians of a step without making any task's gradient of what is shared.

    This is for tasks that share their input and no more than linear layers. The gradients are those of what is a task's
    own, the Gramians [B, T, T] the products of the tasks' gradients of what is shared. Return None where a `check`
    finds that the layers were not used as the taps read them.
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
        own_indices = [i for i, slot in enumerate(network.layout.slots) if slot.task == task]
        targets = [*zeros, *(leaves[i] for i in own_indices)]
        gradients = torch.autograd.grad(total.sum(), targets, allow_unused=True, retain_graph=True)
        columns.append(gradients[: len(zeros)])
        for i, gradient in zip(own_indices, gradients[len(zeros) :], strict=True):
            result[i] = gradient

    k = leaves[0].new_zeros(size, len(sums), len(sums), dtype=torch.float64)
    for layer_index, (layer, layer_inputs) in enumerate(zip(taps.layers, inputs, strict=True)):
        deltas = torch.stack([column[layer_index] for column in columns], dim=1)
        if layer.bias is not None:
            layer_inputs = torch.cat([layer_inputs, layer_inputs.new_ones(*layer_inputs.shape[:-1], 1)], dim=-1)
        k += layer_gramian(layer_inputs, deltas)

    return Graph(leaves, False, torch.stack(sums, 1), counts), result, k


def joined(graph: Graph, layout: Layout, task_gradients: Gradients, along: Tensor, of_own: Tensor) -> Gradients:
    """Return shared gradients by one backward pass of the sums times `along` [B, T], own ones times `of_own` [B, T]."""
    total = (graph.sums * along.to(graph.sums, non_blocking=True)).sum()
    trunk = torch.autograd.grad(total, [graph.leaves[i] for i in layout.shared], allow_unused=True)
    result = [
        None if g is None else g * fit(s.of_task(of_own), g) for s, g in zip(layout.slots, task_gradients, strict=True)
    ]
    for i, gradient in zip(layout.shared, trunk, strict=True):
        result[i] = gradient
    return result


def weighted(graph: Graph, layout: Layout, factors: Tensor, of_heads: Tensor | None) -> Gradients:
    """Return the gradients by one backward pass of the sums times `factors` [B, T].

    A second pass follows where what is a task's own has other factors, `of_heads`.
    """
    total = (graph.sums * factors.to(graph.sums, non_blocking=True)).sum()
    if of_heads is None:
        return list(torch.autograd.grad(total, graph.leaves, allow_unused=True))
    head_total = (graph.sums * of_heads.to(graph.sums, non_blocking=True)).sum()
    heads = torch.autograd.grad(head_total, graph.leaves, allow_unused=True, retain_graph=True)
    trunk = torch.autograd.grad(total, graph.leaves, allow_unused=True)
    return [t if slot.shared else h for slot, h, t in zip(layout.slots, heads, trunk, strict=True)]


def by_task(graph: Graph, layout: Layout) -> Gradients:
    """Return the gradients of the sums of losses: shared ones by task [B, T, ...], a task's own as they are."""
    leaves, shared = graph.leaves, layout.shared
    if graph.expanded:
        return list(torch.autograd.grad(graph.sums.sum(), leaves, allow_unused=True))

    result: Gradients = [None] * len(leaves)
    rows: list[list[Tensor | None]] = []
    for task in range(len(layout.names)):
        own_indices = [i for i, slot in enumerate(layout.slots) if slot.task == task]
        targets = [leaves[i] for i in (*shared, *own_indices)]
        gradients = torch.autograd.grad(graph.sums[:, task].sum(), targets, allow_unused=True, retain_graph=True)
        rows.append(list(gradients[: len(shared)]))
        for i, gradient in zip(own_indices, gradients[len(shared) :], strict=True):
            result[i] = gradient

    for position, i in enumerate(shared):
        column = [row[position] for row in rows]
        if any(g is not None for g in column):
            result[i] = torch.stack([torch.zeros_like(leaves[i]) if g is None else g for g in column], dim=1)

    return result


def gramian(rows: Gradients, layout: Layout, example: Tensor) -> Tensor:
    """Return the inner products [B, T, T] float64 of the tasks' gradients of what is shared. `example` is [B, T]."""
    k = example.new_zeros(*example.shape, example.shape[-1], dtype=torch.float64)
    for i in layout.shared:
        row = rows[i]
        if row is not None:
            flat = row.reshape(*row.shape[:2], -1)
            k += inner_products(flat, flat)
    return k


def combine(rows: Gradients, layout: Layout, along: Tensor, task_weights: Tensor) -> Gradients:
    """Sum gradients by task times `along` [B, T] over tasks, and multiply the tasks' own by `task_weights` [B, T]."""
    result, example = list(rows), next(row for row in rows if row is not None)
    along, task_weights = torch.stack([along, task_weights]).to(example, non_blocking=True)  # one copy to the device
    for i, (slot, row) in enumerate(zip(layout.slots, rows, strict=True)):
        if row is not None and slot.shared:
            flat = along.unsqueeze(1) @ row.reshape(*row.shape[:2], -1)
            result[i] = flat.reshape(len(row), *row.shape[2:])
        elif row is not None:
            result[i] = row * fit(slot.of_task(task_weights), row)
    return result


def fit(numbers: Tensor, example: Tensor) -> Tensor:
    """Reshape [B] or [B, T] such that it broadcasts against [B, ...] or [B, T, ...]."""
    return numbers.to(example).reshape(*numbers.shape, *[1] * (example.ndim - numbers.ndim))
