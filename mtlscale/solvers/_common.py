"""What the Gramian solvers share: batching, a scale-free factor of the Gramian, and the least-norm choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FLAT = 1e-12  # an eigenvalue below this part of the largest counts as zero: float64 cannot tell it from rounding
DOUBLE = float(np.finfo(np.float64).eps)  # the precision of gradients, unless told otherwise
WEIGHT = 1e5  # of equations in a least-squares problem: they then hold to 1e-10
VANISHED = 1e-10  # a sum of vectors this much shorter than its terms has cancelled
CERTIFIED = 1e-9  # suboptimality, relative to the problem's scale, up to which a solution counts as found


class Solution(NamedTuple):
    """weights [..., T], and [...] whether the solver proved them optimal (or found the equation's root)."""

    weights: Tensor
    converged: Tensor


def over_batch(
    solve: Callable[..., tuple[Any, ...]],
    gramian: Tensor,
    *settings: float | Tensor,
    vectors: tuple[Tensor, ...] = (),
    flags: int = 1,
) -> tuple[Tensor, ...]:
    """`solve(K [T, T], *vectors [T], *settings) -> (weights [T], flag, ...)` for every Gramian of a batch [..., T, T].

    Vectors are [..., T]; settings are numbers, or tensors that broadcast to the leading dimensions. One copy to the
    host serves the whole batch. A Gramian or vector with non-finite entries, or a setting that is NaN, gives NaN
    weights and false flags; a single task gives [1] and a true first flag.
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
        elif np.isfinite(matrices[index]).all() and all(_known(column[index]) for column in columns):
            weights[index], *found = solve(matrices[index], *(column[index] for column in columns))
            answers[(slice(None), *index)] = found
    return (restore(torch.from_numpy(weights), gramian), *torch.from_numpy(answers).to(gramian.device).unbind(0))


def _known(column: Array) -> bool:
    """Whether a vector [T] is finite, a setting [] at least a number."""
    return bool(np.isfinite(column).all() if column.ndim else not np.isnan(column))


def restore(weights: Tensor, gramian: Tensor) -> Tensor:
    """The weights [..., T] with the Gramian's device and type (float64 for integers)."""
    return weights.to(gramian) if gramian.is_floating_point() else weights.to(gramian.device)


def on_host(gramian: Tensor) -> tuple[Tensor, Tensor]:
    """Gramian [..., T, T] in float64 on the host, over its largest diagonal entry, zero where it is not finite; and
    whether it is finite, [..., 1].

    For methods of T small steps, each of which an accelerator would have to be told about.
    """
    matrix = gramian.detach().to("cpu", torch.float64)
    finite = matrix.isfinite().all(-1).all(-1)[..., None]
    matrix = torch.where(finite.unsqueeze(-1), matrix, 0.0)
    largest = matrix.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
    return matrix / torch.where(largest > 0, largest, 1.0), finite


def to_numpy(value: float | Tensor) -> Array:
    if isinstance(value, Tensor):
        array: Array = value.detach().to("cpu", torch.float64).numpy()
        return array
    return np.asarray(value, dtype=np.float64)


def uniform(tasks: int) -> Array:
    return np.full(tasks, 1.0 / tasks)


def scaled(gramian: Array) -> tuple[Array, float]:
    """The Gramian over its largest diagonal entry, symmetrised, and that entry (0: every gradient is zero)."""
    scale = float(gramian.diagonal().max())
    if not scale > 0.0:
        return np.zeros_like(gramian), 0.0
    half = gramian / (2.0 * scale)
    return half + half.T, scale


def factor(gramian: Array, flat: float = FLAT) -> Array:
    """Rows [T, r] with K = rows rowsᵀ, each accurate however far apart the gradients' norms lie.

    The eigendecomposition is of the cosine matrix, so a gradient 1e-10 times as long as another keeps its digits; its
    eigenvalues below `flat` of the largest count as zero.
    """
    norms = np.sqrt(gramian.diagonal().clip(min=0.0))
    live = norms > 1e-150
    if not live.any():
        return np.zeros((len(norms), 0))
    values, vectors = np.linalg.eigh(cosines(gramian, norms, live))
    kept = values > flat * values[-1]
    rows = np.zeros((len(norms), int(kept.sum())))
    rows[live] = norms[live, None] * vectors[:, kept] * np.sqrt(values[kept])
    return rows


def cosines(gramian: Array, norms: Array, live: Mask) -> Array:
    """The cosines between those gradients that are not zero."""
    part = gramian if live.all() else gramian[np.ix_(live, live)]
    return part / np.multiply.outer(norms[live], norms[live])


def flat_directions(rows: Array) -> Array:
    """Orthonormal basis [T, k] of the v with rowsᵀ v = 0, for rows [T, r]."""
    norms = np.linalg.norm(rows, axis=1)
    live = norms > 0.0
    if not live.any():
        return np.eye(len(rows))
    left, values, _ = np.linalg.svd(rows[live] / norms[live, None])
    rank = int((values > np.sqrt(FLAT) * values[0]).sum())
    still = np.zeros((len(rows), left.shape[1] - rank))
    if still.shape[1]:
        still[live] = np.linalg.qr(left[:, rank:] * (norms[live].min() / norms[live])[:, None])[0]
    return np.hstack([np.eye(len(rows))[:, ~live], still])


def least_norm(point: Array, rows: Array, face: Mask, *keep: Array) -> Array:
    """Of the x >= 0 [T], zero outside `face` [T], with the same rowsᵀx and the same inner products with each of `keep`
    [T] as `point`, the one of least Euclidean norm."""
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
    """The x >= 0 that brings matrix x [m] closest to the last unit vector (Lawson and Hanson's active set, by QR)."""
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    return least_squares(matrix, target)


def least_squares(matrix: Array, target: Array) -> Array:
    """argmin over x >= 0 of the distance of matrix [m, n] x to target [m]; columns are brought to unit length first,
    so that the solver's tolerances mean the same for all of them."""
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0.0] = 1.0
    solution: Array = nnls(matrix / lengths, target, maxiter=100 * (matrix.shape[1] + 1))[0]
    found: Array = solution / lengths
    return found
