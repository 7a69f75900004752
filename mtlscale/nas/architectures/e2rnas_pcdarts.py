"""The form of E2RNAS with partial channels."""

from typing import ClassVar

from mtlscale.config import knob
from mtlscale.nas.architectures.e2rnas import E2RNAS
from mtlscale.nas.architectures.pcdarts import PCDARTS


class E2RNASPCDARTS(E2RNAS, PCDARTS):
    """E2RNAS on PC-DARTS: its five losses choose in a search network where a part of the channels is mixed.

    Parameters and multiply-adds are counted as if all channels were mixed, as they are in the network that is trained.
    """

    name: ClassVar[str] = "e2rnas_pcdarts"
    source: ClassVar[str] = "Yue et al., 2020; thesis, chapter 3, table 3.4"

    arch_lr: float = knob(6e-4, low=0, open_low=True, help="of the Adam that chooses")
