"""How much a case multiplies a disturbance of its first parameters, and so the rounding of another processor."""

from __future__ import annotations

from dataclasses import replace

from disturbance import disturbed
from frozen import compare
from frozen.cases import Case
from frozen.compute import compute
from frozen.expected import rounded

DISTURBANCE = 1e-13
MOST = 1e3  # times 1e-15, which rounding comes to, it is the tolerance


def conditioning(case: Case) -> compare.Difference:
    """The largest difference in units of the disturbance, and where it is.

    A case of two workers is asked in one process: it begins with the same parameters and takes the same steps.
    """
    alone = replace(case, flavour="single") if case.flavour == "two workers" else case
    plain = rounded(compute(alone))
    with disturbed(DISTURBANCE):
        difference = compare.difference(rounded(compute(alone)), plain)
    difference.largest /= DISTURBANCE
    return difference
