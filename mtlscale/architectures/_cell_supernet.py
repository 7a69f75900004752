"""The network that cells are searched in: every operation on every edge, mixed by probabilities that are learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule, linear_head
from mtlscale.architectures._cell_network import only_task
from mtlscale.architectures._mixed_cell import MixedCell
from mtlscale.architectures._phases import Found, Source
from mtlscale.architectures._search import CHOICE, WEIGHTS
from mtlscale.architectures._step_draws import StepDraws, Table
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import (
    EDGES,
    NODES,
    OPERATIONS,
    SPACE,
    STEM,
    BatchNorm2d,
    Genotype,
    add_pixels,
    discretised,
    expected,
    normalised,
    places,
    search_costs,
)
from mtlscale.spec import TaskSuite

ALL = [[list(OPERATIONS)] * len(EDGES)] * 2  # operations in question, of the normal and the reduction cell's edges
_SPREAD = 1e-3  # of the first logits
_DECAY = 0.2  # of P-DARTS' dropout of identities, per epoch


@dataclass(frozen=True, kw_only=True)
class Size:
    """A search network. kept: operations in question [2][14]; part, edges: see `MixedCell`; skip_dropout: at first."""

    cells: int
    channels: int
    kept: Sequence[Sequence[Sequence[str]]] = tuple(ALL)
    part: int = 1
    edges: bool = False
    skip_dropout: float = 0.0


class CellSupernet(MultiTaskModule):
    """A stem, mixed cells and a linear head; logits [14, 8] of the normal and of the reduction cells' edges."""

    mean: Tensor
    std: Tensor
    out: Tensor  # [2, 14, 8] -inf where an operation is out of the question, 0 else

    def __init__(
        self,
        suite: TaskSuite,
        size: Size,
        dropout: float,
        name: str,
        sources: Callable[[CellSupernet], Mapping[str, Source]],
        found: Callable[[CellSupernet], Found] | None = None,
    ) -> None:
        """sources: of the network's turns; found: what it hands over, default the genotype."""
        super().__init__()
        task, image = only_task(suite, name), suite.input_shape
        self.task, self.size, self._sources, self._found = task.name, size, sources, found
        add_pixels(self, suite)
        stem = STEM * size.channels
        self.stem = nn.Sequential(nn.Conv2d(image[0], stem, 3, padding=1, bias=False), BatchNorm2d(stem))
        rows = places(size.cells, size.channels, (image[1], image[2]))
        self.cells = nn.ModuleList(MixedCell(p, size.kept[int(p.reduction)], size.part) for p in rows)
        self.head = linear_head(NODES * rows[-1].width, task, dropout)
        shape = (len(EDGES), len(OPERATIONS))
        self.logits = nn.ParameterList(nn.Parameter(_SPREAD * torch.randn(shape)) for _ in range(2))
        edges = 2 if size.edges else 0
        self.edge_logits = nn.ParameterList(nn.Parameter(_SPREAD * torch.randn(len(EDGES))) for _ in range(edges))
        known = [[[0.0 if o in kept else -math.inf for o in OPERATIONS] for kept in cell] for cell in size.kept]
        self.register_buffer("out", torch.tensor(known), persistent=False)
        self.draws = StepDraws(int(torch.randint(1 << 31, (), device="cpu")))
        self.skip_rate = size.skip_dropout
        self.image = (image[1], image[2])
        self.costs = search_costs(size.cells, size.channels, (image[1], image[2]))

    # -- what is chosen --------------------------------------------------------------------------------------------

    def probabilities(self) -> Tensor:
        """[2, 14, 8] of the operations, with a gradient."""
        return (torch.stack(list(self.logits)) + self.out).softmax(-1)

    def edge_weights(self) -> Tensor | None:
        """[2, 14]: of the edges into each node, which sum to one; None where they have none."""
        if not self.edge_logits:
            return None
        table = torch.stack(list(self.edge_logits))
        return torch.cat([part.softmax(-1) for part in table.split([node + 2 for node in range(NODES)], 1)], 1)

    @torch.no_grad()
    def strengths(self) -> Tensor:
        """[2, 14, 8] by which edges and operations are chosen."""
        edges, found = self.edge_weights(), self.probabilities()
        return found if edges is None else found * edges.unsqueeze(-1)

    def genotype(self) -> Genotype:
        return discretised(*self.strengths())

    # -- passing through -------------------------------------------------------------------------------------------

    def pixels(self, inputs: Tensor) -> Tensor:
        """What the network reads of images."""
        return normalised(inputs, self.mean, self.std)

    def forward(self, batch: Batch) -> Outputs:
        if not batch.tasks:
            return Outputs({})
        thinned = None
        if self.training and self.skip_rate > 0:
            self.draws.begin(batch)
            asked = sum((NODES + 1) * cell.mixed for cell in self.cells if isinstance(cell, MixedCell))
            thinned = partial(self._thinned, Table(self.draws(asked, batch.inputs)))
        newer = self.stem(self.pixels(batch.inputs))
        older, weights, edges = newer, self.probabilities().unbind(), self.edge_weights()
        of_edges = [None, None] if edges is None else edges.unbind()
        for cell in self.cells:
            kind = int(cell.place.reduction)  # type: ignore[union-attr,arg-type]
            older, newer = newer, cell(older, newer, weights[kind], of_edges[kind], thinned)
        return Outputs({self.task: self.head(newer.mean((2, 3)))})

    def _thinned(self, table: Table, maps: Tensor) -> Tensor:
        """Dropout of an identity's channels; one for all edges out of a state."""
        kept = table(maps.shape[1], maps).T[:, :, None, None] >= self.skip_rate
        return maps * kept.to(maps.dtype) / (1.0 - self.skip_rate)

    @contextmanager
    def statistics_kept(self) -> Iterator[None]:
        """Normalisations by the batch that remember nothing of it."""
        norms = [module for module in self.modules() if isinstance(module, BatchNorm2d)]
        rates = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, rate in zip(norms, rates, strict=True):
                norm.momentum = rate

    # -- the contract ----------------------------------------------------------------------------------------------

    def choices(self) -> list[nn.Parameter]:
        return [*self.logits, *self.edge_logits]

    def weights(self) -> list[nn.Parameter]:
        chosen = {id(p) for p in self.choices()}
        return [p for p in self.parameters() if id(p) not in chosen]

    def shared_parameters(self) -> list[nn.Parameter]:
        own = {id(p) for p in self.head.parameters()}
        return [p for p in self.parameters() if id(p) not in own]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.head.parameters())

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {WEIGHTS: self.weights(), CHOICE: self.choices()}

    def sources(self) -> Mapping[str, Source]:
        return self._sources(self)

    def hand_over(self) -> Found:
        return self._found(self) if self._found is not None else {"genotype": self.genotype().text(), "space": SPACE}

    def on_epoch_begin(self, epoch: int) -> None:
        self.skip_rate = self.size.skip_dropout * math.exp(-_DECAY * (epoch - 1))

    def after_step(self, lr: float, sum: Any) -> None:
        self.draws.next()

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """The genotype of the moment as 32 numbers, what the search network is expected to cost, and the mean entropy
        of the edges' choices."""
        weights = self.probabilities().to(torch.float64).cpu()
        entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1).mean()
        return {
            "genotype": self.genotype().numbers(),
            "expected_parameters": float(expected(self.costs["parameters"], weights)),
            "expected_flops": float(expected(self.costs["flops"], weights)),
            "entropy": float(entropy),
        }

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.draws.steps)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws.steps = int(state)
