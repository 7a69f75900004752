"""Encoders of categories: what they compute, by sums written out, and that trials and layers of them can be batched."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from mtlscale.config import TaskSuite, UserError, build
from mtlscale.encoders import EncoderModule
from mtlscale.encoders.table._embeddings import rule_size
from mtlscale.training import sparse_embeddings
from mtlscale.training.gradients.graph import read_layers

COUNTS = (5, 0, 3, 0, 4)
ENCODERS: list[tuple[str, dict[str, Any]]] = [
    ("embedding_mlp", {"hidden": [5, 4]}),
    ("embedding_mlp", {"dimensions": 3, "hidden": []}),
    ("deepfm", {"dimensions": 3, "hidden": [5], "dropout": 0.0}),
    ("dcn_v2", {"hidden": [5]}),
    ("dcn_v2", {"dimensions": 3, "hidden": [5], "structure": "parallel", "rank": 2}),
]
every = pytest.mark.parametrize(("name", "options"), ENCODERS)


def table(counts: tuple[int, ...] = COUNTS, kind: str = "vector", shape: tuple[int, ...] | None = None) -> TaskSuite:
    return TaskSuite(name="table", tasks=(), inputs="shared", input_kind=kind, input_shape=shape or (len(counts),),
                     categories=counts if any(counts) else ())  # fmt: skip


def network(name: str, options: dict[str, Any], seed: int = 0, counts: tuple[int, ...] = COUNTS) -> Any:
    torch.manual_seed(seed)
    module: EncoderModule = build("encoders", name, options).build(table(counts))
    for parameter in module.parameters():  # larger than at the start, so that every term counts
        parameter.data = torch.randn_like(parameter)
    return module.double()


def rows(count: int = 7, first: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    columns = [torch.randint(first, n, (count,), generator=draw).double() if n else torch.randn(count, generator=draw)
               for n in COUNTS]  # fmt: skip
    return torch.stack(columns, 1).double()


def vectors(embeddings: Any, inputs: Tensor) -> dict[int, Tensor]:
    """Category column -> its vectors [B, size], looked up one by one."""
    found = {}
    for index, table in enumerate(embeddings.tables):
        columns, offsets = (embeddings.get_buffer(f"{name}_{index}").tolist() for name in ("columns", "offsets"))
        for column, offset in zip(columns, offsets, strict=True):
            found[column] = torch.stack([table.weight[offset + int(code)] for code in inputs[:, column]])
    return found


def test_every_category_has_a_vector_of_its_own_and_numbers_stand_beside() -> None:
    module = network("embedding_mlp", {"hidden": []})
    inputs = rows()
    looked_up, embedded = vectors(module.stages[0], inputs), module(inputs)
    for column, (first, last) in module.spans.items():
        expected = looked_up[column] if COUNTS[column] else inputs[:, column : column + 1]
        assert torch.equal(embedded[:, first:last], expected), column
    assert sorted(i for span in module.spans.values() for i in range(*span)) == list(range(module.features))

    sizes = [last - first for column, (first, last) in sorted(module.spans.items()) if COUNTS[column]]
    assert sizes == [rule_size(4), rule_size(2), rule_size(3)] == [8, 7, 8]
    assert [rule_size(n) for n in (1, 50, 943, 10_000)] == [6, 16, 33, 60]
    assert sum(t.weight.shape[0] for t in module.stages[0].tables) == sum(COUNTS)
    assert len({tuple(vector.tolist()) for t in module.stages[0].tables for vector in t.weight}) == sum(COUNTS)


def test_unseen_values_start_with_the_zero_vector_and_are_trained_where_they_occur() -> None:
    torch.manual_seed(0)
    module: Any = build("encoders", "embedding_mlp", {"hidden": [4]}).build(table()).double()
    unseen = torch.zeros(2, len(COUNTS), dtype=torch.float64)
    assert not module.embed(unseen).any() and (module.embed(rows(first=1)) != 0).all()

    module(unseen).sum().backward()
    for index, weights in enumerate(module.stages[0].tables):
        moved = weights.weight.grad.any(1).nonzero().flatten().tolist()
        assert moved and moved == module.stages[0].get_buffer(f"offsets_{index}").tolist()


def test_layers_follow_the_embedding() -> None:
    module = network("embedding_mlp", {"hidden": [5, 4], "activation": "tanh"})
    inputs, expected = rows(), None
    expected = module.stages[0](inputs)
    for stage in module.stages[1:]:
        expected = (expected @ stage[0].weight.T + stage[0].bias).tanh()
    torch.testing.assert_close(module(inputs), expected, rtol=1e-12, atol=1e-12)


def test_deepfm_is_the_equations_of_the_paper() -> None:
    """Guo et al. 2017, equations 1 to 4, pair by pair; a head of ones gives the sum of its two outputs."""
    module = network("deepfm", {"dimensions": 3, "hidden": [5, 2], "dropout": 0.0, "activation": "tanh"})
    inputs = rows()
    vector_of, weight_of = vectors(module.vectors, inputs), vectors(module.first, inputs)
    for position, column in enumerate(module.numbers):
        vector_of[column] = inputs[:, column : column + 1] * module.number_vectors[position]
        weight_of[column] = inputs[:, column : column + 1] * module.number_weights[position]

    linear = sum(weight_of.values())
    pairs = sum(vector_of[i] * vector_of[j] for i, j in itertools.combinations(range(len(COUNTS)), 2))
    deep = torch.cat([vector_of[column] for column in sorted(vector_of, key=module.spans.__getitem__)], 1)
    torch.testing.assert_close(module.embed(inputs), deep)
    for stage in module.layers:
        deep = (deep @ stage[0].weight.T + stage[0].bias).tanh()

    torch.testing.assert_close(module(inputs), torch.cat([linear, pairs, deep], 1), rtol=1e-12, atol=1e-12)
    head = nn.Linear(module.features, 1, bias=False).double()
    head.weight.data[:, : 1 + 3] = 1.0
    machine = linear[:, 0] + pairs.sum(1)
    torch.testing.assert_close(head(module(inputs))[:, 0], machine + deep @ head.weight[0, 4:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
@pytest.mark.parametrize("rank", [0, 2])
def test_dcn_v2_crosses_as_in_the_paper(structure: str, rank: int) -> None:
    """Wang et al. 2021, equations 1 and 5, entry by entry."""
    module = network("dcn_v2", {"layers": 3, "hidden": [5], "structure": structure, "rank": rank})
    inputs = rows(4)
    x0 = module.embeddings(inputs)
    crossed = x0
    for cross in module.crosses:
        matrix = cross[1].weight @ cross[0].weight if rank else cross.weight
        bias = cross[1].bias if rank else cross.bias
        assert not rank or cross[0].weight.shape[0] == rank
        entries = [
            [x0[b, i] * (sum(matrix[i, j] * crossed[b, j] for j in range(x0.shape[1])) + bias[i]) + crossed[b, i]
             for i in range(x0.shape[1])] for b in range(4)
        ]  # fmt: skip
        crossed = torch.stack([torch.stack(row) for row in entries])

    (deep,) = module.deep
    hidden = ((crossed if structure == "stacked" else x0) @ deep[0].weight.T + deep[0].bias).relu()
    expected = hidden if structure == "stacked" else torch.cat([crossed, hidden], 1)
    torch.testing.assert_close(module(inputs), expected, rtol=1e-11, atol=1e-11)


@every
def test_trials_run_as_one_batched_network(name: str, options: dict[str, Any]) -> None:
    modules = [network(name, options, seed) for seed in (0, 1)]
    parameters, buffers = stack_module_state(modules)
    inputs = rows()
    outputs = vmap(lambda p, b: functional_call(modules[0], (p, b), (inputs,)))(parameters, buffers)
    for index, module in enumerate(modules):
        torch.testing.assert_close(outputs[index], module(inputs), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(module.read(module.embed(inputs), inputs), module(inputs), rtol=0, atol=0)
        assert module(inputs).shape == (7, module.features) and module.embed(inputs).shape == (7, module.embedding_size)


@every
def test_gradients_of_vectors_are_sparse_on_the_host_and_known_layer_by_layer(
    name: str, options: dict[str, Any]
) -> None:
    module = network(name, options)
    sparse_embeddings(module)
    tables = [m.weight for m in module.modules() if isinstance(m, nn.Embedding)]
    gradients = torch.autograd.grad(module(rows(2)).sum(), tables)
    assert all(g.is_sparse and g.coalesce().values().shape[0] <= 2 * len(COUNTS) for g in gradients)

    shared = list(module.parameters())
    known = {layer.weight for layer in read_layers(module(rows(2)), shared) if layer.embedding}
    assert known == {position for position, p in enumerate(shared) if any(p is weight for weight in tables)}


@every
@pytest.mark.parametrize("counts", [(4, 3), (0, 0, 0)])
def test_tables_of_categories_alone_and_of_numbers_alone(
    name: str, options: dict[str, Any], counts: tuple[int, ...]
) -> None:
    module = network(name, options, counts=counts)
    outputs = module(torch.ones(3, len(counts), dtype=torch.float64))
    assert outputs.shape == (3, module.features) and outputs.isfinite().all()


@pytest.mark.parametrize("name", ["embedding_mlp", "deepfm", "dcn_v2"])
@pytest.mark.parametrize(("kind", "shape"), [("tokens", (9,)), ("image", (3, 8, 8)), ("vector", (4, 5))])
def test_inputs_that_are_no_table_are_refused(name: str, kind: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=f"{name} reads the columns of a table.*choose another encoder"):
        build("encoders", name, {}).build(table((0,), kind, shape))
