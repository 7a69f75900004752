"""Which modules are updated: strictly negative products alone are conflicts, and what follows one is left out."""

import pytest
import torch
from torch import Tensor

from mtlscale.architectures import conflict_mask
from mtlscale.solvers import conflicting_pairs, module_mask

AGREE, CONFLICT = [[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [-1e-3, 1.0]]
ORTHOGONAL, NOTHING = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [-1.0, 1.0]]


@pytest.mark.parametrize(
    ("modules", "prefix", "alone"),
    [
        ([AGREE, ORTHOGONAL, NOTHING], [True, True, True], [True, True, True]),
        ([AGREE, CONFLICT, AGREE], [True, False, False], [True, False, True]),
        ([CONFLICT, AGREE, CONFLICT], [False, False, False], [False, True, False]),
        ([[[1.0]], [[-2.0]]], [True, True], [True, True]),  # one task
    ],
)
def test_mask(modules: list[list[list[float]]], prefix: list[bool], alone: list[bool]) -> None:
    grads = [torch.tensor(rows) for rows in modules]
    assert conflict_mask(grads) == prefix
    gramians = torch.stack([rows @ rows.T for rows in grads])
    assert module_mask(gramians).tolist() == prefix
    assert module_mask(gramians, prefix=False).tolist() == alone


def test_modules_differ_in_size_and_any_pair_counts() -> None:
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(3, size, generator=generator).abs() for size in (2, 7, 1)]
    assert conflict_mask(grads) == [True, True, True]
    grads[1][2] = -grads[1][0]
    assert conflict_mask(grads) == [True, False, False]
    assert conflict_mask([]) == []


def test_pairs_are_counted_once() -> None:
    rows: Tensor = torch.tensor([[1.0], [-1.0], [2.0], [0.0]], dtype=torch.float64)
    gramian = rows @ rows.T
    assert int(conflicting_pairs(gramian)) == 2
    assert conflicting_pairs(gramian.expand(2, 3, 4, 4)).tolist() == [[2] * 3] * 2
