"""Encoders of graphs: what they compute, by loops over nodes, and what does not change their features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from frozen.cases import MPNN, POSITIONS, SCHNET, Case
from frozen.compute import in_memory
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.training.gradients.graph import read_layers

BONDS = GraphLayout(5, node_codes=(3, 4), edge_codes=4)
LISTED = GraphLayout(5, node_codes=(3, 4), edge_codes=4, edges=10)
SPACE = GraphLayout(5, node_codes=(3,), dimensions=3)
both = pytest.mark.parametrize(
    ("settings", "layout"), [(MPNN, BONDS), (MPNN, LISTED), (SCHNET, SPACE)], ids=["mpnn", "mpnn, listed", "schnet"]
)


def suite(layout: GraphLayout | None) -> TaskSuite:
    extras = {} if layout is None else {"graph": layout.as_json()}
    counts = (0, 0) if layout is None else layout.categories
    return TaskSuite(name="set", tasks=(), inputs="shared", input_kind="vector", input_shape=(len(counts),),
                     categories=counts if any(counts) else (), extras=extras)  # fmt: skip


def network(settings: dict[str, Any], layout: GraphLayout, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    options = {name: value for name, value in settings.items() if name != "name"}
    return build("encoders", settings["name"], options).build(suite(layout)).double()


def graphs(positions: bool) -> Tensor:
    data = in_memory(Case("molecules", {"name": "equal"}, {}, options=POSITIONS if positions else {}))
    inputs: Tensor = data.splits["train"]["all"].inputs
    return inputs[:8].double()


def of(layout: GraphLayout) -> Tensor:
    return listed(graphs(positions=False)) if layout.edges else graphs(bool(layout.dimensions))


def listed(rows: Tensor) -> Tensor:
    """The graphs of rows with a matrix of edges, in rows with a list."""
    changed = []
    for row in rows:
        nodes, edges = BONDS.read_nodes(row).numpy(), BONDS.read_edges(row).numpy()
        found = [(u + 1, v + 1, edges[u, v]) for u in range(5) for v in range(u) if edges[u, v]]
        changed.append(LISTED.row(nodes, np.array(found, np.int64).reshape(-1, 3)))
    return torch.from_numpy(np.stack(changed)).double()


@both
def test_rows_are_read_as_they_were_written(settings: dict[str, Any], layout: GraphLayout) -> None:
    rng = np.random.default_rng(0)
    nodes = np.stack([rng.integers(1, count, 3) for count in layout.node_codes], 1)
    shape, low = ((2, 3), 1) if layout.edges else ((3, 3), 0)
    edges = rng.integers(low, 4, shape) if layout.edge_codes else None
    positions = rng.normal(size=(3, 3)).astype(np.float32) if layout.dimensions else None
    row = torch.from_numpy(layout.row(nodes, edges, positions))
    assert len(row) == len(layout.categories)
    assert (layout.read_nodes(row)[:3].numpy() == nodes).all() and not layout.read_nodes(row)[3:].any()
    if edges is not None and layout.edges:
        assert (layout.read_edge_list(row)[:2].numpy() == edges).all() and not layout.read_edge_list(row)[2:].any()
    elif edges is not None:
        assert (layout.read_edges(row)[:3, :3].numpy() == edges).all() and layout.read_edges(row).sum() == edges.sum()
    if positions is not None:
        assert (layout.read_positions(row)[:3].numpy() == positions).all()
    assert GraphLayout.of({"graph": layout.as_json()}) == layout


def gru(state: Tensor, message: Tensor, module: Any) -> Tensor:
    """Cho et al. 2014, by torch's own cell."""
    cell = torch.nn.GRUCell(len(state), len(state)).double()
    cell.weight_ih.data, cell.bias_ih.data = module.of_message.weight.data, module.of_message.bias.data
    cell.weight_hh.data, cell.bias_hh.data = module.of_state.weight.data, module.of_state.bias.data
    result: Tensor = cell(message[None], state[None])[0]
    return result


def test_mpnn_is_the_equations_of_the_paper() -> None:
    module, width = network(MPNN, BONDS), MPNN["width"]
    for row in graphs(positions=False):
        nodes, edges = BONDS.read_nodes(row), BONDS.read_edges(row)
        count = int((nodes[:, 0] > 0).sum())
        tables = module.stages[0].vectors.split(list(BONDS.node_codes))
        first = [sum(table[code] for table, code in zip(tables, codes, strict=True)) for codes in nodes[:count]]
        states = list(first)
        for message_round in module.stages[1:-1]:
            matrices = message_round.message.weight.unflatten(0, (3, width))
            biases = message_round.message.bias.unflatten(0, (3, width))
            messages = []
            for v in range(count):
                parts = [matrices[edges[v, u] - 1] @ states[u] + biases[edges[v, u] - 1]
                         for u in range(count) if edges[v, u]]  # fmt: skip
                messages.append(torch.stack(parts).sum(0))
            states = [gru(state, message, message_round) for state, message in zip(states, messages, strict=True)]
        readout = module.stages[-1]
        total = sum(
            readout.gate(torch.cat([state, start])).sigmoid() * readout.value(state)
            for state, start in zip(states, first, strict=True)
        )
        torch.testing.assert_close(module(row[None])[0], readout.layer(total).relu(), rtol=1e-10, atol=1e-10)


def test_schnet_is_the_equations_of_the_paper() -> None:
    module = network({**SCHNET, "cutoff": 3.0}, SPACE)

    def softplus(values: Tensor) -> Tensor:
        return functional.softplus(values) - math.log(2)

    cut = 0
    for row in graphs(positions=True):
        codes, places = SPACE.read_nodes(row)[:, 0], SPACE.read_positions(row)
        count = int((codes > 0).sum())
        states = [module.stages[0].vectors[code] for code in codes[:count]]
        for interaction in module.stages[1:-1]:
            new = []
            for v in range(count):
                total = torch.zeros(SCHNET["width"], dtype=torch.float64)
                for u in range(count):
                    distance = float((places[u] - places[v]).norm())
                    cut += distance >= 3.0
                    if u == v or distance >= 3.0:
                        continue
                    gaussians = torch.tensor(
                        [math.exp(-((distance - k * 0.75) ** 2) / (2 * 0.75**2)) for k in range(5)]
                    )
                    one, two = interaction.filter
                    filters = softplus(two(softplus(one(gaussians.double()))))
                    smooth = 0.5 * (math.cos(math.pi * distance / 3.0) + 1)
                    total = total + smooth * filters * interaction.sent(states[u])
                inner, outer = interaction.received
                new.append(states[v] + outer(softplus(inner(total))))
            states = new
        features = sum(softplus(module.stages[-1].layer(state)) for state in states)
        torch.testing.assert_close(module(row[None])[0], features, rtol=1e-7, atol=1e-7)
    assert cut


@both
def test_the_order_of_nodes_and_the_graphs_beside_do_not_matter(settings: dict[str, Any], layout: GraphLayout) -> None:
    module, inputs = network(settings, layout), of(layout)
    features = module(inputs)
    torch.testing.assert_close(features[2:3], module(inputs[2:3]), rtol=1e-12, atol=1e-12)

    order = torch.tensor([3, 0, 4, 2, 1])
    parts = [layout.read_nodes(inputs)[:, order].flatten(1)]
    if layout.edges:
        new_number = torch.cat([torch.zeros(1, dtype=torch.long), order.argsort() + 1])
        edges = layout.read_edge_list(inputs)
        ends = new_number[edges[..., [1, 0]]]  # an edge may also be written from its other end
        parts.append(torch.cat([ends, edges[..., 2:]], -1)[:, torch.randperm(10)].flatten(1))
    elif layout.edge_codes:
        parts.append(layout.read_edges(inputs)[:, order][:, :, order].flatten(1))
    if layout.dimensions:
        parts.append(layout.read_positions(inputs)[:, order].flatten(1))
    torch.testing.assert_close(module(torch.cat([part.double() for part in parts], 1)), features, rtol=1e-9, atol=1e-9)


def test_schnet_does_not_see_where_a_molecule_is_and_how_it_is_turned() -> None:
    module, inputs = network(SCHNET, SPACE), graphs(positions=True)
    turned, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    there = (SPACE.read_nodes(inputs) > 0).double()
    places = (SPACE.read_positions(inputs) @ turned + 2.0) * there
    moved = torch.cat([inputs[:, :5], places.flatten(1)], 1)
    torch.testing.assert_close(module(moved), module(inputs), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(module(torch.cat([inputs[:, :5], 1.1 * places.flatten(1)], 1)), module(inputs))


@both
def test_trials_can_be_batched(settings: dict[str, Any], layout: GraphLayout) -> None:
    modules, inputs = [network(settings, layout, seed) for seed in range(3)], of(layout)
    values, buffers = stack_module_state(modules)
    together = vmap(lambda v, b: functional_call(modules[0], (v, b), (inputs,)))(values, buffers)
    for module, features in zip(modules, together, strict=True):
        torch.testing.assert_close(features, module(inputs), rtol=1e-12, atol=1e-12)


def test_edges_in_a_list_are_those_of_the_matrix() -> None:
    """Also where each trial has graphs of its own, which cannot be cut to the nodes that are there, and backwards."""
    module, rows = network(MPNN, BONDS), graphs(positions=False)
    other = network(MPNN, LISTED)
    other.load_state_dict(module.state_dict())
    expected = module(rows)
    torch.testing.assert_close(other(listed(rows)), expected, rtol=1e-12, atol=1e-12)
    per_trial = vmap(other)(listed(rows).reshape(2, 4, -1)).flatten(0, 1)
    torch.testing.assert_close(per_trial, expected, rtol=1e-12, atol=1e-12)

    parameters = list(other.parameters())
    features = other(listed(rows))
    directions = torch.randn(3, *features.shape, dtype=torch.float64)
    together = torch.autograd.grad(features, parameters, directions, is_grads_batched=True, retain_graph=True)
    for index, direction in enumerate(directions):
        alone = torch.autograd.grad(expected, list(module.parameters()), direction, retain_graph=True)
        for gradient, wanted in zip(together, alone, strict=True):
            torch.testing.assert_close(gradient[index], wanted, rtol=1e-9, atol=1e-9)


def test_molecules_are_no_columns_of_a_table() -> None:
    for name in ("mlp", "embedding_mlp", "deepfm"):
        with pytest.raises(UserError, match=f"{name} reads the columns of a table, set has molecules; choose mpnn"):
            build("encoders", name, {}).build(suite(LISTED))


@both
def test_gramians_can_be_taken_layer_by_layer(settings: dict[str, Any], layout: GraphLayout) -> None:
    """Every weight is that of a known layer."""
    module = network(settings, layout)
    parameters = list(module.parameters())
    known = {layer.weight for layer in read_layers(module(of(layout)), parameters)}
    assert known == {index for index, parameter in enumerate(parameters) if parameter.ndim == 2}


@pytest.mark.parametrize(
    ("name", "layout", "message"),
    [
        ("mpnn", None, "mpnn reads graphs, set has vector inputs"),
        ("mpnn", SPACE, "have positions alone; choose schnet"),
        ("schnet", BONDS, "have edges alone; choose mpnn"),
    ],
)
def test_other_inputs_are_refused(name: str, layout: GraphLayout | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build("encoders", name, {}).build(suite(layout))
