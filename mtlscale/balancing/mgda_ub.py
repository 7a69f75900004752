from typing import ClassVar, Literal

from mtlscale.balancing.mgda import MGDA


class MGDAUB(MGDA):
    """MGDA on the gradients at the shared representation, an upper bound of its objective that is cheaper to compute.

    Source: Sener, Koltun (NeurIPS 2018), eq. MGDA-UB.
    """

    name: ClassVar[str] = "mgda_ub"
    source: ClassVar[str] = "Sener & Koltun, NeurIPS 2018, eq. MGDA-UB"
    cost: ClassVar[str] = "T head backwards + 1"
    at: ClassVar[Literal["parameters", "representation"]] = "representation"
    batchable: ClassVar[bool] = False
