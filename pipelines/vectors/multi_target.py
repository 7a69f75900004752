"""Mulan's collection for multi-target regression: small tables, whose last columns are the targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from mtlscale.config import knob
from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.named_table import NamedTable, whole_file

TARGETS = {
    "andro": 6, "atp1d": 6, "atp7d": 6, "edm": 2, "enb": 2, "jura": 3, "oes10": 16, "oes97": 16, "osales": 12, "rf1": 8,
    "rf2": 8, "scm1d": 16, "scm20d": 16, "scpf": 3, "sf1": 3, "sf2": 3, "slump": 3, "wq": 14,
}  # fmt: skip


class MultiTarget(NamedTable):
    """Mulan's multi-target tables: 2 to 16 regressions on the same 49 to 9,803 rows.

    The source has `<set>.arff`, plain or packed with gzip. The last columns are the targets, as many as Mulan's page
    says; they have mean 0 and variance 1 over training, so an RMSE of 1 is that of the mean. Empty inputs are filled
    with the mean and marked by a column. The split is random.
    """

    name: ClassVar[str] = "multi_target"
    source: ClassVar[str] = "Spyromitros-Xioufis et al., Machine Learning 2016; Mulan"
    folder: ClassVar[str] = "multi_target"
    delta: ClassVar[tuple[str, ...]] = ("rmse",)

    set: str = knob("wq", choices=tuple(TARGETS), help="which table")

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        return whole_file(self.name, source, f"{self.set}.arff", problems)

    def chosen_kinds(self, table: pa.Table) -> Mapping[str, str]:
        return dict.fromkeys(table.column_names[-TARGETS[self.set] :], "regression")
