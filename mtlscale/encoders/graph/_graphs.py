"""The common parts of encoders of graphs: the layout of their inputs, and the vectors of nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.encoders.contract import Memory, StagedModule


def graph_layout(name: str, suite: TaskSuite) -> GraphLayout:
    """Return the layout of a suite's graphs.

    Raises:
        UserError: If its inputs are no graphs.
    """
    layout = GraphLayout.of(suite.extras)
    if layout is None:
        raise UserError(f"{name} reads graphs, {suite.name} has {suite.input_kind} inputs; choose another encoder")
    return layout


class NodeVectors(nn.Module):
    """Layer from the codes of nodes [..., nodes, attributes] to the sum of their attributes' vectors.

    It is a product of one-hot columns: codes are few, and the gradient is no sparse one.
    """

    def __init__(self, counts: Sequence[int], size: int) -> None:
        super().__init__()
        self.counts = tuple(counts)
        bound = 1.0 / math.sqrt(len(self.counts))
        self.vectors = nn.Parameter(torch.empty(sum(counts), size).uniform_(-bound, bound))

    def forward(self, codes: Tensor) -> Tensor:
        columns = [
            codes[..., column, None] == torch.arange(count, device=codes.device)
            for column, count in enumerate(self.counts)
        ]
        return torch.cat(columns, -1).to(self.vectors.dtype) @ self.vectors


class GraphStages(StagedModule):
    """Base of encoders of graphs: the vectors of nodes, rounds of messages, and the reading of the whole graph.

    Each is a stage. Between stages features are [B, nodes, width]; after the last they are [B, features].
    """

    def __init__(self, layout: GraphLayout, rounds: Sequence[nn.Module], readout: nn.Module, width: int) -> None:
        super().__init__()
        self.layout = layout
        self.stages = nn.ModuleList([NodeVectors(layout.node_codes, width), *rounds, readout])
        self.widths, self.features = (width,) * len(self.stages), width

    def look(self, inputs: Tensor) -> Memory:
        """Return what stages read of the graphs besides their features, `nodes` [B, nodes, 1] among it.

        `nodes` is 1 for nodes that are there and 0 for others.
        """
        raise NotImplementedError

    @property
    def embedding_size(self) -> int:
        return self.features

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.stages[0](self.layout.read_nodes(inputs))
        return embedded

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        memory = self.look(inputs)
        memory["first"] = embedded
        for index in range(1, len(self.stages)):
            embedded = self.stage(index, embedded, memory)
        return embedded

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        if index == 0:
            memory.update(self.look(features))
            memory["first"] = self.embed(features)
            return memory["first"]  # type: ignore[no-any-return]
        result: Tensor = self.stages[index](features, memory)
        return result
