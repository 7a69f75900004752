"""The paired tests against the reference: verdict and p-values (docs/methods.md#which-differences-are-real)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, SCORE_NAMES
from mtlscale.report.cells.sheet import Column, TableCell
from mtlscale.report.columns.frame import Frame
from mtlscale.report.columns.registry import Definition, family
from mtlscale.report.stats.statistics import BETTER, LEVEL, OPEN, SAME, WORSE, paired_tests
from mtlscale.report.tables.caveats import resolution
from mtlscale.report.tables.table import Table

_BADGES = {BETTER: "better", WORSE: "worse", SAME: "same", OPEN: "open"}
_ORDER = {BETTER: 3.0, SAME: 2.0, OPEN: 1.0, WORSE: 0.0}
_PAIRS = "seeds shared with the reference, and the mean difference over these"
_TESTS = "p-values of the paired tests, the same Holm-corrected, and what follows"
_KEYS = ("pairs", "difference", "p_t", "p_wilcoxon", "p_holm", "p_wilcoxon_holm")


def _drawn(table: Table) -> Iterator[Column]:
    texts = [text if isinstance(text, str) and text else EMPTY for text in table.rows["verdict"]]
    items = ", and by the interval over test items" if table.over_items else ""
    yield Column(
        header=f"vs {table.reference}",
        help=f"by a paired t-test of {SCORE_NAMES[table.order]} over seeds, Holm-corrected, level {LEVEL}{items}",
        cells=[TableCell(text, _ORDER.get(text), badge=_BADGES.get(text, "")) for text in texts],
        name="verdict",
        higher=True,
        of_test=True,
    )
    cells = [TableCell(EMPTY if np.isnan(value) else f"{value:.2g}", value) for value in table.rows["p_holm"]]
    help = "two-sided p-value of that test, Holm-corrected over all methods"
    yield Column(header="p", help=help, cells=cells, name="p_holm", higher=False, of_test=True)


@family(
    Definition(
        key="verdict",
        title="vs equal",
        shown=80,
        stored=400,
        compact=50,
        manual="*better* or *worse* if paired tests of Δ on the same seeds and the interval over test items both say "
        "so. *undecided* if test items show a difference that the seeds do not, or with fewer than three seeds; else "
        "*not distinguishable*. p has to be below 0.045, because 0.05 "
        "[errs too often](methods.md#which-differences-are-real) on small test sets. Errors are tested as log ratios. "
        "Holm's correction counts all planned methods, also those whose runs are missing.",
        numbers=_TESTS,
    ),
    Definition(
        key="p_holm",
        title="p",
        shown=90,
        stored=400,
        define="How often a difference at least as large would come out if there were none, Holm-corrected.",
        manual="The corrected p-value behind it.",
        numbers=_TESTS,
    ),
    *(Definition(key=key, stored=400, numbers=_PAIRS) for key in ("pairs", "difference")),
    *(Definition(key=key, stored=400, numbers=_TESTS) for key in ("p_t", "p_wilcoxon", "p_wilcoxon_holm")),
    of="rows",
    draw=_drawn,
    notes=lambda table, frame: resolution(table),
)
def verdict(table: Table, frame: Frame) -> pd.DataFrame:
    """Test the column that rows are sorted by; empty columns without anything to compare."""
    if table.reference is None or table.order == "mean_rank":
        return pd.DataFrame(np.nan, index=pd.Index([], name="method"), columns=list(_KEYS)).assign(verdict="")
    order = table.order
    return paired_tests(
        table.by_seed(table.runs[order]),
        table.reference,
        table.higher(order),
        table.untested,
        tested=table.by_seed(table.tested(order)),
        items=table.item_sides(order, table.reference),
    )
