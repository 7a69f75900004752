"""Partially connected differentiable architecture search (PC-DARTS)."""

from typing import ClassVar

from mtlscale.architectures.phases import Phase
from mtlscale.config import knob
from mtlscale.nas.search.settings import CellSearch
from mtlscale.nas.search.supernet import Size


class PCDARTS(CellSearch):
    """PC-DARTS: only a part of the channels goes through the mixed operations, and edges have weights of their own.

    The other channels bypass the operations, then channels are shuffled. In the first share of the epochs only the
    weights learn.
    """

    name: ClassVar[str] = "pcdarts"
    source: ClassVar[str] = "Xu et al., ICLR 2020"

    arch_lr: float = knob(6e-4, low=0, open_low=True, help="of the Adam that chooses")
    part: int = knob(4, low=1, help="one channel in so many goes through the operations")
    rest: float = knob(0.3, low=0.0, high=1.0, open_high=True, help="share of the epochs in which only weights learn")

    def phases(self) -> tuple[Phase, ...]:
        return self.and_retrain(self.cell_phase(warmup=self.rest))

    def size(self) -> Size:
        return Size(cells=self.search_cells, channels=self.search_channels, part=self.part, edges=True)
