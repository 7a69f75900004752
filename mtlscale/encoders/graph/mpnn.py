"""MPNN: nodes send each other messages along the edges of a graph."""

from __future__ import annotations

from contextlib import suppress
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
        is_node = self.layout.read_nodes(inputs)[..., :1] > 0
        if self.layout.edges:
            return self._look_at_list(inputs, is_node)
        edges = self.layout.read_edges(inputs).unsqueeze(-2)
        kinds = torch.arange(1, self.layout.edge_codes, device=inputs.device).unsqueeze(-1)
        return Memory(edges=(edges == kinds).flatten(-2).to(inputs.dtype), nodes=is_node.to(inputs.dtype))

    def _look_at_list(self, inputs: Tensor, there: Tensor) -> Memory:
        """Return where the messages of each edge of a list come from and go to."""
        edges = self.layout.read_edge_list(inputs)
        edges = torch.cat([edges, edges[..., [1, 0, 2]]], -2)
        first, second, kind = edges.unbind(-1)
        is_edge = kind > 0
        memory = Memory(
            senders=torch.where(is_edge, (first - 1) * (self.layout.edge_codes - 1) + kind - 1, 0),
            receivers=torch.where(is_edge, second - 1, self.layout.nodes),  # beyond the last node: none
            nodes=there.to(inputs.dtype),
        )
        if not torch.compiler.is_compiling():
            # Most graphs are much smaller than the largest. Trials with other samples each (vmap) cannot be cut alike.
            with suppress(RuntimeError):
                memory["kept_nodes"] = there.flatten().nonzero().squeeze(-1)
                memory["kept_edges"] = is_edge.flatten().nonzero().squeeze(-1)
        return memory


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
            memory: `edges` [B, nodes, kinds * nodes], 1 where an edge of this kind comes from this node; or, of edges
                in a list, `senders` and `receivers` [B, 2 edges] and, if known, the `kept_nodes` and `kept_edges`
                that are there.
        """
        if "kept_edges" in memory:
            return self._of_kept(states, memory)
        if "edges" in memory:
            sent = self.message(states).unflatten(-1, (self.kinds, self.width)).transpose(-3, -2).flatten(-3, -2)
            return self._updated(states, memory["edges"] @ sent)

        sent = self.message(states).unflatten(-1, (self.kinds, self.width)).flatten(-3, -2)
        senders, receivers = (memory[name].unsqueeze(-1).expand(*memory[name].shape, self.width)
                              for name in ("senders", "receivers"))  # fmt: skip
        totals = sent.new_zeros(*states.shape[:-2], states.shape[-2] + 1, self.width)
        messages = totals.scatter_add(-2, receivers, sent.gather(-2, senders))
        return self._updated(states, messages[..., :-1, :])

    def _of_kept(self, states: Tensor, memory: Memory) -> Tensor:
        """Return the new states of the nodes that are there, one behind the other in between."""
        count, kept_nodes, kept_edges = states.shape[-2], memory["kept_nodes"], memory["kept_edges"]
        place = torch.zeros(states.shape[:-1].numel(), dtype=torch.long, device=states.device)
        place[kept_nodes] = torch.arange(len(kept_nodes), device=states.device)
        graph = kept_edges // memory["senders"].shape[-1]
        senders, receivers = (memory[name].flatten()[kept_edges] for name in ("senders", "receivers"))
        sender = place[graph * count + senders // self.kinds] * self.kinds + senders % self.kinds

        kept_states = states.flatten(0, 1).index_select(0, kept_nodes)
        sent = self.message(kept_states).unflatten(-1, (self.kinds, self.width)).flatten(0, 1)
        messages = sent.new_zeros(len(kept_states), self.width)
        messages = messages.index_add(0, place[graph * count + receivers], sent.index_select(0, sender))
        updated = self._updated(kept_states, messages)
        return updated.new_zeros(len(place), self.width).index_add(0, kept_nodes, updated).view_as(states)

    def _updated(self, states: Tensor, messages: Tensor) -> Tensor:
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
        if "kept_nodes" in memory:
            kept_nodes, count = memory["kept_nodes"], states.shape[-2]
            kept, first = (part.flatten(0, 1).index_select(0, kept_nodes) for part in (states, memory["first"]))
            read = self.gate(torch.cat([kept, first], -1)).sigmoid() * self.value(kept)
            total = read.new_zeros(len(states), read.shape[-1]).index_add(0, kept_nodes // count, read)
        else:
            gates = self.gate(torch.cat([states, memory["first"]], -1)).sigmoid()
            total = (gates * self.value(states) * memory["nodes"]).sum(-2)
        features: Tensor = self.layer(total).relu()
        return features
