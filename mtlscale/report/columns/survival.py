"""What balancing changed in the optimiser's steps, from the trace `survival` of the records.

Definitions: docs/methods.md#does-balancing-survive-the-optimiser.
"""

from __future__ import annotations

import pandas as pd

from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.tables.table import Table

_ANGLES = {
    "gradient_to_equal": ("grad ∠ equal", "cosine between the balanced gradient and that of equal weights"),
    "step_to_equal": ("step ∠ equal", "cosine between the optimiser's step and the one that equal weights would make"),
    "step_to_gradient": ("step ∠ grad", "cosine between the balanced gradient, downhill, and the optimiser's step"),
}
_MANUAL = (
    "Cosines of three angles, means over a sample of the steps: between the balanced gradient and that of equal "
    "weights; between the optimiser's step and the one that equal weights would make; between the balanced gradient, "
    "downhill, and the step. 1 is the same direction. If the first is below 1 and the second near 1, the optimiser "
    "undid the balancing ([details](methods.md#does-balancing-survive-the-optimiser))."
)


@family(
    *(
        Definition(
            key=key,
            title=title,
            explain=explain,
            digits=2,
            block="cost",
            detail=True,
            shown=340,
            stored=730,
            manual=_MANUAL,
            numbers="cosines: what balancing changed in the optimiser's steps",
        )
        for key, (title, explain) in _ANGLES.items()
    ),
    of="rows",
)
def survival(table: Table, frame: Frame) -> pd.DataFrame:
    """Average the cosines of each row's runs."""
    entries = [{"method": record.method, **record.survival} for record in frame.finished if record.survival]
    measured = pd.DataFrame(entries, columns=["method", *_ANGLES]).set_index("method")
    return measured.astype(float).groupby(level=0).mean()
