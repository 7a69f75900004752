"""The network in which cells are searched: every operation on every edge, mixed by learned probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import MultiTaskModule, linear_head
from mtlscale.architectures.hooks import EpochView
from mtlscale.architectures.phases import PhaseOutput, Source
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import BatchNorm2d, add_pixels, normalised
from mtlscale.nas.cells import (
    EDGES,
    NODES,
    OPERATIONS,
    SPACE,
    STEM,
    Genotype,
    discretised,
    expected,
    places,
    search_costs,
)
from mtlscale.nas.search.mixed_cell import MixedCell
from mtlscale.nas.search.network import only_task
from mtlscale.nas.search.step_draws import DrawnNumbers, StepDraws

# All operations as candidates, on the edges of the normal and the reduction cell.
ALL_OPERATIONS = [[list(OPERATIONS)] * len(EDGES)] * 2
_SPREAD = 1e-3  # standard deviation of the initial logits
_DECAY = 0.2  # decay rate per epoch of P-DARTS' dropout of identities


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a search network.

    Attributes:
        cells: Number of cells.
        channels: Width of the first cell.
        kept: Candidate operations [2][14].
        part: One channel in so many goes through the operations, see `MixedCell`.
        edges: Whether edges have weights of their own, see `MixedCell`.
        skip_dropout: Initial dropout rate of identities.
    """

    cells: int
    channels: int
    kept: Sequence[Sequence[Sequence[str]]] = tuple(ALL_OPERATIONS)
    part: int = 1
    edges: bool = False
    skip_dropout: float = 0.0


class CellSupernet(MultiTaskModule):
    """The search network: a stem, mixed cells and a linear head.

    Its logits [14, 8] belong to the edges of the normal cells and of the reduction cells.
    """

    mean: Tensor
    std: Tensor
    out: Tensor  # [2, 14, 8]: -inf for an operation that is no candidate, else 0

    def __init__(
        self,
        suite: TaskSuite,
        size: Size,
        dropout: float,
        name: str,
        sources: Callable[[CellSupernet], Mapping[str, Source]],
        on_end: Callable[[CellSupernet], PhaseOutput] | None = None,
    ) -> None:
        """Build the search network.

        Args:
            suite: A suite with one task of image classification.
            size: Cells, width and candidate operations.
            dropout: Rate of the dropout before the head.
            name: Name of the method, for errors.
            sources: Returns the sources of the network's turns.
            on_end: Returns what the network hands over; default: the genotype.
        """
        super().__init__()
        task, image = only_task(suite, name), suite.input_shape
        self.task, self.size, self._sources, self._found = task.name, size, sources, on_end

        add_pixels(self, suite)
        stem = STEM * size.channels
        self.stem = nn.Sequential(nn.Conv2d(image[0], stem, 3, padding=1, bias=False), BatchNorm2d(stem))

        cell_places = places(size.cells, size.channels, (image[1], image[2]))
        self.cells = nn.ModuleList(MixedCell(p, size.kept[int(p.reduction)], size.part) for p in cell_places)
        self.head = linear_head(NODES * cell_places[-1].width, task, dropout)

        shape = (len(EDGES), len(OPERATIONS))
        self.logits = nn.ParameterList(nn.Parameter(_SPREAD * torch.randn(shape)) for _ in range(2))
        edge_tables = 2 if size.edges else 0
        self.edge_logits = nn.ParameterList(nn.Parameter(_SPREAD * torch.randn(len(EDGES))) for _ in range(edge_tables))

        log_masks = [
            [[0.0 if o in edge_operations else -math.inf for o in OPERATIONS] for edge_operations in cell]
            for cell in size.kept
        ]
        self.register_buffer("out", torch.tensor(log_masks), persistent=False)

        self.draws = StepDraws(int(torch.randint(1 << 31, (), device="cpu")))
        self.skip_rate = size.skip_dropout
        self.image = (image[1], image[2])
        self.costs = search_costs(size.cells, size.channels, (image[1], image[2]))

    # -- architecture parameters -----------------------------------------------------------------------------------

    def probabilities(self) -> Tensor:
        """Return the probabilities of the operations, [2, 14, 8], with a gradient."""
        return (torch.stack(list(self.logits)) + self.out).softmax(-1)

    def edge_weights(self) -> Tensor | None:
        """Return the weights [2, 14] of edges, which sum to one into each node; None if edges have none."""
        if not self.edge_logits:
            return None
        table = torch.stack(list(self.edge_logits))
        return torch.cat([part.softmax(-1) for part in table.split([node + 2 for node in range(NODES)], 1)], 1)

    @torch.no_grad()
    def strengths(self) -> Tensor:
        """Return the strengths [2, 14, 8] by which edges and operations are chosen."""
        edge_weights, probabilities = self.edge_weights(), self.probabilities()
        return probabilities if edge_weights is None else probabilities * edge_weights.unsqueeze(-1)

    def genotype(self) -> Genotype:
        return discretised(*self.strengths())

    # -- forward pass ----------------------------------------------------------------------------------------------

    def pixels(self, inputs: Tensor) -> Tensor:
        """Return images as the network reads them: normalised."""
        return normalised(inputs, self.mean, self.std)

    def forward(self, batch: Batch) -> Outputs:
        if not batch.tasks:
            return Outputs({})

        thinned = None
        if self.training and self.skip_rate > 0:
            self.draws.begin(batch)
            draw_count = sum((NODES + 1) * cell.mixed for cell in self.cells if isinstance(cell, MixedCell))
            thinned = partial(self._thinned, DrawnNumbers(self.draws(draw_count, batch.inputs)))

        newer = self.stem(self.pixels(batch.inputs))
        older, weights, edge_weights = newer, self.probabilities().unbind(), self.edge_weights()
        weights_by_kind = [None, None] if edge_weights is None else edge_weights.unbind()

        for cell in self.cells:
            kind = int(cell.place.reduction)  # type: ignore[union-attr,arg-type]
            older, newer = newer, cell(older, newer, weights[kind], weights_by_kind[kind], thinned)

        return Outputs({self.task: self.head(newer.mean((2, 3)))})

    def _thinned(self, table: DrawnNumbers, maps: Tensor) -> Tensor:
        """Drop channels of identities; all edges out of a state share one draw."""
        keep_mask = table(maps.shape[1], maps).T[:, :, None, None] >= self.skip_rate
        return maps * keep_mask.to(maps.dtype) / (1.0 - self.skip_rate)

    @contextmanager
    def statistics_kept(self) -> Iterator[None]:
        """Normalise by the batch without changing the running statistics."""
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
        choice_ids = {id(p) for p in self.choices()}
        return [p for p in self.parameters() if id(p) not in choice_ids]

    def shared_parameters(self) -> list[nn.Parameter]:
        head_ids = {id(p) for p in self.head.parameters()}
        return [p for p in self.parameters() if id(p) not in head_ids]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.head.parameters())

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {WEIGHTS: self.weights(), CHOICE: self.choices()}

    def sources(self) -> Mapping[str, Source]:
        return self._sources(self)

    def phase_output(self) -> PhaseOutput:
        return self._found(self) if self._found is not None else {"genotype": self.genotype().text(), "space": SPACE}

    def on_epoch_begin(self, epoch: EpochView) -> None:
        self.skip_rate = self.size.skip_dropout * math.exp(-_DECAY * (epoch.number - 1))

    def after_step(self, lr: float, sum: Any) -> None:
        self.draws.next()

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """Return the current genotype as 32 numbers, the expected costs, and the mean entropy of the edges' choices."""
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
