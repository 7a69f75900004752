"""A cell of the DARTS supernet: every operation on every edge, mixed by weights.

Edges of a cell with the same operation and shape run as one call: what leaves a state goes through one depthwise
convolution for all nodes that may read it, one product with all 1x1 convolutions, one normalisation; poolings and
identities, which have no weights, are computed once for a state. Nodes are one product of the weights with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.encoders import EDGES, NODES, OPERATIONS, BatchNorm2d, Halve, Place, relu_conv, shifted

Kept = Sequence[Sequence[str]]  # of each edge the operations that are in question
SEPARABLE, DILATED, POOLS = ("sep3", "sep5"), ("dil3", "dil5"), ("max3", "avg3")
_GROUPS = ((0, 1), (2,), (3,), (4,))  # states that are there at the same time


def _weights(edges: int, *shape: int) -> nn.Parameter:
    """[edges, *shape], each edge's as torch initialises a convolution's: uniform in ± 1/√fan_in."""
    fan_in = max(1, shape[1] * shape[2] * shape[3] if len(shape) == 4 else shape[1])
    return nn.Parameter(torch.empty(edges, *shape).uniform_(-(fan_in**-0.5), fan_in**-0.5))


def _apart(maps: Tensor, *parts: int) -> Tensor:
    """[B, channels, ...] -> [B, *parts, ...]."""
    found: Tensor = maps.unflatten(1, parts)
    return found


def _depthwise(maps: Tensor, weight: Tensor, padding: int, groups: int) -> Tensor:
    if maps.device.type == "cpu":  # where it takes a third of the time in that layout
        maps = maps.contiguous(memory_format=torch.channels_last)
    return functional.conv2d(maps, weight, None, 1, padding, 1, groups)


class LeavingStates(nn.Module):
    """All that leaves some states of a cell: maps [B, c, H, W] of these states -> what each later node gets.

    edges: numbers of the edges, by state and then by node; one norm for all that is normalised at the same time.
    """

    def __init__(self, states: Sequence[int], width: int, stride: int, kept: Kept) -> None:
        super().__init__()
        self.states, self.width, self.stride = tuple(states), width, stride
        self.edges = [EDGES.index((s, node)) for s in states for node in range(max(0, s - 1), NODES)]
        self.first_node = max(0, states[0] - 1)
        self.of = {name: [e for e in self.edges if name in kept[e]] for name in OPERATIONS}
        self.depth, self.second = nn.ParameterDict(), nn.ParameterDict()
        for name in (*SEPARABLE, *DILATED):
            kernel = int(name[-1])
            if self.of[name]:
                self.depth[name] = _weights(len(self.of[name]), width, 1, kernel, kernel)
                if name in SEPARABLE:
                    self.second[name] = _weights(len(self.of[name]), width, 1, kernel, kernel)
        rows = {what: sum(len(self.of[n]) for n in what) for what in (SEPARABLE, DILATED)}
        self.separable, self.dilated = rows[SEPARABLE], rows[DILATED]
        if self.depth:
            self.point = _weights(self.separable + self.dilated, width, width)
            self.norm = BatchNorm2d((self.separable + self.dilated) * width, affine=False)
        if self.separable:
            self.second_point = _weights(self.separable, width, width)
            self.second_norm = BatchNorm2d(self.separable * width, affine=False)
        self.pools = nn.ModuleDict(
            {name: BatchNorm2d(len(states) * width, affine=False) for name in POOLS if self.of[name]}
        )
        self.halving = bool(self.of["skip"]) and stride == 2
        if self.halving:
            self.even = _weights(len(self.of["skip"]), width - width // 2, width)
            self.odd = _weights(len(self.of["skip"]), width // 2, width)
            self.skip_norm = BatchNorm2d(len(self.of["skip"]) * width, affine=False)
        self._place_weights()

    # -- grouped -----------------------------------------------------------------------------------------------------

    def forward(self, maps: Sequence[Tensor], weights: Tensor, skips: Sequence[Tensor]) -> list[Tensor]:
        """weights [14, 8] of edges and operations; skips: the states as identities pass them on -> the maps that the
        nodes from `first_node` on get."""
        there = torch.cat(list(maps), 1) if len(maps) > 1 else maps[0]
        total: Tensor | None = None
        if self.depth:
            positive = there.relu()
            names = list(self.depth)
            found = self._points(torch.cat([self._depth(name, positive) for name in names], 1), self.point, self.norm)
            half, whole = found.split([self.separable, self.dilated], 1)
            if self.dilated:
                total = self._mixed("dilated", whole, weights, total)
            if self.separable:
                total = self._mixed("separable", self._second(half), weights, total)
        features = [norm(self._pool(name, there)) for name, norm in self.pools.items()]
        if self.of["skip"] and not self.halving:
            features += list(skips)
        if features:
            of_state = torch.cat(features, 1).unflatten(1, (-1, self.width))
            total = self._mixed("state", of_state, weights, total)
        if self.halving:
            total = self._mixed("halved", self._halved(there.relu()), weights, total)
        if total is None:
            size = [-(-side // self.stride) for side in there.shape[-2:]]
            total = there.new_zeros(len(there), NODES - self.first_node, self.width, *size)
        return list(total.unbind(1))

    def _depth(self, name: str, positive: Tensor) -> Tensor:
        """[B, states · c, H, W] -> [B, edges, c, H', W']: the first depthwise convolution of an operation."""
        kernel, edges, weight = int(name[-1]), self.of[name], self.depth[name]
        dilation = 2 if name in DILATED else 1
        padding = dilation * (kernel // 2)
        each, count = len(edges) // len(self.states), len(self.states)
        if each * count == len(edges) and all(
            sum(EDGES[e][0] == s for e in edges) == each for s in self.states
        ):  # as many edges from each state: one channel has several outputs
            by_channel = weight.unflatten(0, (count, each)).transpose(1, 2).reshape(-1, 1, kernel, kernel)
            groups = count * self.width
            found = functional.conv2d(positive, by_channel, None, self.stride, padding, dilation, groups)
            return _apart(found, count, self.width, each).transpose(2, 3).flatten(1, 2)
        of_state = positive.unflatten(1, (count, self.width))
        read = of_state.index_select(1, self.get_buffer(f"{name}_read")).flatten(1, 2)
        weight, groups = weight.flatten(0, 1), len(edges) * self.width
        found = functional.conv2d(read, weight, None, self.stride, padding, dilation, groups)
        return _apart(found, -1, self.width)

    def _second(self, found: Tensor) -> Tensor:
        """The second half of the separable ones, [B, edges, c, H, W] -> the same."""
        after = []
        parts = found.relu().split([len(weight) for weight in self.second.values()], 1)
        for read, (name, weight) in zip(parts, self.second.items(), strict=True):
            kernel, groups = int(name[-1]), len(weight) * self.width
            after.append(_depthwise(read.flatten(1, 2), weight.flatten(0, 1), kernel // 2, groups))
        together = torch.cat(after, 1).unflatten(1, (-1, self.width))
        return self._points(together, self.second_point, self.second_norm)

    def _points(self, maps: Tensor, weights: Tensor, norm: nn.Module) -> Tensor:
        """[B, edges, c, H, W] through 1x1 convolutions [edges, c, c] and their normalisation."""
        found = torch.matmul(weights, maps.flatten(3)).flatten(1, 2).unflatten(2, maps.shape[3:])
        return _apart(norm(found), -1, self.width)

    def _pool(self, name: str, maps: Tensor) -> Tensor:
        if name == "max3":
            return functional.max_pool2d(maps, 3, self.stride, 1)
        return functional.avg_pool2d(maps, 3, self.stride, 1, count_include_pad=False)

    def _halved(self, positive: Tensor) -> Tensor:
        """[B, states · c, H, W] -> [B, edges, c, H/2, W/2]: identities at stride 2."""
        count = len(self.states)
        halves = []
        for maps, weights in ((positive, self.even), (shifted(positive), self.odd)):
            of_state = (
                maps[..., ::2, ::2].unflatten(1, (count, self.width)).index_select(1, self.get_buffer("skip_read"))
            )
            halves.append(torch.matmul(weights, of_state.flatten(3)).unflatten(3, of_state.shape[3:]))
        return _apart(self.skip_norm(torch.cat(halves, 2).flatten(1, 2)), -1, self.width)

    def _mixed(self, what: str, maps: Tensor, weights: Tensor, total: Tensor | None) -> Tensor:
        """Maps [B, n, c, H, W] times the matrix [nodes, n] of their weights, added to `total`."""
        rows, columns = NODES - self.first_node, maps.shape[1]
        values = weights.flatten()[self.get_buffer(f"{what}_of")]
        matrix = weights.new_zeros(rows * columns).index_copy(0, self.get_buffer(f"{what}_at"), values)
        found = torch.matmul(matrix.view(rows, columns).to(maps.dtype), maps.flatten(2))
        found = found.view(*found.shape[:2], *maps.shape[2:])
        return found if total is None else total + found

    def _place_weights(self) -> None:
        """Where in these matrices which weight stands. What all edges out of a state have in common is one column."""
        own = {"dilated": DILATED, "separable": SEPARABLE, "halved": ("skip",)}
        columns = {what: [(name, [edge]) for name in names for edge in self.of[name]] for what, names in own.items()}
        shared = [*self.pools, *(["skip"] if self.of["skip"] and not self.halving else [])]
        columns["state"] = [
            (name, [e for e in self.of[name] if EDGES[e][0] == state]) for name in shared for state in self.states
        ]
        for name, edges in self.of.items():
            read = torch.tensor([self.states.index(EDGES[edge][0]) for edge in edges], dtype=torch.int64)
            self.register_buffer(f"{name}_read", read, persistent=False)
        for what, of_column in columns.items():
            entries = [
                ((EDGES[edge][1] - self.first_node) * len(of_column) + column, edge, OPERATIONS.index(name))
                for column, (name, edges) in enumerate(of_column)
                for edge in edges
            ]
            at, of = [place for place, _, _ in entries], [edge * len(OPERATIONS) + o for _, edge, o in entries]
            for name, values in (("at", at), ("of", of)):
                self.register_buffer(f"{what}_{name}", torch.tensor(values, dtype=torch.int64), persistent=False)


class MixedCell(nn.Module):
    """Two maps -> the maps of the cell's nodes side by side, [B, 4 · width, H', W'].

    part: one channel in so many goes through the operations, the others past them (PC-DARTS); 1: all do.
    """

    def __init__(self, place: Place, kept: Kept, part: int = 1) -> None:
        super().__init__()
        self.place, self.part = place, part
        self.mixed = max(1, place.width // part)
        older = Halve if place.reduced else relu_conv
        self.before = nn.ModuleList(
            [older(place.inputs[0], place.width, affine=False), relu_conv(place.inputs[1], place.width, affine=False)]
        )
        self.leaving = nn.ModuleList(
            LeavingStates(states, self.mixed, 2 if place.reduction and states == (0, 1) else 1, kept)
            for states in _GROUPS
        )

    def forward(
        self,
        older: Tensor,
        newer: Tensor,
        weights: Tensor,
        edges: Tensor | None = None,
        thinned: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """weights [14, 8] of the operations; edges [14]: of the edges themselves, where they have any; thinned: dropout
        of identities."""
        states = [self.before[0](older), self.before[1](newer)]
        if edges is not None:
            weights = weights * edges[:, None]
        got: list[list[Tensor]] = [[] for _ in range(NODES)]
        for leaving in self._leaving():
            maps = [states[state] for state in leaving.states]
            read = [each[:, : self.mixed] for each in maps] if self.part > 1 else maps
            skips = read if thinned is None else [thinned(each) for each in read]
            for place, found in enumerate(leaving(read, weights, skips), leaving.first_node):
                got[place].append(found)
            if len(states) - 2 < NODES:
                states.append(self._node(len(states) - 2, got, states, edges))
        return torch.cat(states[2:], 1)

    def _leaving(self) -> Iterator[LeavingStates]:
        for module in self.leaving:
            assert isinstance(module, LeavingStates)
            yield module

    def _node(
        self, node: int, got: Sequence[Sequence[Tensor]], states: Sequence[Tensor], edges: Tensor | None
    ) -> Tensor:
        """Everything that a node gets; past the operations, too, where that is a part of the channels."""
        found = got[node][0]
        for more in got[node][1:]:
            found = found + more
        if self.mixed == self.place.width:
            return found
        past: Tensor | None = None
        for state in range(node + 2):
            rest = states[state][:, self.mixed :]
            if self.place.reduction and state < 2:
                rest = functional.max_pool2d(rest, 2, 2, ceil_mode=True)
            rest = rest if edges is None else rest * edges[EDGES.index((state, node))].to(rest.dtype)
            past = rest if past is None else past + rest
        assert past is not None
        together = torch.cat([found, past], 1)
        if together.shape[1] % self.part:
            return together
        return _apart(together, self.part, -1).transpose(1, 2).flatten(1, 2)
