"""Graphs as rows of one width, so that they are stored, batched and predicted like the columns of a table.

A row has the codes of each node, one node behind the other, then its edges, then the positions of the nodes. Edges are
a matrix, with the code of the edge from each node to each other, or a list of (node, node, code) with nodes counted
from 1: a matrix of a large molecule would be nearly empty. Nodes and edges that a graph does not have are zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

KEY = "graph"  # of a suite's extras


@dataclass(frozen=True)
class GraphLayout:
    """The meaning of the columns of a row.

    Attributes:
        nodes: The most nodes of a graph.
        node_codes: How many codes each attribute of a node has. Code 0 of the first is a node that is not there.
        edge_codes: How many codes an edge has, with 0 for no edge; 0: rows have no edges.
        dimensions: Coordinates of a node's position; 0: rows have no positions.
        edges: The most edges of a graph, which are a list and lead both ways; 0: they are a matrix.
    """

    nodes: int
    node_codes: tuple[int, ...]
    edge_codes: int = 0
    dimensions: int = 0
    edges: int = 0

    @classmethod
    def of(cls, extras: Mapping[str, Any]) -> GraphLayout | None:
        """Return the layout that a suite's extras describe; None if its inputs are no graphs."""
        if KEY not in extras:
            return None
        return cls(**{**extras[KEY], "node_codes": tuple(extras[KEY]["node_codes"])})

    def as_json(self) -> dict[str, Any]:
        """Return the layout as the value of `KEY` in a suite's extras."""
        described = asdict(self) | {"node_codes": list(self.node_codes)}
        if not self.edges:
            del described["edges"]
        return described

    @property
    def categories(self) -> tuple[int, ...]:
        """How many codes each column has, 0 for numbers, as in `TaskSuite.categories`."""
        edges = (self.edge_codes,) * self.nodes**2 if self.edge_codes else ()
        if self.edges:
            edges = (self.nodes + 1, self.nodes + 1, self.edge_codes) * self.edges
        return (*self.node_codes * self.nodes, *edges, *(0,) * (self.nodes * self.dimensions))

    def row(
        self, nodes: np.ndarray, edges: np.ndarray | None = None, positions: np.ndarray | None = None
    ) -> np.ndarray:
        """Return one graph's row [columns], float32.

        Args:
            nodes: Codes [n, attributes].
            edges: Codes [n, n], or a list [m, 3] of (node, node, code), with nodes from 1.
            positions: Coordinates [n, dimensions].
        """
        missing = self.nodes - len(nodes)
        parts = [np.pad(nodes, ((0, missing), (0, 0)))]
        if edges is not None:
            parts.append(np.pad(edges, ((0, self.edges - len(edges)), (0, 0)) if self.edges else (0, missing)))
        if positions is not None:
            parts.append(np.pad(positions, ((0, missing), (0, 0))))
        return np.concatenate([part.astype(np.float32).ravel() for part in parts])

    def read_nodes(self, rows: Tensor) -> Tensor:
        """Return the codes [..., nodes, attributes] of rows [..., columns]."""
        count = len(self.node_codes)
        codes: Tensor = rows[..., : self.nodes * count].unflatten(-1, (self.nodes, count)).long()
        return codes

    def read_edges(self, rows: Tensor) -> Tensor:
        """Return the codes [..., nodes, nodes] of the edges."""
        start = self.nodes * len(self.node_codes)
        codes: Tensor = rows[..., start : start + self.nodes**2].unflatten(-1, (self.nodes, self.nodes)).long()
        return codes

    def read_edge_list(self, rows: Tensor) -> Tensor:
        """Return the edges [..., edges, 3] of a list: two nodes from 1, and the code; 0 where there is none."""
        start = self.nodes * len(self.node_codes)
        edges: Tensor = rows[..., start : start + 3 * self.edges].unflatten(-1, (self.edges, 3)).long()
        return edges

    def read_positions(self, rows: Tensor) -> Tensor:
        """Return the positions [..., nodes, dimensions]."""
        positions: Tensor = rows[..., -self.nodes * self.dimensions :].unflatten(-1, (self.nodes, self.dimensions))
        return positions
