"""MGDA-UB: the multiple-gradient descent algorithm on an upper bound."""

from typing import ClassVar

from mtlscale.balancing.gramian.mgda import MGDA
from mtlscale.config import knob


class MGDAUB(MGDA):
    """The MGDA solution for the gradients at the shared representation, a cheaper upper bound of MGDA's objective.

    Source: Sener, Koltun (NeurIPS 2018), eq. MGDA-UB.
    """

    name: ClassVar[str] = "mgda_ub"
    source: ClassVar[str] = "Sener & Koltun, NeurIPS 2018, eq. MGDA-UB"
    cost: ClassVar[str] = "T head backwards + 1"
    batchable: ClassVar[bool] = False

    at: str = knob("representation", choices=("representation",), later=True, help="its name says it")
