"""Sets of MoleculeNet as graphs: what a molecule does to a body, from its atoms and bonds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from mtlscale.config import knob
from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.named_table import NamedTable, whole_file

SETS = ("tox21", "sider", "clintox")


class Molecules(NamedTable):
    """MoleculeNet: 12 assays of Tox21, 27 side effects of SIDER or 2 labels of ClinTox.

    The source has `<set>.csv`, plain or packed with gzip, with a column `smiles`; all others are tasks, whose missing
    labels count for nothing. Molecules become graphs of atoms and bonds for `mpnn`. The split is random, not by
    scaffold as in the paper.
    """

    name: ClassVar[str] = "molecules"
    source: ClassVar[str] = "Wu et al., Chemical Science 2018 (MoleculeNet)"
    folder: ClassVar[str] = "molecules"
    delta: ClassVar[tuple[str, ...]] = ("auroc",)
    without_floors: ClassVar[tuple[str, ...]] = ("boosting",)  # minutes of histograms of 1,024 counts
    smiles: ClassVar[str] = "smiles"

    set: str = knob("tox21", choices=SETS, help="which set")

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        return whole_file(self.name, source, f"{self.set}.csv", problems)

    def chosen_kinds(self, table: pa.Table) -> Mapping[str, str]:
        return {name: "class" for name in table.column_names if name != self.smiles}
