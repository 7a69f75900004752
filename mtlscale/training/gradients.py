"""Task gradients and their Gramian: separate scalars in, nothing of size T x P beyond the gradients themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

# Where a few gradients are large, bringing them together to multiply them at once costs more than it saves.
_FEW, _LARGE = 4, 1 << 18

Gradients = list[Tensor | None]  # one entry per parameter; None where the loss does not reach it

_CHUNK = 1 << 20  # entries of a block of gradients: 4 MiB in float32, so that it stays in the cache


def accumulate(total: Gradients, part: Sequence[Tensor | None]) -> None:
    """total += part, entry by entry; sparse gradients stay sparse."""
    for index, gradient in enumerate(part):
        if gradient is None:
            continue
        before = total[index]
        total[index] = gradient if before is None else before + gradient


def gramian(rows: Sequence[Gradients], scales: Tensor) -> Tensor:
    """[T, T] float64: inner products of the T rows of gradients times the rows' scales [T], summed parameter by
    parameter."""
    return cross_gramian(rows, rows, scales, scales)


def cross_gramian(left: Sequence[Gradients], right: Sequence[Gradients], ls: Tensor, rs: Tensor) -> Tensor:
    """[T, T] float64: entry (i, j) is the inner product of left[i] * ls[i] and right[j] * rs[j]."""
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
                result += (x @ y.T).to(torch.float64)
    return result * ls[:, None] * rs[None, :]


def _dots(gradients: Sequence[Tensor | None]) -> Tensor:
    """[T, T] inner products of one parameter's gradients, pair by pair, without bringing them together."""
    flat = {index: g.reshape(-1) for index, g in enumerate(gradients) if g is not None}
    found = {(i, j): torch.dot(flat[i], flat[j]) for i in flat for j in flat if j <= i}
    nothing = torch.zeros_like(next(iter(found.values())))
    size = range(len(gradients))
    # Put together, not assigned by place: places would have to be copied to the device, for every parameter.
    entries = [found.get((max(i, j), min(i, j)), nothing) for i in size for j in size]
    return torch.stack(entries).reshape(len(gradients), -1).to(torch.float64)


def _flat(gradients: Sequence[Tensor | None]) -> list[Tensor] | None:
    """Each gradient flattened, zeros where there is none; None where there is none at all."""
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
    """The flat gradients as [T, n] blocks that stay in the cache."""
    size, step = flat[0].numel(), max(1, _CHUNK // len(flat))
    if size <= step:
        yield torch.stack(list(flat))
        return
    for start in range(0, size, step):
        yield torch.stack([row[start : start + step] for row in flat])


def _blocks(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks ([T, n], [S, n]) of one parameter's gradients; nothing where one side has none."""
    left = _flat(a)
    if b is a:
        if left is not None:
            yield from ((piece, piece) for piece in _pieces(left))
        return
    right = _flat(b)
    if left is not None and right is not None:
        both = len(left)
        yield from ((piece[:both], piece[both:]) for piece in _pieces([*left, *right]))


def _sparse_products(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> Tensor:
    """Inner products of row-sparse gradients [rows, ...], in dense blocks of the rows that occur."""
    same = a is b
    both = [g if g is None else (g if g.is_sparse else g.to_sparse(1)).coalesce() for g in (a if same else (*a, *b))]
    present = [g for g in both if g is not None]
    used = torch.unique(torch.cat([g.indices()[0] for g in present]))
    result = torch.zeros(len(a), len(b), dtype=torch.float64, device=used.device)
    if not len(used):
        return result
    width = present[0].values()[0].numel()
    step = max(1, _CHUNK // (width * len(both)))
    starts = torch.arange(0, len(used) + step, step, device=used.device)
    places = [None if g is None else torch.searchsorted(used, g.indices()[0]) for g in both]
    cuts = [None if place is None else torch.searchsorted(place, starts).tolist() for place in places]
    block = present[0].values().new_empty(len(both), step, width)
    for number, start in enumerate(range(0, len(used), step)):
        block.zero_()
        for index, (gradient, place, cut) in enumerate(zip(both, places, cuts, strict=True)):
            if gradient is not None and place is not None and cut is not None:
                low, high = cut[number], cut[number + 1]
                values = gradient.values()[low:high].reshape(-1, width)
                block[index].index_copy_(0, place[low:high] - start, values)
        flat = block.reshape(len(both), -1)
        result += (flat[: len(a)] @ (flat if same else flat[len(a) :]).T).to(torch.float64)
    return result


def combine(rows: Sequence[Gradients], weights: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """Sum over t of weights[t] * rows[t], dense, for each parameter; None where no row reaches it. weights: [T]."""
    result: Gradients = [None] * len(parameters)
    for row, weight in zip(rows, weights.tolist(), strict=True):
        first: tuple[list[int], list[Tensor]] = ([], [])
        more: tuple[list[Tensor], list[Tensor]] = ([], [])
        for index, gradient in enumerate(row):
            if gradient is None:
                continue
            if gradient.is_sparse:
                gradient = gradient.coalesce()
                total = result[index]
                total = torch.zeros_like(parameters[index]) if total is None else total
                result[index] = total.index_add_(0, gradient.indices()[0], gradient.values() * weight)
            elif (total := result[index]) is None:
                first[0].append(index)
                first[1].append(gradient)
            else:
                more[0].append(total)
                more[1].append(gradient)
        if first[1]:
            for index, total in zip(first[0], torch._foreach_mul(first[1], weight), strict=True):
                result[index] = total
        if more[0]:
            torch._foreach_add_(more[0], more[1], alpha=weight)
    return result


def dense_jacobian(rows: Sequence[Gradients], scales: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """One [T, *shape] tensor per parameter, rows multiplied by `scales` [T]; for balancers that need J itself."""
    result = []
    for index, parameter in enumerate(parameters):
        dense = [None if g is None else g.to_dense() if g.is_sparse else g for g in (row[index] for row in rows)]
        flat = _flat(dense)
        stacked = parameter.new_zeros(len(rows), parameter.numel()) if flat is None else torch.stack(flat)
        scaled = stacked * scales.to(stacked.dtype)[:, None]
        result.append(scaled.reshape(len(rows), *parameter.shape))
    return result
