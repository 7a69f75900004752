"""Networks of a given genotype, without a search."""

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule
from mtlscale.nas.search.network import CellNetwork, of_cells


class FixedCells(Architecture):
    """The network of the genotype that the encoder `darts_cells` names, trained like the result of a search.

    Drop-path grows over the epochs, and an auxiliary head helps in training.
    """

    name: ClassVar[str] = "cell_network"
    source: ClassVar[str] = "Liu, Simonyan, Yang, ICLR 2019 (DARTS)"
    needs_stages: ClassVar[bool] = True

    auxiliary: float = knob(0.4, low=0.0, help="factor of the auxiliary head's loss; 0: none")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return CellNetwork(suite, of_cells(encoder(), self.name), dropout, self.auxiliary, self.name)
