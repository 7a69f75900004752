"""The base of searches for cells: the settings of the search, and the training of the genotype it selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.architectures.phases import OptimizerSpec, Phase, PhaseOutput, Source, Turn
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS, OneLevelSearch
from mtlscale.balancing import Balancer
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule
from mtlscale.nas.cells import SPACE, Genotype
from mtlscale.nas.search.network import CellNetwork, of_cells
from mtlscale.nas.search.sources import ArchitectureLosses, ChoiceSource
from mtlscale.nas.search.supernet import CellSupernet, Size


class CellSearch(OneLevelSearch):
    """Base class of the methods that search for cells.

    In each step the architecture parameters learn on one half of the training data, then the weights on the other half.
    The selected genotype is trained from scratch on all training data, by the run's settings, in the encoder
    `darts_cells`, of which only the genotype is replaced.
    """

    needs_stages: ClassVar[bool] = True

    search_lr: float | None = knob(0.025, low=0, open_low=True, help="of the weights in the search, by SGD")
    search_last_lr: float = knob(0.001, low=0, help="where the cosine schedule of that ends")
    search_weight_decay: float = knob(3e-4, low=0, help="of the weights in the search")
    search_batch: int | None = knob(None, low=1, help="batch size of the search; none: the run's")
    search_cells: int = knob(8, low=1, help="cells of the search network")
    search_channels: int = knob(16, low=1, help="width of its first cell")
    arch_lr: float = knob(3e-4, low=0, open_low=True, help="of the Adam that chooses")
    arch_weight_decay: float = knob(1e-3, low=0, help="of that Adam")
    order: str = knob("first", choices=("first", "second"), help="whether the choice looks a step of the weights ahead")
    auxiliary: float = knob(0.4, low=0.0, help="factor of the auxiliary head's loss in the training; 0: none")

    def phases(self) -> tuple[Phase, ...]:
        return self.and_retrain(self.cell_phase())

    def cell_phase(self, name: str = "search", parts: int = 1, warmup: float = 0.0) -> Phase:
        """Return a search phase.

        Args:
            parts: Number of search phases that divide the epochs of the search among them.
            warmup: Share of the phase's epochs, from the first on, in which only the weights learn.
        """
        training: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "clip": 5.0, "schedule": "cosine"}
        training |= {"lr": self.search_lr, "weight_decay": self.search_weight_decay}
        choice_training = training | {"optimizer": "adam", "clip": None, "schedule": "constant"}
        choice_training |= {"lr": self.arch_lr, "weight_decay": self.arch_weight_decay}

        choice = Turn(
            name=CHOICE,
            share="second",
            groups=(CHOICE,),
            source=CHOICE,
            balancer=self.upper_balancer(),
            objective=False,
            optimizer=OptimizerSpec(training=choice_training, betas=(0.5, 0.999)),
            warmup=warmup,
        )

        weights = Turn(
            name=WEIGHTS,
            share="first",
            groups=(WEIGHTS,),
            source=WEIGHTS if self.looks_elsewhere() else "tasks",
            balancer=Equal(reduction="mean"),
            objective=False,
            optimizer=OptimizerSpec(training=training, last_lr=min(self.search_last_lr, self.search_lr or 0.0)),
        )

        return self.search_phase((choice, weights), name=name, parts=parts)

    def upper_balancer(self) -> Balancer | None:
        """Return the balancer of the architecture parameters' losses; None: the run's."""
        return Equal(reduction="mean")

    def looks_elsewhere(self) -> bool:
        """Return whether out-of-distribution images take part."""
        return False

    def architecture_losses(self, model: CellSupernet) -> ArchitectureLosses:
        """Return the losses that the architecture parameters learn from."""
        return ArchitectureLosses(second=self.order == "second")

    def check_suite(self, suite: TaskSuite) -> None:
        """Raise `UserError` if the data lack what the search needs."""

    def size(self) -> Size:
        return Size(cells=self.search_cells, channels=self.search_channels)

    def sources(self, model: CellSupernet) -> Mapping[str, Source]:
        return {CHOICE: ChoiceSource(model, self.architecture_losses(model))}

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        of_cells(encoder(), self.name)
        self.check_suite(suite)
        return CellSupernet(suite, self.size(), dropout, self.name, self.sources)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if found.get("space") != SPACE:
            raise UserError(f"{self.name}: found is of another space of cells; drop it to search anew")
        network = of_cells(encoder(), self.name).of(Genotype.of(found["genotype"]))
        return CellNetwork(suite, network, dropout, self.auxiliary, self.name)
