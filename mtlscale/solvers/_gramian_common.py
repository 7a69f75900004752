"""Shared parts of the Gramian solvers: batching, a scale-free factor of the Gramian, and the least-norm choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numbers = TypeVar("Numbers", Array, Tensor)

FLAT = 1e-12  # an eigenvalue below this part of the largest counts as zero: float64 cannot tell it from rounding
DOUBLE = float(np.finfo(np.float64).eps)  # the default precision of gradients
SINGLE = float(np.finfo(np.float32).eps)  # products of gradients are added up in single precision or better
WEIGHT = 1e5  # the weight of equations in a least-squares problem: they then hold to 1e-10
VANISHED = 1e-10  # a sum of vectors this much shorter than its terms has cancelled
CERTIFIED = 1e-9  # suboptimality, relative to the problem's scale, up to which a solution counts as found


class Solution(NamedTuple):
    """The weights [..., T], and [...] whether the solver proved them optimal (or found the equation's root)."""

    weights: Tensor
    converged: Tensor


def over_batch(
    solve: Callable[..., tuple[Any, ...]],
    gramian: Tensor,
    *settings: float | Tensor,
    vectors: tuple[Tensor, ...] = (),
    flags: int = 1,
) -> tuple[Tensor, ...]:
    """Solve a problem for every Gramian of a batch, with one copy to the host.

    A Gramian or vector with non-finite entries, or a setting that is NaN, gives NaN weights and false flags; a single
    task gives [1] and a true first flag.

    Args:
        solve: `solve(K [T, T], *vectors [T], *settings) -> (weights [T], flag, ...)`.
        gramian: The Gramians [..., T, T].
        *settings: Numbers, or tensors that broadcast to the leading dimensions.
        vectors: Vectors [..., T].

    Returns:
        The weights [..., T], then each flag [...].
    """
    batch, tasks = gramian.shape[:-2], gramian.shape[-1]
    matrices = to_numpy(gramian)
    columns = [np.broadcast_to(to_numpy(vector), (*batch, tasks)) for vector in vectors]
    columns += [np.broadcast_to(to_numpy(value), batch) for value in settings]

    weights = np.full((*batch, tasks), np.nan)
    answers = np.zeros((flags, *batch), dtype=bool)
    for index in np.ndindex(*batch):
        if tasks == 1:
            weights[index] = 1.0
            answers[(0, *index)] = True
        elif np.isfinite(matrices[index]).all() and all(_is_valid(column[index]) for column in columns):
            weights[index], *solved_flags = solve(matrices[index], *(column[index] for column in columns))
            answers[(slice(None), *index)] = solved_flags

    return (restore(torch.from_numpy(weights), gramian), *torch.from_numpy(answers).to(gramian.device).unbind(0))


def _is_valid(column: Array) -> bool:
    """Return whether a vector [T] is finite, or a setting [] at least a number."""
    return bool(np.isfinite(column).all() if column.ndim else not np.isnan(column))


def restore(weights: Tensor, gramian: Tensor) -> Tensor:
    """Return the weights [..., T] with the Gramian's device and type (float64 for integers)."""
    return weights.to(gramian) if gramian.is_floating_point() else weights.to(gramian.device)


def on_host(gramian: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Gramian [..., T, T] in float64 on the host, over its largest diagonal entry, and its flag [..., 1].

    The flag says whether the Gramian is finite; where it is not, it is zero. It serves methods of T small
    steps, each of which would be an operation of its own on an accelerator.
    """
    matrix = gramian.detach().to("cpu", torch.float64)
    finite = matrix.isfinite().all(-1).all(-1)[..., None]
    matrix = torch.where(finite.unsqueeze(-1), matrix, 0.0)
    largest = matrix.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
    return matrix / torch.where(largest > 0, largest, 1.0), finite


def to_numpy(value: float | Tensor) -> Array:
    """Return a number or tensor as a float64 array on the host."""
    if isinstance(value, Tensor):
        array: Array = value.detach().to("cpu", torch.float64).numpy()
        return array
    return np.asarray(value, dtype=np.float64)


def uniform(tasks: int) -> Array:
    """Return equal weights [T] that sum to 1."""
    return np.full(tasks, 1.0 / tasks)


def scaled(gramian: Array) -> tuple[Array, float]:
    """Return the Gramian over its largest diagonal entry, symmetrised, and that entry (0: every gradient is zero)."""
    scale = float(gramian.diagonal().max())
    if not scale > 0.0:
        return np.zeros_like(gramian), 0.0
    half = gramian / (2.0 * scale)
    return half + half.T, scale


def hidden_part(gramian: Tensor, precision: float | Tensor) -> Tensor:
    """Return the part [...] of squared lengths that rounding hides, in units of the gradients' own squares.

    The cosines of T gradients, as a matrix, are known to T roundings of `inner_products`, and half of what counts is a
    margin. Products of halves are made in single precision, but sums of halves with large weights do not cancel as
    their Gramian says.

    Args:
        gramian: The Gramians [..., T, T].
        precision: The eps [...] of the type the gradients were computed in.
    """
    eps = to_numpy(precision)
    own = torch.finfo(gramian.dtype).eps if gramian.is_floating_point() else DOUBLE
    hidden = np.maximum(2.0 * gramian.shape[-1] * np.maximum(np.minimum(eps, SINGLE), own), (3.0 * eps) ** 2)
    return torch.from_numpy(np.asarray(hidden))


def length_bounds(weights: Numbers, gramian: Numbers, hidden: Numbers | float) -> tuple[Numbers, Numbers]:
    """Return the least and the greatest length [...] that Jᵀw may have, w [..., T], for Gramians [..., T, T].

    `hidden` [...] is that of `hidden_part`.
    """
    square = (weights[..., None, :] @ gramian @ weights[..., :, None])[..., 0, 0].clip(min=0.0)
    doubt = hidden * (weights**2 * gramian.diagonal(0, -2, -1)).sum(-1)
    return (square - doubt).clip(min=0.0) ** 0.5, (square + doubt) ** 0.5


def shrinkage(weights: Array, limit: Array | float, gramian: Array, hidden: Array | float) -> Array:
    """Return the factors [...], at most 1, with which Jᵀw, w [..., T], is certainly no longer than the limit [...]."""
    _, longest = length_bounds(weights, gramian, hidden)
    factors: Array = np.divide(limit, longest, out=np.ones_like(longest), where=longest > limit)
    return factors


def factor(gramian: Array, flat: float = FLAT) -> Array:
    """Return rows [T, r] with K = rows rowsᵀ, each accurate however far apart the gradients' norms lie.

    The eigendecomposition is of the cosine matrix, so a gradient 1e-10 times as long as another keeps its digits; its
    eigenvalues below `flat` of the largest count as zero.
    """
    norms = np.sqrt(gramian.diagonal().clip(min=0.0))
    live = norms > 1e-150
    if not live.any():
        return np.zeros((len(norms), 0))

    values, vectors = np.linalg.eigh(cosines(gramian, norms, live))
    nonzero = values > flat * values[-1]

    rows = np.zeros((len(norms), int(nonzero.sum())))
    rows[live] = norms[live, None] * vectors[:, nonzero] * np.sqrt(values[nonzero])
    return rows


def cosines(gramian: Array, norms: Array, live: Mask) -> Array:
    """Return the cosines between those gradients that are not zero."""
    part = gramian if live.all() else gramian[np.ix_(live, live)]
    return part / np.multiply.outer(norms[live], norms[live])


def flat_directions(rows: Array) -> Array:
    """Return an orthonormal basis [T, k] of the v with rowsᵀ v = 0, for rows [T, r]."""
    norms = np.linalg.norm(rows, axis=1)
    live = norms > 0.0
    if not live.any():
        return np.eye(len(rows))

    left_vectors, values, _ = np.linalg.svd(rows[live] / norms[live, None])
    rank = int((values > np.sqrt(FLAT) * values[0]).sum())

    live_basis = np.zeros((len(rows), left_vectors.shape[1] - rank))
    if live_basis.shape[1]:
        live_basis[live] = np.linalg.qr(left_vectors[:, rank:] * (norms[live].min() / norms[live])[:, None])[0]
    return np.hstack([np.eye(len(rows))[:, ~live], live_basis])


def least_norm(point: Array, rows: Array, face: Mask, *keep: Array) -> Array:
    """Return the solution of least Euclidean norm that is equivalent to a known one.

    Args:
        point: The known solution [T].
        rows: The factor [T, r] of the Gramian.
        face: The mask [T] of entries that may be positive.
        *keep: Vectors [T].

    Returns:
        Of the x >= 0 [T], zero outside `face`, with the same rowsᵀx and the same inner products with each of `keep` as
        `point`, the shortest; `point` itself where float64 cannot find it.
    """
    face = face | (point > 0.0)
    start = point[face]
    flat = flat_directions(rows[face])

    for fixed in keep:
        length = np.linalg.norm(fixed[face])
        if flat.shape[1] and length > 0.0:
            across = flat.T @ (fixed[face] / length)
            if np.linalg.norm(across) > 1e-9:
                flat = flat @ np.linalg.qr(across[:, None], mode="complete")[0][:, 1:]

    if not flat.shape[1]:
        return point

    centre = start - flat @ (flat.T @ start)
    if centre.min() < -FLAT * centre.max():
        # Which entries are positive comes from least squares with the equations weighted up, their values from the
        # equations themselves. Projecting onto the polytope directly fails where it is thin.
        equations = np.linalg.qr(flat, mode="complete")[0][:, flat.shape[1] :].T
        values = equations @ start
        target = np.concatenate([WEIGHT * values, np.zeros(len(start))])
        try:
            rough = least_squares(np.vstack([WEIGHT * equations, np.eye(len(start))]), target)
        except RuntimeError:  # the iteration limit; `point` is a solution, if not the shortest
            return point

        positive = rough > 1e-8 * rough.max()
        centre = np.zeros_like(start)
        centre[positive] = np.linalg.lstsq(equations[:, positive], values, rcond=1e-9)[0]

    centre = centre.clip(min=0.0)
    moved = np.linalg.norm(rows[face].T @ (centre - start))
    lengths = np.linalg.norm(rows[face], axis=1)
    if moved > CERTIFIED * (np.maximum(start, centre) @ lengths) + 1e-14 * start.sum() * lengths.max():
        return point  # the set is too thin for float64

    result = np.zeros_like(point)
    result[face] = centre
    return result


def nonnegative_least_squares(matrix: Array) -> Array:
    """Return the x >= 0 that brings matrix x [m] closest to the last unit vector.

    Lawson and Hanson's active set, by QR.
    """
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    return least_squares(matrix, target)


def least_squares(matrix: Array, target: Array) -> Array:
    """Return argmin over x >= 0 of the distance of matrix [m, n] x to target [m].

    Columns are brought to unit length first, so that the solver's tolerances mean the same for all of them.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0.0] = 1.0
    solution: Array = nnls(matrix / lengths, target, maxiter=100 * (matrix.shape[1] + 1))[0]
    unscaled: Array = solution / lengths
    return unscaled
