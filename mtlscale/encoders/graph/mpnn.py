"""MPNN: nodes send each other messages along the edges of a graph."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.encoders.contract import Encoder, EncoderModule, Memory
from mtlscale.encoders.graph._graphs import GraphStages, graph_layout


class MPNN(Encoder):
    """Message passing along edges: m_v = Σ_u A_{e(u,v)} h_u, h_v ← GRU(h_v, m_v), with a matrix for each kind of edge.

    The features of a graph are those of Gilmer et al., equation 4: Σ_v σ(i(h_v, h_v⁰)) ⊙ j(h_v), with i and j linear,
    then one layer with ReLU. The paper's edge network gives such a matrix for each kind of edge where edges have no
    distance. Its rounds share their weights; here each has its own and is a stage, as are the vectors of the nodes and
    the reading of the graph.
    """

    name: ClassVar[str] = "mpnn"
    source: ClassVar[str] = "Gilmer et al., ICML 2017; matrices of kinds of edges: Li et al., ICLR 2016"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    batchable: ClassVar[bool] = True

    width: int = knob(64, low=1, search=(32, 64, 128), help="size of a node's vector, and of the features")
    rounds: int = knob(3, low=1, help="how often nodes send messages")

    @property
    def stage_count(self) -> int:
        return 2 + self.rounds

    def build(self, suite: TaskSuite) -> EncoderModule:
        layout = graph_layout(self.name, suite)
        if not layout.edge_codes:
            raise UserError(f"mpnn reads edges, the graphs of {suite.name} have positions alone; choose schnet")
        return MPNNModule(layout, self.rounds, self.width)


class MPNNModule(GraphStages):
    """Network from rows of graphs [B, columns] to [B, width]."""

    vectorised = True

    def __init__(self, layout: GraphLayout, rounds: int, width: int) -> None:
        kinds = layout.edge_codes - 1
        super().__init__(layout, [MessageRound(kinds, width) for _ in range(rounds)], Readout(width), width)

    def look(self, inputs: Tensor) -> Memory:
        edges = self.layout.read_edges(inputs).unsqueeze(-2)
        kinds = torch.arange(1, self.layout.edge_codes, device=inputs.device).unsqueeze(-1)
        there = self.layout.read_nodes(inputs)[..., :1] > 0
        return Memory(edges=(edges == kinds).flatten(-2).to(inputs.dtype), nodes=there.to(inputs.dtype))


class MessageRound(nn.Module):
    """One message from every node to its neighbours, and their update: [B, nodes, width] -> the same shape."""

    def __init__(self, kinds: int, width: int) -> None:
        super().__init__()
        self.kinds, self.width = kinds, width
        self.message = nn.Linear(width, kinds * width)
        self.of_message, self.of_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def forward(self, states: Tensor, memory: Memory) -> Tensor:
        """Return the nodes' new states.

        Args:
            states: [B, nodes, width].
            memory: `edges` [B, nodes, kinds * nodes], 1 where an edge of this kind comes from this node.
        """
        sent = self.message(states).unflatten(-1, (self.kinds, self.width)).transpose(-3, -2).flatten(-3, -2)
        messages = memory["edges"] @ sent

        reset, update, candidate = self.of_message(messages).chunk(3, -1)
        reset_of_state, update_of_state, candidate_of_state = self.of_state(states).chunk(3, -1)
        gate = (update + update_of_state).sigmoid()
        new = (candidate + (reset + reset_of_state).sigmoid() * candidate_of_state).tanh()
        updated: Tensor = (1.0 - gate) * new + gate * states
        return updated


class Readout(nn.Module):
    """The features [B, width] of whole graphs, from the nodes' states [B, nodes, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.layer = nn.Linear(width, width)

    def forward(self, states: Tensor, memory: Memory) -> Tensor:
        gates = self.gate(torch.cat([states, memory["first"]], -1)).sigmoid()
        total = (gates * self.value(states) * memory["nodes"]).sum(-2)
        features: Tensor = self.layer(total).relu()
        return features
