"""The cell of the DARTS supernet: every operation on every edge, mixed by weights.

Edges of a cell with the same operation and shape run as one call. What leaves a state goes through one depthwise
convolution for all nodes that may read it, one product with all 1x1 convolutions, and one normalisation. Poolings and
identities, which have no weights, are computed once for a state. The nodes are one product of the weights with all
these maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.encoders import BatchNorm2d
from mtlscale.nas.cells import EDGES, NODES, OPERATIONS, CellShape, Halve, relu_conv, shifted

KeptOperations = Sequence[Sequence[str]]  # the candidate operations of each edge
SEPARABLE, DILATED, POOLS = ("sep3", "sep5"), ("dil3", "dil5"), ("max3", "avg3")
_GROUPS = ((0, 1), (2,), (3,), (4,))  # states that are available at the same time


def _weights(edges: int, *shape: int) -> nn.Parameter:
    """Return weights [edges, *shape], initialised for each edge like torch's convolution: uniform in ± 1/√fan_in."""
    fan_in = max(1, shape[1] * shape[2] * shape[3] if len(shape) == 4 else shape[1])
    return nn.Parameter(torch.empty(edges, *shape).uniform_(-(fan_in**-0.5), fan_in**-0.5))


def _split_channels(maps: Tensor, *parts: int) -> Tensor:
    """Split the channels of maps: [B, channels, ...] -> [B, *parts, ...]."""
    split_maps: Tensor = maps.unflatten(1, parts)
    return split_maps


def _depthwise(maps: Tensor, weight: Tensor, padding: int, groups: int) -> Tensor:
    if maps.device.type == "cpu":  # which takes a third of the time in that layout
        maps = maps.contiguous(memory_format=torch.channels_last)
    return functional.conv2d(maps, weight, None, 1, padding, 1, groups)


class LeavingStates(nn.Module):
    """The operations on all edges that leave some states of a cell.

    They turn the maps [B, c, H, W] of these states into what each later node gets. `edges` has the numbers of the
    edges, by state and then by node. One normalisation serves all that is normalised at the same time.
    """

    def __init__(self, states: Sequence[int], width: int, stride: int, operations: KeptOperations) -> None:
        super().__init__()
        self.states, self.width, self.stride = tuple(states), width, stride

        self.edges = [EDGES.index((s, node)) for s in states for node in range(max(0, s - 1), NODES)]
        self.first_node = max(0, states[0] - 1)
        self.of = {name: [e for e in self.edges if name in operations[e]] for name in OPERATIONS}

        self.depth, self.second = nn.ParameterDict(), nn.ParameterDict()
        for name in (*SEPARABLE, *DILATED):
            kernel = int(name[-1])
            if self.of[name]:
                self.depth[name] = _weights(len(self.of[name]), width, 1, kernel, kernel)
                if name in SEPARABLE:
                    self.second[name] = _weights(len(self.of[name]), width, 1, kernel, kernel)

        edge_counts = {names: sum(len(self.of[n]) for n in names) for names in (SEPARABLE, DILATED)}
        self.separable, self.dilated = edge_counts[SEPARABLE], edge_counts[DILATED]
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

    # -- forward pass ------------------------------------------------------------------------------------------------

    def forward(self, maps: Sequence[Tensor], weights: Tensor, skips: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps that the nodes from `first_node` on get.

        Args:
            maps: Maps [B, c, H, W] of the states.
            weights: Weights [14, 8] of edges and operations.
            skips: The states as identities pass them on.
        """
        inputs = torch.cat(list(maps), 1) if len(maps) > 1 else maps[0]

        total: Tensor | None = None
        if self.depth:
            positive = inputs.relu()
            names = list(self.depth)
            pointwise = self._points(
                torch.cat([self._depth(name, positive) for name in names], 1), self.point, self.norm
            )
            half_separable, dilated = pointwise.split([self.separable, self.dilated], 1)
            if self.dilated:
                total = self._mixed("dilated", dilated, weights, total)
            if self.separable:
                total = self._mixed("separable", self._second(half_separable), weights, total)

        features = [norm(self._pool(name, inputs)) for name, norm in self.pools.items()]
        if self.of["skip"] and not self.halving:
            features += list(skips)
        if features:
            state_maps = torch.cat(features, 1).unflatten(1, (-1, self.width))
            total = self._mixed("state", state_maps, weights, total)

        if self.halving:
            total = self._mixed("halved", self._halved(inputs.relu()), weights, total)

        if total is None:
            size = [-(-side // self.stride) for side in inputs.shape[-2:]]
            total = inputs.new_zeros(len(inputs), NODES - self.first_node, self.width, *size)

        return list(total.unbind(1))

    def _depth(self, name: str, positive: Tensor) -> Tensor:
        """Apply an operation's first depthwise convolution: [B, states · c, H, W] -> [B, edges, c, H', W']."""
        kernel, edges, weight = int(name[-1]), self.of[name], self.depth[name]
        dilation = 2 if name in DILATED else 1
        padding = dilation * (kernel // 2)

        edges_per_state, count = len(edges) // len(self.states), len(self.states)
        if edges_per_state * count == len(edges) and all(
            sum(EDGES[e][0] == s for e in edges) == edges_per_state for s in self.states
        ):
            # All states have equally many edges: one channel has several outputs.
            by_channel = weight.unflatten(0, (count, edges_per_state)).transpose(1, 2).reshape(-1, 1, kernel, kernel)
            groups = count * self.width
            convolved = functional.conv2d(positive, by_channel, None, self.stride, padding, dilation, groups)
            return _split_channels(convolved, count, self.width, edges_per_state).transpose(2, 3).flatten(1, 2)

        state_maps = positive.unflatten(1, (count, self.width))
        read_maps = state_maps.index_select(1, self.get_buffer(f"{name}_read")).flatten(1, 2)

        weight, groups = weight.flatten(0, 1), len(edges) * self.width
        convolved = functional.conv2d(read_maps, weight, None, self.stride, padding, dilation, groups)
        return _split_channels(convolved, -1, self.width)

    def _second(self, maps: Tensor) -> Tensor:
        """Apply the second half of the separable convolutions to [B, edges, c, H, W], keeping the shape."""
        convolved = []
        parts = maps.relu().split([len(weight) for weight in self.second.values()], 1)
        for edge_maps, (name, weight) in zip(parts, self.second.items(), strict=True):
            kernel, groups = int(name[-1]), len(weight) * self.width
            convolved.append(_depthwise(edge_maps.flatten(1, 2), weight.flatten(0, 1), kernel // 2, groups))
        stacked = torch.cat(convolved, 1).unflatten(1, (-1, self.width))
        return self._points(stacked, self.second_point, self.second_norm)

    def _points(self, maps: Tensor, weights: Tensor, norm: nn.Module) -> Tensor:
        """Apply 1x1 convolutions [edges, c, c] and their normalisation to maps [B, edges, c, H, W]."""
        projected = torch.matmul(weights, maps.flatten(3)).flatten(1, 2).unflatten(2, maps.shape[3:])
        return _split_channels(norm(projected), -1, self.width)

    def _pool(self, name: str, maps: Tensor) -> Tensor:
        if name == "max3":
            return functional.max_pool2d(maps, 3, self.stride, 1)
        return functional.avg_pool2d(maps, 3, self.stride, 1, count_include_pad=False)

    def _halved(self, positive: Tensor) -> Tensor:
        """Apply identities at stride 2: [B, states · c, H, W] -> [B, edges, c, H/2, W/2]."""
        count = len(self.states)
        halves = []
        for maps, weights in ((positive, self.even), (shifted(positive), self.odd)):
            edge_maps = (
                maps[..., ::2, ::2].unflatten(1, (count, self.width)).index_select(1, self.get_buffer("skip_read"))
            )
            halves.append(torch.matmul(weights, edge_maps.flatten(3)).unflatten(3, edge_maps.shape[3:]))
        return _split_channels(self.skip_norm(torch.cat(halves, 2).flatten(1, 2)), -1, self.width)

    def _mixed(self, operation: str, maps: Tensor, weights: Tensor, total: Tensor | None) -> Tensor:
        """Return the product of maps [B, n, c, H, W] with the matrix [nodes, n] of their weights, added to `total`."""
        rows, columns = NODES - self.first_node, maps.shape[1]
        values = weights.flatten()[self.get_buffer(f"{operation}_of")]
        matrix = weights.new_zeros(rows * columns).index_copy(0, self.get_buffer(f"{operation}_at"), values)
        mixed = torch.matmul(matrix.view(rows, columns).to(maps.dtype), maps.flatten(2))
        mixed = mixed.view(*mixed.shape[:2], *maps.shape[2:])
        return mixed if total is None else total + mixed

    def _place_weights(self) -> None:
        """Register where each weight stands in the matrices; all edges out of a state share its common column."""
        per_edge = {"dilated": DILATED, "separable": SEPARABLE, "halved": ("skip",)}
        columns = {
            kind: [(name, [edge]) for name in names for edge in self.of[name]] for kind, names in per_edge.items()
        }

        per_state = [*self.pools, *(["skip"] if self.of["skip"] and not self.halving else [])]
        columns["state"] = [
            (name, [e for e in self.of[name] if EDGES[e][0] == state]) for name in per_state for state in self.states
        ]

        for name, edges in self.of.items():
            read_states = torch.tensor([self.states.index(EDGES[edge][0]) for edge in edges], dtype=torch.int64)
            self.register_buffer(f"{name}_read", read_states, persistent=False)

        for kind, kind_columns in columns.items():
            entries = [
                ((EDGES[edge][1] - self.first_node) * len(kind_columns) + column, edge, OPERATIONS.index(name))
                for column, (name, edges) in enumerate(kind_columns)
                for edge in edges
            ]
            slots, sources = [slot for slot, _, _ in entries], [edge * len(OPERATIONS) + o for _, edge, o in entries]
            for name, values in (("at", slots), ("of", sources)):
                self.register_buffer(f"{kind}_{name}", torch.tensor(values, dtype=torch.int64), persistent=False)


class MixedCell(nn.Module):
    """The mixed cell: two maps -> the maps of the cell's nodes side by side, [B, 4 · width, H', W'].

    Args:
        shape: Position and widths of the cell in the network.
        operations: Candidate operations of each edge.
        part: One channel in so many goes through the operations, the others bypass them (PC-DARTS); 1: all do.
    """

    def __init__(self, shape: CellShape, operations: KeptOperations, part: int = 1) -> None:
        super().__init__()
        self.place, self.part = shape, part
        self.mixed = max(1, shape.width // part)

        older = Halve if shape.reduced else relu_conv
        self.before = nn.ModuleList(
            [older(shape.inputs[0], shape.width, affine=False), relu_conv(shape.inputs[1], shape.width, affine=False)]
        )
        self.leaving = nn.ModuleList(
            LeavingStates(states, self.mixed, 2 if shape.reduction and states == (0, 1) else 1, operations)
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
        """Return the maps of the cell's nodes side by side.

        Args:
            older: Output of the cell before the previous one.
            newer: Output of the previous cell.
            weights: Weights [14, 8] of the operations.
            edges: Weights [14] of the edges themselves, if they have any.
            thinned: Dropout of identities.
        """
        states = [self.before[0](older), self.before[1](newer)]
        if edges is not None:
            weights = weights * edges[:, None]

        node_inputs: list[list[Tensor]] = [[] for _ in range(NODES)]
        for leaving in self.leaving:
            assert isinstance(leaving, LeavingStates)
            maps = [states[state] for state in leaving.states]
            inputs = [state_maps[:, : self.mixed] for state_maps in maps] if self.part > 1 else maps
            skips = inputs if thinned is None else [thinned(state_maps) for state_maps in inputs]
            for node, contribution in enumerate(leaving(inputs, weights, skips), leaving.first_node):
                node_inputs[node].append(contribution)
            if len(states) - 2 < NODES:
                states.append(self._node(len(states) - 2, node_inputs, states, edges))

        return torch.cat(states[2:], 1)

    def _node(
        self, node: int, got: Sequence[Sequence[Tensor]], states: Sequence[Tensor], edges: Tensor | None
    ) -> Tensor:
        """Return the sum of all that a node gets, together with the channels that bypass the operations, if any do."""
        total = got[node][0]
        for contribution in got[node][1:]:
            total = total + contribution
        if self.mixed == self.place.width:
            return total

        bypass_total: Tensor | None = None
        for state in range(node + 2):
            bypass = states[state][:, self.mixed :]
            if self.place.reduction and state < 2:
                bypass = functional.max_pool2d(bypass, 2, 2, ceil_mode=True)
            bypass = bypass if edges is None else bypass * edges[EDGES.index((state, node))].to(bypass.dtype)
            bypass_total = bypass if bypass_total is None else bypass_total + bypass
        assert bypass_total is not None

        joined = torch.cat([total, bypass_total], 1)
        if joined.shape[1] % self.part:
            return joined
        return _split_channels(joined, self.part, -1).transpose(1, 2).flatten(1, 2)
