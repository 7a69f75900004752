"""Parkinson's telemonitoring: two scores of the disease from recordings of the voice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.named_table import NamedTable, parts_of, read_columns
from pipelines._tables.row_splits import RowSplit

PERSON = "subject"
COLUMNS = (
    PERSON, "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS", "jitter", "jitter_abs", "jitter_rap",
    "jitter_ppq5", "jitter_ddp", "shimmer", "shimmer_db", "shimmer_apq3", "shimmer_apq5", "shimmer_apq11",
    "shimmer_dda", "nhr", "hnr", "rpde", "dfa", "ppe",
)  # fmt: skip


class Parkinsons(NamedTable):
    """Parkinson's telemonitoring (UCI): the motor and the total UPDRS of 42 persons, from 5,875 recordings.

    All recordings of a person are in one split: whoever knows a person's voice knows the score, which hardly moves.
    Inputs are age, sex, time since the first recording and 16 measures of the voice. Targets have mean 0 and variance 1
    over training.
    """

    name: ClassVar[str] = "parkinsons"
    source: ClassVar[str] = "Tsanas, Little, McSharry & Ramig, IEEE TBME 2010"
    folder: ClassVar[str] = "parkinsons"
    delta: ClassVar[tuple[str, ...]] = ("rmse",)
    kinds: ClassVar[Mapping[str, str]] = {"motor_UPDRS": "regression", "total_UPDRS": "regression"}

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        (path,) = parts_of(self.name, source, {"": "parkinsons_updrs.data"}).values()
        return read_columns(self.name, path, COLUMNS, problems), {"parts": [path.name]}

    def row_split(self, table: pa.Table) -> RowSplit:
        return replace(super().row_split(table), group=PERSON)
