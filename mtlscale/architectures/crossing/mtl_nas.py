"""MTL-NAS: parallel networks whose connections are searched, then trained with the connections that remain."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import MultiTaskModule, map_staged
from mtlscale.architectures.crossing._edges import Edge, JoinedModule, SearchedModule
from mtlscale.architectures.phases import Phase, PhaseOutput
from mtlscale.architectures.structure_search import Search
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule, MapStagedModule


class MTLNAS(Search):
    """MTL-NAS: an encoder per task, and a search for the edges between them.

    An edge goes from any stage to any no earlier one of another task. In phase `search` every edge has a weight σ(a), a
    = 0 at first; each step updates the weights' logits, then the networks, on batches of their own from the whole
    training data. An entropy term pushes weights to 0 or 1. Phase `retrain` keeps the edges with weight > 1/2, at
    weight 1, and trains everything from scratch.
    """

    name: ClassVar[str] = "mtl_nas"
    source: ClassVar[str] = "Gao et al., CVPR 2020"
    needs_stages: ClassVar[bool] = True

    own: float = knob(0.9, low=0.0, high=1.0, help="first weight of a task's own features")
    entropy: float = knob(1.0, low=0.0, help="what the entropy term's weight grows by with each epoch of the search")

    def phases(self) -> tuple[Phase, ...]:
        turns = (self.choice_turn("whole"), self.weights_turn(Equal(reduction="mean"), "whole"))
        return self.and_retrain(self.search_phase(turns))

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return SearchedModule(suite, self._encoders(suite, encoder), self.own, self.entropy, dropout)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        edges = [Edge(*ends) for *ends, _ in found["edges"]]
        weights = [weight for *_, weight in found["edges"]]
        return JoinedModule(suite, self._encoders(suite, encoder), edges, self.own, dropout, weights)

    def _encoders(self, suite: TaskSuite, encoder: Callable[[], EncoderModule]) -> list[MapStagedModule]:
        if len(suite.tasks) < 2:
            raise UserError(f"{self.name} searches edges between tasks, {suite.name} has one; use stl")
        return [map_staged(encoder(), self.name) for _ in suite.tasks]
