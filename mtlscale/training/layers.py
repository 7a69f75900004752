"""The way of balancers of Gramians where tasks share their input: products of the tasks' gradients layer by layer, from
what went into each layer and what came back to its output, then one backward pass of the weighted losses.

No task's gradient of a known layer is ever made. Workers send each other a layer's inputs and what came back, where
that is less than its gradients by task.
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
from mtlscale.training.gradients import Gradients, gramian
from mtlscale.training.graph import Layer, read_layers, targets_of
from mtlscale.training.rows import Partition, TaskGradients, at_representation, by_task, dense_everywhere
from mtlscale.training.ways import Asked, AtRepresentation, Draft, Ways

_MOST_LAYERS = 255  # of which workers tell each other the sizes
_OVERHEAD = 4_000_000  # multiplications in the time in which a graph is read and another backward pass started
_AS_CHEAP = 1.25  # gradients by task cost more than their multiplications: they are laid side by side, and combined


@dataclass(frozen=True)
class _Chosen:
    """A layer, and how many rows it has on all workers."""

    layer: Layer
    rows: int


def by_layers(ways: Ways, asked: Asked) -> Draft:
    """Of a step of one micro-batch. Where it has several streams, or no layer is known for which this is cheaper, task
    by task."""
    if not ways.partition.same_inputs:
        return ways.by_gradients(asked)
    stream = iter(asked.micros[0])
    first = next(stream, None)
    layers = _chosen(first, ways)
    second = next(stream, None) if layers else None
    if first is None or not layers or second is not None:
        rest: Iterator[Losses] = itertools.chain((losses for losses in (first, second) if losses is not None), stream)
        return ways.by_gradients(replace(asked, micros=[rest]))
    return _at_once(ways, asked, first, layers)


def _at_once(ways: Ways, asked: Asked, losses: Losses, layers: list[_Chosen]) -> Draft:
    partition, workers = ways.partition, ways.workers
    assert losses.representation is not None
    g = TaskGradients.empty(partition)
    g.note(losses)
    factors, sizes = ways.factors(asked)
    at_z = torch.stack(at_representation(g.own, losses, partition, factors))
    accounted = set(targets_of(each.layer for each in layers))
    others = [place for place in range(len(partition.shared)) if place not in accounted]
    at_edges, rows = _differentiated(losses.representation, at_z, layers, others, partition)
    found = [(each.layer.inputs(), each.layer.deltas([at_edges.pop(0) for _ in each.layer.edges])) for each in layers]
    if workers.size > 1:
        found = _everywhere(found, [each.rows // workers.size for each in layers], workers)
    k = at_z.new_zeros(len(losses.tasks), len(losses.tasks), dtype=torch.float64)
    for each in layers:
        inputs, deltas = found.pop(0)
        k += embedding_gramian(inputs, deltas) if each.layer.embedding else layer_gramian(inputs, deltas)
    if others:
        if workers.size > 1:
            targets = [partition.shared[place] for place in others]
            workers.sum_many([dense for row in rows for dense in dense_everywhere(row, targets)])
        k += gramian(rows, k.new_ones(len(rows)))
    # Workers add up what they leave, and these are sums already; an objective's terms reach every parameter.
    combined = workers.size == 1 and losses.extra is None
    made = dict(zip(others, zip(*rows, strict=True), strict=True)) if combined and others else {}
    rows.clear()
    means = ways.means(asked, workers.sum(ways.table(g)), by_task(k, losses.tasks, len(ways.names)))
    per_sum = means.per_sum * sizes
    weights, state = ways.balance(asked, means, means.gramian(per_sum / asked.loss_scale))
    shared = AtRepresentation(losses.representation, losses.tasks, at_z)
    finite = ways.through(asked, g, [shared], losses.extra, weights, per_sum, means.present, made)
    return Draft(means.losses, weights, state, finite)


def _known(losses: Losses, partition: Partition) -> list[Layer]:
    """The layers below a representation that several tasks share."""
    if losses.representation is None or not losses.branches or len(losses.tasks) < 2:
        return []
    layers = read_layers(losses.representation, partition.shared)
    # On an accelerator how many ids there are would have to be told to the host.
    return [layer for layer in layers if not layer.embedding or losses.representation.device.type == "cpu"]


def _chosen(losses: Losses | None, ways: Ways) -> list[_Chosen]:
    """Those for which this way is cheaper, the same on every worker."""
    workers, vectorised = ways.workers, ways.partition.vectorised
    shape = _shape(losses, ways)
    if shape in ways.dear:
        return []
    layers, tasks = ([], 0) if losses is None else (_known(losses, ways.partition), len(losses.tasks))
    rows = [layer.rows for layer in layers[:_MOST_LAYERS]]
    if workers.size > 1:
        rows = _told(rows, workers, ways.device)
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
    pays = workers.size > 1 or without <= _AS_CHEAP * with_gradients or any(each.layer.embedding for each in chosen)
    if not pays and shape is not None:
        ways.dear.add(shape)
    return chosen if pays else []


def _sends_less(layer: Layer, rows: int, tasks: int) -> bool:
    """Whether what went in and what came back is less than the tasks' gradients, which go around twice."""
    sent = rows * ((1 if layer.embedding else layer.fan_in) + tasks * layer.fan_out)
    return sent < 2 * tasks * layer.fan_in * layer.fan_out


def _shape(losses: Losses | None, ways: Ways) -> tuple[int, ...] | None:
    """What the answer depends on, where it is known without reading the graph: one worker, layers of as many rows as
    the representation has."""
    if losses is None or losses.representation is None or ways.workers.size > 1 or not ways.partition.vectorised:
        return None
    return (len(losses.tasks), *losses.representation.shape)


def _told(rows: list[int], workers: Workers, device: torch.device) -> list[int]:
    """The rows of each layer on all workers, as if each had as many as the one that has most; nothing where their
    layers differ, as where one has no sample."""
    mine = torch.zeros(_MOST_LAYERS + 1, dtype=torch.int64)
    mine[: len(rows) + 1] = torch.tensor([len(rows), *rows])
    table = workers.gather(mine.to(device)).cpu()
    if bool((table[:, 0] != len(rows)).any()):
        return []
    most: list[int] = table[:, 1 : len(rows) + 1].amax(0).tolist()
    return [workers.size * count for count in most]


def _differentiated(
    z: Tensor, at_z: Tensor, layers: Sequence[_Chosen], others: Sequence[int], partition: Partition
) -> tuple[list[Tensor], list[Gradients]]:
    """What comes back to the layers' outputs [T, ...], use by use, and the gradients by task of the parameters at the
    places `others`."""
    edges = [edge for each in layers for edge in each.layer.edges]
    targets: Any = [*edges, *(partition.shared[place] for place in others)]
    if partition.vectorised:
        found = torch.autograd.grad(z, targets, at_z, retain_graph=True, allow_unused=True, is_grads_batched=True)
        rows: list[Gradients] = [
            [None if g is None else g[task] for g in found[len(edges) :]] for task in range(len(at_z))
        ]
        return list(found[: len(edges)]), rows
    passes = [torch.autograd.grad(z, targets, each, retain_graph=True, allow_unused=True) for each in at_z]
    at_edges = [torch.stack(column) for column in itertools.islice(zip(*passes, strict=True), len(edges))]
    return at_edges, [list(each[len(edges) :]) for each in passes]


def _everywhere(
    found: Sequence[tuple[Tensor, Tensor]], most: Sequence[int], workers: Workers
) -> list[tuple[Tensor, Tensor]]:
    """All workers' rows of each layer: inputs [n, i] or ids [n], and deltas [T, n, o]; zeros where a worker has fewer
    than `most`."""
    mine = []
    for (inputs, deltas), count in zip(found, most, strict=True):
        missing = count - len(inputs)
        mine.append(functional.pad(inputs, (0, 0) * (inputs.ndim - 1) + (0, missing)))
        mine.append(functional.pad(deltas, (0, 0, 0, missing)))
    there = workers.gather_many(mine)
    return [
        (inputs.flatten(0, 1), deltas.transpose(0, 1).flatten(1, 2))
        for inputs, deltas in zip(there[::2], there[1::2], strict=True)
    ]
