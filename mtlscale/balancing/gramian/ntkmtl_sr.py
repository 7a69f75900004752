"""NTKMTL-SR: balanced neural tangent kernels at the shared representation."""

from typing import ClassVar

from mtlscale.balancing.gramian.ntkmtl import NTKMTL
from mtlscale.config import knob


class NTKMTLSR(NTKMTL):
    """NTKMTL with the gradients at the shared representation, for which one pass through the trunk suffices.

    Source: Qin et al. (NeurIPS 2025), NTKMTL-SR.
    """

    name: ClassVar[str] = "ntkmtl_sr"
    source: ClassVar[str] = "Qin et al., NeurIPS 2025, NTKMTL-SR"
    cost: ClassVar[str] = "T head backwards + 1"
    batchable: ClassVar[bool] = False

    at: str = knob("representation", choices=("representation",), later=True, help="its name says it")
