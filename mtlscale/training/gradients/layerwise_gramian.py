"""Gradient strategy for balancers of Gramians where tasks share their input, layer by layer.

The products of the tasks' gradients come from what went into each layer and the gradients that came back to its output;
then follows one backward pass of the weighted losses. No task's gradient of a known layer is ever made. Workers send
each other a layer's inputs and output gradients, where that is less than its gradients by task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.data import Losses, Workers
from mtlscale.solvers import embedding_gramian, gramian_cost, layer_gramian
from mtlscale.training.gradients.gramian import Gradients, gramian
from mtlscale.training.gradients.graph import Layer, read_layers, targets_of
from mtlscale.training.gradients.per_task import (
    AtRepresentation,
    Partition,
    TaskGradients,
    at_representation,
    by_task,
    dense_everywhere,
)
from mtlscale.training.gradients.strategies import Draft, GradientStrategy, StepRequest

_MOST_LAYERS = 255  # layers whose numbers of rows workers exchange
_OVERHEAD = 4_000_000  # multiplications in the time of reading a graph and starting a backward pass
_AS_CHEAP = 1.25  # gradients by task cost more than their multiplications: they are stacked, and combined


@dataclass(frozen=True)
class _Chosen:
    """Layer that is handled this way, with its number of rows on all workers."""

    layer: Layer
    rows: int


def by_layers(strategy: GradientStrategy, request: StepRequest) -> Draft:
    """Draft the update of a step of one micro-batch, layer by layer.

    Where the step has several streams, or no layer is known for which this is cheaper, draft it task by task.
    """
    if not strategy.partition.same_inputs:
        return strategy.by_gradients(request)
    stream = iter(request.micros[0])
    first = next(stream, None)
    layers = _chosen(first, strategy)
    second = next(stream, None) if layers else None

    if first is None or not layers or second is not None:
        remaining: Iterator[Losses] = itertools.chain(
            (losses for losses in (first, second) if losses is not None), stream
        )
        return strategy.by_gradients(replace(request, micros=[remaining]))

    return _at_once(strategy, request, first, layers)


def _at_once(strategy: GradientStrategy, request: StepRequest, losses: Losses, layers: list[_Chosen]) -> Draft:
    partition, workers = strategy.partition, strategy.workers
    assert losses.representation is not None
    task_gradients = TaskGradients.empty(partition)
    task_gradients.note(losses)
    factors, sizes = strategy.factors(request)

    at_z = torch.stack(at_representation(task_gradients.own, losses, partition, factors))

    accounted = set(targets_of(choice.layer for choice in layers))
    other_indices = [index for index in range(len(partition.shared)) if index not in accounted]
    at_edges, rows = _differentiated(losses.representation, at_z, layers, other_indices, partition)
    rows_of_layers = [
        (choice.layer.inputs(), choice.layer.deltas([at_edges.pop(0) for _ in choice.layer.edges])) for choice in layers
    ]
    if workers.size > 1:
        rows_of_layers = _everywhere(rows_of_layers, [choice.rows // workers.size for choice in layers], workers)

    k = at_z.new_zeros(len(losses.tasks), len(losses.tasks), dtype=torch.float64)
    for choice in layers:
        inputs, deltas = rows_of_layers.pop(0)
        k += embedding_gramian(inputs, deltas) if choice.layer.embedding else layer_gramian(inputs, deltas)
    if other_indices:
        if workers.size > 1:
            targets = [partition.shared[index] for index in other_indices]
            workers.sum_many([dense for row in rows for dense in dense_everywhere(row, targets)])
        k += gramian(rows, k.new_ones(len(rows)))

    # Workers add up what they leave in `.grad`, and these gradients are sums already; an objective's terms reach every
    # parameter.
    combined = workers.size == 1 and losses.extra is None
    ready_gradients = (
        dict(zip(other_indices, zip(*rows, strict=True), strict=True)) if combined and other_indices else {}
    )
    rows.clear()

    stats = strategy.stats(
        request, workers.sum(strategy.table(task_gradients)), by_task(k, losses.tasks, len(strategy.names))
    )
    per_sum = stats.per_sum * sizes
    weights, state = strategy.balance(request, stats, stats.gramian(per_sum / request.loss_scale))

    shared = AtRepresentation(losses.representation, losses.tasks, at_z)
    finite = strategy.through(request, task_gradients, [shared], losses.extra, weights, per_sum, stats, ready_gradients)
    return Draft(stats.losses, weights, stats.balanced, state, finite)


def _known(losses: Losses, partition: Partition) -> list[Layer]:
    """Return the known layers below a representation that several tasks share."""
    if losses.representation is None or not losses.branches or len(losses.tasks) < 2:
        return []

    layers = read_layers(losses.representation, partition.shared)
    # On an accelerator the number of ids would have to be copied to the host.
    return [layer for layer in layers if not layer.embedding or losses.representation.device.type == "cpu"]


def _chosen(losses: Losses | None, strategy: GradientStrategy) -> list[_Chosen]:
    """Return the layers for which this strategy is cheaper, the same on every worker."""
    workers, vectorised = strategy.workers, strategy.partition.vectorised
    shape = _shape(losses, strategy)
    if shape in strategy.costly_shapes:
        return []

    layers, tasks = ([], 0) if losses is None else (_known(losses, strategy.partition), len(losses.tasks))
    rows = [layer.rows for layer in layers[:_MOST_LAYERS]]
    if workers.size > 1:
        rows = _rows_of_all(rows, workers, strategy.device)

    chosen, with_gradients, without = [], 0, _OVERHEAD
    for layer, count in zip(layers, rows, strict=False):
        gradients = tasks * layer.fan_in * layer.fan_out
        if workers.size > 1 and not _sends_less(layer, count, tasks):
            continue

        cost = gramian_cost(count, layer.fan_in, layer.fan_out, tasks)
        if vectorised or layer.embedding or cost < count * gradients:
            chosen.append(_Chosen(layer, count))
            with_gradients += count * gradients
            without += cost + 2 * count * layer.fan_in * layer.fan_out  # of the pass with the weighted losses

    pays = workers.size > 1 or without <= _AS_CHEAP * with_gradients or any(choice.layer.embedding for choice in chosen)
    if not pays and shape is not None:
        strategy.costly_shapes.add(shape)
    return chosen if pays else []


def _sends_less(layer: Layer, rows: int, tasks: int) -> bool:
    """Return whether a layer's inputs and output gradients are less than the tasks' gradients, sent twice."""
    sent = rows * ((1 if layer.embedding else layer.fan_in) + tasks * layer.fan_out)
    return sent < 2 * tasks * layer.fan_in * layer.fan_out


def _shape(losses: Losses | None, strategy: GradientStrategy) -> tuple[int, ...] | None:
    """Return the number of tasks and the representation's shape if the choice depends on these alone, else None."""
    if (
        losses is None
        or losses.representation is None
        or strategy.workers.size > 1
        or not strategy.partition.vectorised
    ):
        return None
    # So it is for one worker and layers of as many rows as the representation has.
    return (len(losses.tasks), *losses.representation.shape)


def _rows_of_all(rows: list[int], workers: Workers, device: torch.device) -> list[int]:
    """Return each layer's rows, as many on every worker as on the fullest one; none where layers differ."""
    local_rows = torch.zeros(_MOST_LAYERS + 1, dtype=torch.int64)
    local_rows[: len(rows) + 1] = torch.tensor([len(rows), *rows])
    table = workers.gather(local_rows.to(device)).cpu()
    if bool((table[:, 0] != len(rows)).any()):
        return []
    largest: list[int] = table[:, 1 : len(rows) + 1].amax(0).tolist()
    return [workers.size * count for count in largest]


def _differentiated(
    z: Tensor, at_z: Tensor, layers: Sequence[_Chosen], others: Sequence[int], partition: Partition
) -> tuple[list[Tensor], list[Gradients]]:
    """Return gradients [T, ...] at the layers' outputs, use by use, and by task those of parameters at `others`."""
    edges = [edge for entry in layers for edge in entry.layer.edges]
    targets: Any = [*edges, *(partition.shared[index] for index in others)]

    if partition.vectorised:
        gradients = torch.autograd.grad(z, targets, at_z, retain_graph=True, allow_unused=True, is_grads_batched=True)
        rows: list[Gradients] = [
            [None if g is None else g[task] for g in gradients[len(edges) :]] for task in range(len(at_z))
        ]
        return list(gradients[: len(edges)]), rows

    passes = [torch.autograd.grad(z, targets, entry, retain_graph=True, allow_unused=True) for entry in at_z]
    at_edges = [torch.stack(column) for column in itertools.islice(zip(*passes, strict=True), len(edges))]
    return at_edges, [list(entry[len(edges) :]) for entry in passes]


def _everywhere(
    found: Sequence[tuple[Tensor, Tensor]], most: Sequence[int], workers: Workers
) -> list[tuple[Tensor, Tensor]]:
    """Return all workers' inputs [n, i] or ids [n], and deltas [T, n, o], of each layer, zero-padded to `most`."""
    padded = []
    for (inputs, deltas), count in zip(found, most, strict=True):
        missing = count - len(inputs)
        padded.append(functional.pad(inputs, (0, 0) * (inputs.ndim - 1) + (0, missing)))
        padded.append(functional.pad(deltas, (0, 0, 0, missing)))

    gathered = workers.gather_many(padded)
    return [
        (inputs.flatten(0, 1), deltas.transpose(0, 1).flatten(1, 2))
        for inputs, deltas in zip(gathered[::2], gathered[1::2], strict=True)
    ]
