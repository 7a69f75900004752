"""The mixed cells of a search, edge by edge and operation by operation: what their grouped calls have to equal."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.nas.cells import EDGES, NODES, OPERATIONS, shifted
from mtlscale.nas.search.mixed_cell import DILATED, SEPARABLE, LeavingStates


def plain(leaving: LeavingStates, maps: Sequence[Tensor], weights: Tensor, skips: Sequence[Tensor]) -> list[Tensor]:
    """What `leaving(maps, weights, skips)` gives, with a call for everything; running statistics stay as they are."""
    got: dict[int, Tensor | float] = dict.fromkeys(range(leaving.first_node, NODES), 0.0)
    for edge in leaving.edges:
        state, node = EDGES[edge]
        x, skip = maps[leaving.states.index(state)], skips[leaving.states.index(state)]
        for name in OPERATIONS:
            if name != "none" and edge in leaving.of[name]:
                found = _operation(leaving, name, edge, x, skip)
                got[node] = got[node] + weights[edge, OPERATIONS.index(name)] * found
    return [torch.as_tensor(value) for value in got.values()]


def _norm(norm: nn.BatchNorm2d, maps: Tensor) -> Tensor:
    return functional.batch_norm(maps, None, None, training=True, eps=norm.eps)


def _operation(leaving: LeavingStates, name: str, edge: int, x: Tensor, skip: Tensor) -> Tensor:
    if name in leaving.pools:
        return _norm(leaving.pools[name], leaving._pool(name, x))
    row = leaving.of[name].index(edge)
    if name == "skip" and not leaving.halving:
        return skip
    if name == "skip":
        halves = [(x.relu(), leaving.even), (shifted(x.relu()), leaving.odd)]
        parts = [functional.conv2d(m, w[row][:, :, None, None], None, 2) for m, w in halves if w.shape[1]]
        return _norm(leaving.skip_norm, torch.cat(parts, 1))
    kernel, width = int(name[-1]), leaving.width
    names = list(leaving.depth)
    place = sum(len(leaving.of[n]) for n in names[: names.index(name)]) + row
    dilation = 2 if name in DILATED else 1
    found = functional.conv2d(
        x.relu(), leaving.depth[name][row], None, leaving.stride, dilation * (kernel // 2), dilation, width
    )
    found = _norm(leaving.norm, functional.conv2d(found, leaving.point[place][:, :, None, None]))
    if name in SEPARABLE:
        found = functional.conv2d(found.relu(), leaving.second[name][row], None, 1, kernel // 2, 1, width)
        found = functional.conv2d(found, leaving.second_point[place][:, :, None, None])
        found = _norm(leaving.second_norm, found)
    return found
