"""Products of gradients from a layer's inputs and deltas, against the gradients themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.solvers import embedding_gramian, gramian_cost, inner_products, layer_gramian


def explicit(inputs: Tensor, deltas: Tensor) -> Tensor:
    gradients = torch.einsum("...tno,...ni->...toi", deltas, inputs).flatten(-2)
    return gradients @ gradients.mT


@given(
    rows=st.integers(0, 40),
    fan_in=st.integers(1, 60),
    fan_out=st.integers(1, 20),
    tasks=st.integers(1, 6),
    rank=st.integers(0, 60),
    trials=st.sampled_from([(), (3,)]),
    seed=st.integers(0, 10**6),
)
def test_linear_layers(
    rows: int, fan_in: int, fan_out: int, tasks: int, rank: int, trials: tuple[int, ...], seed: int
) -> None:
    """Of any shape, rank-deficient inputs included."""
    draw = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*trials, *shape, dtype=torch.float64, generator=draw)

    inputs, deltas = numbers(rows, rank) @ numbers(rank, fan_in), numbers(tasks, rows, fan_out)
    expected = explicit(inputs, deltas)
    found = layer_gramian(inputs, deltas)
    assert (found - expected).norm() <= 1e-11 * expected.norm()


@pytest.mark.parametrize(("rows", "fan_in"), [(16, 1025), (300, 1025), (1200, 1025)])
def test_large_layers_in_both_forms(rows: int, fan_in: int) -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, fan_in, dtype=torch.float64, generator=draw)
    deltas = torch.randn(5, rows, 300, dtype=torch.float64, generator=draw)
    assert (gramian_cost(rows, fan_in, 300, 5) < 5 * rows * fan_in * 300) == (rows < 1000)
    expected = explicit(inputs, deltas)
    assert (layer_gramian(inputs, deltas) - expected).norm() <= 1e-12 * expected.norm()


def test_embeddings() -> None:
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (30,), generator=draw)
    deltas = torch.randn(4, 30, 5, dtype=torch.float64, generator=draw)
    gradients = torch.zeros(4, 7, 5, dtype=torch.float64).index_add_(1, ids, deltas).flatten(1)
    torch.testing.assert_close(embedding_gramian(ids, deltas), gradients @ gradients.T, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("entries", [3, 256, 700, 300_000])
def test_long_sums_are_as_exact_as_short_ones(entries: int, dtype: torch.dtype) -> None:
    """All terms of one sign, whose roundings add up."""
    rows = (20.0 + torch.rand(2, 3, entries, generator=torch.Generator().manual_seed(0))).to(dtype)
    found, exact = inner_products(rows, rows[:, :2]), rows.double() @ rows[:, :2].double().mT
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, exact, rtol=2e-6, atol=0)


def test_half_precision_does_not_overflow() -> None:
    found = layer_gramian(torch.full((4, 3), 200.0).half(), torch.full((2, 4, 3), 200.0).half())
    assert found.isfinite().all()


def test_a_number_that_is_none_is_seen() -> None:
    inputs = torch.randn(4, 50)
    inputs[1, 1] = float("nan")
    assert not layer_gramian(inputs, torch.randn(30, 4, 50)).isfinite().all()
