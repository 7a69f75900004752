"""Progressive differentiable architecture search (P-DARTS)."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule
from mtlscale.nas.cells import EDGES, NODES, OPERATIONS, SPACE, Genotype, discretised
from mtlscale.nas.search.network import of_cells
from mtlscale.nas.search.settings import CellSearch
from mtlscale.nas.search.supernet import CellSupernet, Size
from mtlscale.solvers import first_largest

ROUNDS = ("search 1", "search 2", "search 3")


class PDARTS(CellSearch):
    """P-DARTS: three searches, each deeper than the one before and with fewer operations on every edge.

    Identities drop channels at a rate that decays in each search; at the end a normal cell keeps `most_skips` of them.
    The epochs of the search are divided among the three; in the first share of each only the weights learn.
    """

    name: ClassVar[str] = "pdarts"
    source: ClassVar[str] = "Chen et al., ICCV 2019"

    arch_lr: float = knob(6e-4, low=0, open_low=True, help="of the Adam that chooses")
    search_cells: int = knob(5, low=1, help="cells of the first search network")
    deeper: int = knob(6, low=0, help="cells that each search has more than the one before")
    operations: list[int] = knob([8, 5, 3], low=2, high=8, help="operations on every edge in each search")
    skip_dropout: list[float] = knob([0.0, 0.4, 0.7], low=0.0, high=1.0, open_high=True, help="of identities, at first")
    most_skips: int = knob(2, low=0, high=8, help="identities that a normal cell keeps")
    rest: float = knob(0.4, low=0.0, high=1.0, open_high=True, help="share of the epochs in which only weights learn")

    def __post_init__(self) -> None:
        super().__post_init__()
        operations_fall = (
            len(self.operations) == 3
            and self.operations[0] == 8
            and sorted(self.operations)[::-1] == [*self.operations]
        )
        if not operations_fall or len(self.skip_dropout) != 3:
            raise UserError("pdarts: operations are three numbers that fall from 8, skip_dropout three rates")

    def phases(self) -> tuple[Phase, ...]:
        return self.and_retrain(*(self.cell_phase(name, parts=len(ROUNDS), warmup=self.rest) for name in ROUNDS))

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        of_cells(encoder(), self.name)
        return self._round(0, [[list(OPERATIONS)] * len(EDGES)] * 2, suite, dropout)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if phase in ROUNDS:
            return self._round(ROUNDS.index(phase), found["kept"], suite, dropout)
        if "genotype" not in found:
            raise UserError("pdarts: found is the result of a round with another after it; name the last one's file")
        return super().build_next(phase, found, suite, encoder, dropout)

    def _round(self, number: int, kept: Any, suite: TaskSuite, dropout: float) -> MultiTaskModule:
        cells = self.search_cells + number * self.deeper
        size = Size(cells=cells, channels=self.search_channels, kept=kept, skip_dropout=self.skip_dropout[number])
        last = number == len(ROUNDS) - 1
        found = partial(_with_few_skips, self.most_skips) if last else partial(_fewer, self.operations[number + 1])
        return CellSupernet(suite, size, dropout, self.name, self.sources, found)


def _fewer(count: int, model: CellSupernet) -> PhaseOutput:
    """Return the `count` likeliest operations of every edge."""
    candidates = []
    for cell in model.strengths():
        cell_candidates = []
        for edge in cell.double():
            best = sorted(range(len(OPERATIONS)), key=lambda o: -float(edge[o]))[:count]
            cell_candidates.append([OPERATIONS[o] for o in sorted(best)])
        candidates.append(cell_candidates)
    return {"kept": candidates, "space": SPACE}


def _with_few_skips(most: int, model: CellSupernet) -> PhaseOutput:
    """Return the genotype with at most `most` identities in the normal cell, the least likely struck out."""
    strengths = model.strengths().clone()
    skip = OPERATIONS.index("skip")

    while True:
        genotype: Genotype = discretised(*strengths)
        skip_edges = [
            EDGES.index((s, node))
            for node in range(NODES)
            for operation, s in genotype.normal[node]
            if operation == "skip"
        ]
        if len(skip_edges) <= most:
            return {"genotype": genotype.text(), "space": SPACE}
        least = skip_edges[int(first_largest(-strengths[0, skip_edges, skip]))]
        strengths[0, least, skip] = torch.zeros(())
