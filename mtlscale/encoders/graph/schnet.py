"""SchNet: nodes in space send each other messages that depend on their distance."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.encoders.contract import Encoder, EncoderModule, Memory
from mtlscale.encoders.graph._graphs import GraphStages, graph_layout


class SchNet(Encoder):
    """Continuous filters: x_v ← x_v + V₂ s(V₁ Σ_u (U x_u) ⊙ W(‖r_u - r_v‖)), s the softplus less log 2.

    The filters W are two layers over Gaussians of the distance, cut off smoothly by a half cosine. The features of a
    graph are Σ_v s(R x_v); a linear head on them is a sum over atoms, as in the paper. They do not change if the graph
    is moved or turned. Each interaction is a stage.
    """

    name: ClassVar[str] = "schnet"
    source: ClassVar[str] = "Schütt et al., NeurIPS 2017; cut off as in SchNetPack (Schütt et al., JCTC 2019)"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    batchable: ClassVar[bool] = True

    width: int = knob(64, low=1, search=(32, 64, 128), help="size of an atom's vector, and of the features")
    rounds: int = knob(3, low=1, help="interactions")
    gaussians: int = knob(25, low=2, help="Gaussians over the distances from 0 to the cutoff")
    cutoff: float = knob(5.0, low=0.0, open_low=True, help="distance beyond which atoms send no message, in ångström")

    @property
    def stage_count(self) -> int:
        return 2 + self.rounds

    def build(self, suite: TaskSuite) -> EncoderModule:
        layout = graph_layout(self.name, suite)
        if not layout.dimensions:
            raise UserError(f"schnet reads positions, the graphs of {suite.name} have edges alone; choose mpnn")
        return SchNetModule(layout, self.rounds, self.width, self.gaussians, self.cutoff)


class SchNetModule(GraphStages):
    """Network from rows of graphs [B, columns] to [B, width]."""

    vectorised = True

    def __init__(self, layout: GraphLayout, rounds: int, width: int, gaussians: int, cutoff: float) -> None:
        interactions = [Interaction(width, gaussians) for _ in range(rounds)]
        super().__init__(layout, interactions, AtomSum(width), width)
        self.gaussians, self.cutoff = gaussians, cutoff

    def look(self, inputs: Tensor) -> Memory:
        positions = self.layout.read_positions(inputs)
        is_node = (self.layout.read_nodes(inputs)[..., :1] > 0).to(inputs.dtype)
        offsets = positions.unsqueeze(-2) - positions.unsqueeze(-3)
        distances = offsets.square().sum(-1, keepdim=True).sqrt()

        centres = torch.linspace(0.0, self.cutoff, self.gaussians, dtype=inputs.dtype, device=inputs.device)
        spacing = self.cutoff / (self.gaussians - 1)
        near = torch.where(distances < self.cutoff, 0.5 * ((distances * math.pi / self.cutoff).cos() + 1.0), 0.0)
        others = 1.0 - torch.eye(self.layout.nodes, dtype=inputs.dtype, device=inputs.device).unsqueeze(-1)
        weights = near * others * is_node.unsqueeze(-2) * is_node.unsqueeze(-3)
        gaussians = (-0.5 * ((distances - centres) / spacing).square()).exp()
        return Memory(gaussians=gaussians, weights=weights, nodes=is_node)


class Interaction(nn.Module):
    """One round of messages: [B, nodes, width] -> the same shape."""

    def __init__(self, width: int, gaussians: int) -> None:
        super().__init__()
        self.filter = nn.ModuleList([nn.Linear(gaussians, width), nn.Linear(width, width)])
        self.sent = nn.Linear(width, width, bias=False)
        self.received = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])

    def forward(self, states: Tensor, memory: Memory) -> Tensor:
        """Return the nodes' new states.

        Args:
            states: [B, nodes, width].
            memory: `gaussians` [B, nodes, nodes, gaussians] of the distances, and `weights` [B, nodes, nodes, 1].
        """
        first, second = self.filter
        filters = shifted_softplus(second(shifted_softplus(first(memory["gaussians"])))) * memory["weights"]
        messages = (filters * self.sent(states).unsqueeze(-3)).sum(-2)
        inner, outer = self.received
        result: Tensor = states + outer(shifted_softplus(inner(messages)))
        return result


class AtomSum(nn.Module):
    """The features [B, width] of whole graphs, from the nodes' states [B, nodes, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, states: Tensor, memory: Memory) -> Tensor:
        features: Tensor = (shifted_softplus(self.layer(states)) * memory["nodes"]).sum(-2)
        return features


def shifted_softplus(values: Tensor) -> Tensor:
    """Return ln(1 + exp(x)) - ln 2."""
    return functional.softplus(values) - math.log(2.0)
