"""Products of the tasks' gradients of one layer, from the layer's inputs and the gradients at its outputs.

The gradient of a linear layer's weight is G_t = Δ_tᵀ X, with X [n, i] the layer's inputs (a column of ones for the
bias) and Δ_t [n, o] task t's gradient at its outputs. With X = L Q, Q's rows orthonormal and L [n, n],
⟨G_s, G_t⟩ = ⟨Δ_sᵀ L, Δ_tᵀ L⟩: the same number from matrices that are smaller where n < i. The product form
Σ (X Xᵀ) ∘ (Δ_s Δ_tᵀ) needs T times the multiplications of Δᵀ L, and loses digits where a gradient is small against
its samples' parts; compressing by the deltas pays where T n < o and n > i, where multiplying out costs less still.
"""

from __future__ import annotations

import torch
from torch import Tensor

_PIECE = 256  # entries that are added up in the rows' type: sums of millions of them lose hundreds of roundings
_CHUNK = 1 << 20  # entries of a block of gradients: 4 MiB in float32, so that it stays in the cache
_FACTORISATION = 3  # multiplications of a QR factorisation count so many times: it runs that much slower
_OVERHEAD = 200_000  # multiplications in the time in which one more operation is started


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """Return the inner products [..., S, T], float64, of rows [..., S, n] and [..., T, n].

    They are exact to a few roundings of the rows' type, of single precision for halves, however many entries the rows
    have: near a Pareto-stationary point lengths are differences of such products.
    """
    left, right = _at_least_single(left), _at_least_single(right)
    pieces = left.shape[-1] // _PIECE
    if pieces < 2:
        return torch.matmul(left, right.mT).to(torch.float64)

    whole = pieces * _PIECE
    first, second = (rows[..., :whole].unflatten(-1, (pieces, _PIECE)).transpose(-3, -2) for rows in (left, right))
    products: Tensor = (first @ second.mT).sum(-3, dtype=torch.float64)
    if whole < left.shape[-1]:
        products += left[..., whole:] @ right[..., whole:].mT
    return products


def gramian_cost(rows: int, inputs: int, outputs: int, tasks: int) -> int:
    """Return the multiplications of the cheaper of both forms: from X = L Q, or from the gradients in blocks.

    From shapes alone, never by the clock: the form that is taken decides over the last digits of a result.
    """
    return min(_compressed(rows, inputs, outputs, tasks), tasks * rows * inputs * outputs)


def _compressed(rows: int, inputs: int, outputs: int, tasks: int) -> int:
    return _FACTORISATION * rows * rows * inputs + tasks * rows * rows * outputs + _OVERHEAD


def layer_gramian(inputs: Tensor, deltas: Tensor) -> Tensor:
    """Return the products [..., T, T], float64, of the gradients of a linear layer's weight.

    No more than a block of the gradients exists at a time.

    Args:
        inputs: The layer's inputs X [..., n, i].
        deltas: The tasks' gradients at its outputs [..., T, n, o].
    """
    inputs, deltas = _at_least_single(inputs), _at_least_single(deltas)
    (rows, fan_in), (tasks, _, fan_out) = inputs.shape[-2:], deltas.shape[-3:]
    if rows and _compressed(rows, fan_in, fan_out, tasks) < tasks * rows * fan_in * fan_out:
        inputs = torch.linalg.qr(inputs.mT, mode="r").R.mT

    gramian = deltas.new_zeros(*deltas.shape[:-3], tasks, tasks, dtype=torch.float64)
    transposed = inputs.mT.unsqueeze(-3)
    for part in deltas.split(_columns(tasks * inputs.shape[-1], fan_out), dim=-1):
        gradients = (transposed @ part).flatten(-2)
        gramian += inner_products(gradients, gradients)
    return gramian


def embedding_gramian(ids: Tensor, deltas: Tensor) -> Tensor:
    """Return the products [T, T], float64, of the gradients of an embedding's vectors.

    Args:
        ids: The indices [n] of the vectors.
        deltas: The tasks' gradients at its outputs [T, n, d].
    """
    deltas = _at_least_single(deltas)
    tasks, _, size = deltas.shape

    used, positions = ids.unique(return_inverse=True)
    gramian = deltas.new_zeros(tasks, tasks, dtype=torch.float64)
    for part in deltas.split(_columns(tasks * len(used), size), dim=-1):
        rows = part.new_zeros(tasks, len(used), part.shape[-1]).index_add_(1, positions, part)
        gramian += inner_products(rows.flatten(-2), rows.flatten(-2))
    return gramian


def _columns(each: int, columns: int) -> int:
    """Return how many of the outputs' columns to take at a time, where each makes `each` entries."""
    return max(1, min(columns, _CHUNK // max(each, 1)))


def _at_least_single(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 or better: squares of scaled halves would overflow."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
