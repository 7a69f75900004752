"""NTKMTL-SR: balanced neural tangent kernels at the shared representation."""

from typing import ClassVar, Literal

from mtlscale.balancing.gramian.ntkmtl import NTKMTL


class NTKMTLSR(NTKMTL):
    """NTKMTL with the gradients at the shared representation, for which one pass through the trunk suffices.

    Source: Qin et al. (NeurIPS 2025), NTKMTL-SR.
    """

    name: ClassVar[str] = "ntkmtl_sr"
    source: ClassVar[str] = "Qin et al., NeurIPS 2025, NTKMTL-SR"
    cost: ClassVar[str] = "T head backwards + 1"
    at: ClassVar[Literal["parameters", "representation"]] = "representation"
    batchable: ClassVar[bool] = False
