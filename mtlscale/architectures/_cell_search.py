"""What searches for cells have in common: the settings of the search, and the training of what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.architectures._cell_network import CellNetwork, of_cells
from mtlscale.architectures._cell_sources import ChoiceSource, Wanted
from mtlscale.architectures._cell_supernet import CellSupernet, Size
from mtlscale.architectures._phases import Found, Phase, Source, Turn
from mtlscale.architectures._search import CHOICE, WEIGHTS, OneLevelSearch
from mtlscale.balancing import Balancer
from mtlscale.balancing.equal import Equal
from mtlscale.encoders import SPACE, EncoderModule, Genotype
from mtlscale.spec import TaskSuite, UserError, knob


class CellSearch(OneLevelSearch):
    """Base of these methods. Each step what chooses learns on one half of the training data, then the weights on the
    other; the genotype is trained from scratch on everything, by the run's settings, as the encoder `darts_cells` has
    it but for its genotype."""

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

    def cell_phase(self, name: str = "search", parts: int = 1, rest: float = 0.0) -> Phase:
        """A search phase; rest: the share of its epochs in which only the weights learn."""
        training: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "clip": 5.0, "schedule": "cosine"}
        training |= {"lr": self.search_lr, "weight_decay": self.search_weight_decay}
        chooses = training | {"optimizer": "adam", "clip": None, "schedule": "constant"}
        chooses |= {"lr": self.arch_lr, "weight_decay": self.arch_weight_decay}
        choice = Turn(
            name=CHOICE,
            share="second",
            groups=(CHOICE,),
            source=CHOICE,
            training=chooses,
            balancer=self.upper_balancer(),
            objective=False,
            unlabelled=self.looks_elsewhere(),
            betas=(0.5, 0.999),
            rest=rest,
            beside=WEIGHTS if self.order == "second" else "",
        )
        weights = Turn(
            name=WEIGHTS,
            share="first",
            groups=(WEIGHTS,),
            source=WEIGHTS if self.looks_elsewhere() else "tasks",
            training=training,
            balancer=Equal(reduction="mean"),
            objective=False,
            unlabelled=self.looks_elsewhere(),
            last_lr=min(self.search_last_lr, self.search_lr or 0.0),
        )
        phase = self.search_phase((choice, weights), name=name, parts=parts)
        return phase if self.search_batch is None else replace(phase, batch_size=self.search_batch)

    def upper_balancer(self) -> Balancer | None:
        """Of the losses of what chooses; None: the run's."""
        return Equal(reduction="mean")

    def looks_elsewhere(self) -> bool:
        """Whether images from elsewhere take part."""
        return False

    def wanted(self, model: CellSupernet) -> Wanted:
        """The losses of what chooses."""
        return Wanted(second=self.order == "second")

    def check_suite(self, suite: TaskSuite) -> None:
        """`UserError` where the data lack what the search needs."""

    def size(self) -> Size:
        return Size(cells=self.search_cells, channels=self.search_channels)

    def sources(self, model: CellSupernet) -> Mapping[str, Source]:
        return {CHOICE: ChoiceSource(model, self.wanted(model))}

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        of_cells(encoder(), self.name)
        self.check_suite(suite)
        return CellSupernet(suite, self.size(), dropout, self.name, self.sources)

    def build_next(
        self, phase: str, found: Found, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        if found.get("space") != SPACE:
            raise UserError(f"{self.name}: found is of another space of cells; drop it to search anew")
        network = of_cells(encoder(), self.name).of(Genotype.of(found["genotype"]))
        return CellNetwork(suite, network, dropout, self.auxiliary, self.name)
