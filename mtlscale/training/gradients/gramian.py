"""Task gradients and their Gramian: separate scalars in, nothing of size T x P beyond the gradients themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mtlscale.solvers import inner_products

# Where a few gradients are large, stacking them to multiply them at once costs more than it saves.
_FEW, _LARGE = 4, 1 << 18
_PIECE = 1 << 16  # entries of a dot product on a CPU, which adds one after the other: more would lose digits

Gradients = list[Tensor | None]  # one entry per parameter; None where the loss does not reach it

_CHUNK = 1 << 20  # entries of a block of gradients: 4 MiB in float32, so that it stays in the cache


def accumulate(total: Gradients, part: Sequence[Tensor | None]) -> None:
    """Add `part` to `total` entry by entry; sparse gradients stay sparse."""
    for index, gradient in enumerate(part):
        if gradient is None:
            continue
        previous = total[index]
        total[index] = gradient if previous is None else previous + gradient


def gramian(rows: Sequence[Gradients], scales: Tensor) -> Tensor:
    """Return the float64 inner products [T, T] of T rows of gradients times their `scales` [T], summed by parameter."""
    return cross_gramian(rows, rows, scales, scales)


def cross_gramian(left: Sequence[Gradients], right: Sequence[Gradients], ls: Tensor, rs: Tensor) -> Tensor:
    """Return [T, T] float64, whose entry (i, j) is the inner product of left[i] * ls[i] and right[j] * rs[j]."""
    result = torch.zeros(len(left), len(right), dtype=torch.float64, device=ls.device)
    same = left is right
    for parameter in range(len(left[0])):
        a = [row[parameter] for row in left]
        b = a if same else [row[parameter] for row in right]

        if any(g is not None and g.is_sparse for g in (*a, *b)):
            result += _sparse_products(a, b)
        else:
            example = next((g for g in a if g is not None), None)
            if same and len(a) <= _FEW and example is not None and example.numel() >= _LARGE:
                result += _dots(a)
                continue
            for x, y in _blocks(a, b):
                result += inner_products(x, y)

    return result * ls[:, None] * rs[None, :]


def nonzero(rows: Sequence[Gradients]) -> Tensor:
    """Return [T] float64 on the host: 1 for rows of gradients that have an entry that is not 0, 0 for the others."""
    values = [[g.coalesce().values() if g.is_sparse else g for g in row if g is not None] for row in rows]
    return torch.tensor([float(any(bool(entry.any()) for entry in row)) for row in values], dtype=torch.float64)


def _dots(gradients: Sequence[Tensor | None]) -> Tensor:
    """Return the inner products [T, T] of one parameter's gradients, pair by pair, without stacking the gradients."""
    flat = {index: g.reshape(-1) for index, g in enumerate(gradients) if g is not None}
    products = {(i, j): _dot(flat[i], flat[j]) for i in flat for j in flat if j <= i}
    zero = torch.zeros_like(next(iter(products.values())))
    size = range(len(gradients))
    # Stacked, not assigned by index: indices would have to be copied to the device, for every parameter.
    entries = [products.get((max(i, j), min(i, j)), zero) for i in size for j in size]
    return torch.stack(entries).reshape(len(gradients), -1)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Return the inner product of two vectors, float64."""
    step = _PIECE if one.device.type == "cpu" else len(one)
    pairs = zip(one.split(step), other.split(step), strict=True)
    parts = [torch.dot(a, b) if a.dtype == torch.float64 else torch.dot(a.float(), b.float()) for a, b in pairs]
    return torch.stack(parts).sum(dtype=torch.float64)


def _flat(gradients: Sequence[Tensor | None]) -> list[Tensor] | None:
    """Return each gradient flattened, zeros for one that is missing; None where all are."""
    example = next((g for g in gradients if g is not None), None)
    if example is None:
        return None
    zero = None
    flat = []
    for gradient in gradients:
        if gradient is None:
            zero = torch.zeros_like(example) if zero is None else zero
            gradient = zero
        flat.append(gradient.reshape(-1))
    return flat


def _pieces(flat: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the flat gradients as [T, n] blocks that stay in the cache."""
    size, step = flat[0].numel(), max(1, _CHUNK // len(flat))
    if size <= step:
        yield torch.stack(list(flat))
        return
    for start in range(0, size, step):
        yield torch.stack([row[start : start + step] for row in flat])


def _blocks(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks ([T, n], [S, n]) of one parameter's gradients; nothing where one side has none."""
    flat_a = _flat(a)
    if b is a:
        if flat_a is not None:
            yield from ((piece, piece) for piece in _pieces(flat_a))
        return
    flat_b = _flat(b)
    if flat_a is not None and flat_b is not None:
        split = len(flat_a)
        yield from ((piece[:split], piece[split:]) for piece in _pieces([*flat_a, *flat_b]))


def _sparse_products(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> Tensor:
    """Return the inner products of row-sparse gradients [rows, ...], in dense blocks of the rows that occur."""
    same = a is b
    operands = [
        g if g is None else (g if g.is_sparse else g.to_sparse(1)).coalesce() for g in (a if same else (*a, *b))
    ]
    present = [g for g in operands if g is not None]
    used = torch.unique(torch.cat([g.indices()[0] for g in present]))
    result = torch.zeros(len(a), len(b), dtype=torch.float64, device=used.device)
    if not len(used):
        return result

    width = present[0].values()[0].numel()
    step = max(1, _CHUNK // (width * len(operands)))
    starts = torch.arange(0, len(used) + step, step, device=used.device)
    positions = [None if g is None else torch.searchsorted(used, g.indices()[0]) for g in operands]
    cuts = [None if position is None else torch.searchsorted(position, starts).tolist() for position in positions]

    block = present[0].values().new_empty(len(operands), step, width)

    for number, start in enumerate(range(0, len(used), step)):
        block.zero_()
        for index, (gradient, position, cut) in enumerate(zip(operands, positions, cuts, strict=True)):
            if gradient is not None and position is not None and cut is not None:
                low, high = cut[number], cut[number + 1]
                values = gradient.values()[low:high].reshape(-1, width)
                block[index].index_copy_(0, position[low:high] - start, values)

        flat = block.reshape(len(operands), -1)
        result += inner_products(flat[: len(a)], flat if same else flat[len(a) :])
    return result


def combine(rows: Sequence[Gradients], weights: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """Return the sum over t of weights[t] * rows[t], dense, for each parameter; None where no row reaches it.

    `weights` is [T]. Halves are added up in single precision: large weights of opposed gradients cancel.
    """
    result: Gradients = [None] * len(parameters)
    for row, weight in zip(rows, weights.tolist(), strict=True):
        new: tuple[list[int], list[Tensor]] = ([], [])
        added: tuple[list[Tensor], list[Tensor]] = ([], [])

        for index, gradient in enumerate(row):
            if gradient is None:
                continue
            gradient = gradient if gradient.dtype == torch.float64 else gradient.float()
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                total = result[index]
                total = torch.zeros_like(parameters[index], dtype=gradient.dtype) if total is None else total
                result[index] = total.index_add_(0, gradient.indices()[0], gradient.values() * weight)
            elif (total := result[index]) is None:
                new[0].append(index)
                new[1].append(gradient)
            else:
                added[0].append(total)
                added[1].append(gradient)

        if new[1]:
            for index, total in zip(new[0], torch._foreach_mul(new[1], weight), strict=True):
                result[index] = total
        if added[0]:
            torch._foreach_add_(added[0], added[1], alpha=weight)

    return [g if g is None else g.to(p.dtype) for g, p in zip(result, parameters, strict=True)]


def dense_jacobian(rows: Sequence[Gradients], scales: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return one [T, *shape] tensor per parameter, rows times `scales` [T], for balancers that need J itself."""
    result = []
    for index, parameter in enumerate(parameters):
        dense = [None if g is None else g.to_dense() if g.is_sparse else g for g in (row[index] for row in rows)]
        flat = _flat(dense)
        stacked = parameter.new_zeros(len(rows), parameter.numel()) if flat is None else torch.stack(flat)
        scaled = stacked * scales.to(stacked.dtype)[:, None]
        result.append(scaled.reshape(len(rows), *parameter.shape))
    return result
