"""MGDA-UB: the multiple-gradient descent algorithm on an upper bound."""

from typing import ClassVar, Literal

from mtlscale.balancing.gramian.mgda import MGDA


class MGDAUB(MGDA):
    """The MGDA solution for the gradients at the shared representation, a cheaper upper bound of MGDA's objective.

    Source: Sener, Koltun (NeurIPS 2018), eq. MGDA-UB.
    """

    name: ClassVar[str] = "mgda_ub"
    source: ClassVar[str] = "Sener & Koltun, NeurIPS 2018, eq. MGDA-UB"
    cost: ClassVar[str] = "T head backwards + 1"
    at: ClassVar[Literal["parameters", "representation"]] = "representation"
    batchable: ClassVar[bool] = False
