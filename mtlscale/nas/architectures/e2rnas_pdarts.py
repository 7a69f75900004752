"""The form of E2RNAS with progressive searches."""

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule
from mtlscale.nas.architectures.e2rnas import E2RNAS
from mtlscale.nas.architectures.pdarts import PDARTS


class E2RNASPDARTS(E2RNAS, PDARTS):
    """E2RNAS on P-DARTS: its five losses choose in each of the three searches.

    L and F are compared with what each search's own network costs, which deepens from one to the next.
    """

    name: ClassVar[str] = "e2rnas_pdarts"
    source: ClassVar[str] = "Yue et al., 2020; thesis, chapter 3, table 3.4"

    arch_lr: float = knob(6e-4, low=0, open_low=True, help="of the Adam that chooses")
    search_cells: int = knob(5, low=1, help="cells of the first search network")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        self.check_suite(suite)
        return PDARTS.build(self, suite, encoder, dropout)
