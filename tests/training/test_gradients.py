"""Gramians and combinations of task gradients, dense and row-sparse, against the plain matrix products."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.data import Losses
from mtlscale.training import Partition
from mtlscale.training.gradients import gramian as module
from mtlscale.training.gradients.gramian import combine, cross_gramian, dense_jacobian, gramian
from mtlscale.training.gradients.per_task import collect


def rows_of(generator: torch.Generator, tasks: int, sparse: bool) -> tuple[list[list[Tensor | None]], list[Tensor]]:
    """Gradients of two parameters, the first row-sparse where asked; some tasks reach one parameter only."""
    parameters = [torch.zeros(9, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)]
    rows: list[list[Tensor | None]] = []
    for task in range(tasks):
        words = torch.randint(9, (5,), generator=generator)
        values = torch.randn(5, 3, generator=generator, dtype=torch.float64)
        table = torch.sparse_coo_tensor(words[None], values, (9, 3))
        second = torch.randn(4, generator=generator, dtype=torch.float64) if task != 1 else None
        rows.append([table if sparse else table.to_dense(), second])
    return rows, parameters


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.integers(1, 5), seed=st.integers(0, 1000), sparse=st.booleans(), chunk=st.sampled_from([1, 20, 1 << 22])
)
def test_products_equal_those_of_the_dense_jacobian(tasks: int, seed: int, sparse: bool, chunk: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows, parameters = rows_of(generator, tasks, sparse)
    scales = torch.rand(tasks, generator=generator, dtype=torch.float64)
    jacobian = torch.cat([j.flatten(1) for j in dense_jacobian(rows, scales, parameters)], dim=1)
    before, module._CHUNK = module._CHUNK, chunk
    try:
        torch.testing.assert_close(gramian(rows, scales), jacobian @ jacobian.T)
        others, _ = rows_of(generator, tasks + 1, not sparse)
        ones = torch.ones(tasks + 1, dtype=torch.float64)
        other = torch.cat([j.flatten(1) for j in dense_jacobian(others, ones, parameters)], dim=1)
        torch.testing.assert_close(cross_gramian(rows, others, scales, ones), jacobian @ other.T)
    finally:
        module._CHUNK = before
    weights = torch.randn(tasks, generator=generator, dtype=torch.float64)
    found = combine(rows, weights * scales, parameters)
    flat = torch.cat(
        [torch.zeros(p.numel()) if g is None else g.reshape(-1) for p, g in zip(parameters, found, strict=True)]
    )
    torch.testing.assert_close(flat, weights @ jacobian)
    assert all(g is None or not g.is_sparse for g in found)


def test_large_gradients_are_multiplied_as_exactly_as_small_ones() -> None:
    rows = torch.rand(2, 1 << 19, generator=torch.Generator().manual_seed(0))
    exact = rows.double() @ rows.double().T
    torch.testing.assert_close(gramian([[row] for row in rows], torch.ones(2).double()), exact, rtol=1e-6, atol=0)


def test_large_gradients_are_multiplied_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, _ = rows_of(generator, 3, False)
    scales = torch.rand(3, generator=generator, dtype=torch.float64)
    expected = gramian(rows, scales)
    monkeypatch.setattr(module, "_LARGE", 1)
    torch.testing.assert_close(gramian(rows, scales), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_with_large_weights_cancel(dtype: torch.dtype) -> None:
    first, second = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows: list[list[Tensor | None]] = [[first], [-first], [second]]
    (found,) = combine(rows, torch.tensor([1000.0, 1000.0, 1.0], dtype=torch.float64), [first])
    assert found is not None
    assert found.dtype == dtype
    torch.testing.assert_close(found, second, rtol=1e-3, atol=1e-3)


def test_a_parameter_nobody_reaches_has_no_update() -> None:
    parameter = torch.zeros(3)
    assert combine([[None], [None]], torch.ones(2), [parameter]) == [None]
    torch.testing.assert_close(gramian([[None], [None]], torch.ones(2)), torch.zeros(2, 2, dtype=torch.float64))


@pytest.mark.parametrize("sparse", [False, True])
def test_accumulating_micro_batches_keeps_the_layout(sparse: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, _ = rows_of(generator, 2, sparse)
    total: list[Tensor | None] = [None, None]
    module.accumulate(total, rows[0])
    module.accumulate(total, rows[1])
    assert total[0] is not None and total[0].is_sparse == sparse
    first, second = rows[0][0], rows[1][0]
    assert first is not None and second is not None
    torch.testing.assert_close(total[0].to_dense(), first.to_dense() + second.to_dense())


def test_a_batchs_graph_is_freed_with_its_last_task() -> None:
    """Else the activations of a batch would stay while the next one is computed."""
    shared, heads = torch.nn.Parameter(torch.ones(3)), [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    features = shared.square()
    sums = [(features * head.exp()).sum() for head in heads]
    collected = collect([[Losses([0, 1], sums, [torch.ones(())] * 2)]], Partition([shared], [[h] for h in heads]), None)
    torch.testing.assert_close(collected.own[1][0], heads[1].exp().detach())
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(sums[1], shared)
