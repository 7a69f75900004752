"""Adult (census of 1994): income and marriage of Americans from some columns, most of them categories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.named_table import PART, NamedTable, check_texts, parts_of, read_columns, yes_or_no

COLUMNS = (
    "age", "workclass", "weight", "education", "education_years", "marital", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours", "country", "income",
)  # fmt: skip


class Adult(NamedTable):
    """Adult (UCI): income above 50,000 $, and never married.

    What a task asks for is no input, nor is the weight of the sample. With both official parts, validation is a share
    of the first; with one of them alone, its rows are split at random, by the shares of incomes.
    """

    name: ClassVar[str] = "adult"
    source: ClassVar[str] = "Becker & Kohavi, UCI 1996"
    folder: ClassVar[str] = "adult"
    delta: ClassVar[tuple[str, ...]] = ("auroc",)
    kinds: ClassVar[Mapping[str, str]] = {"income": "class", "never_married": "class"}

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        parts = parts_of(self.name, source, {"train": "adult.data", "test": "adult.test"})
        tables = []
        for split, path in parts.items():
            table = read_columns(self.name, path, COLUMNS, problems)
            tables.append(table.append_column(PART, pa.array([split] * len(table))) if len(parts) > 1 else table)
        table = pa.concat_tables(tables, promote_options="permissive")

        check_texts(self.name, table, ("income", "marital"))
        income = yes_or_no(pc.starts_with(table["income"], ">50K"))  # the test part ends it with a point
        never_married = yes_or_no(pc.equal(table["marital"], "Never-married"))
        table = table.drop_columns(["income", "marital", "weight"])
        table = table.append_column("income", income).append_column("never_married", never_married)
        return table, {"parts": sorted(path.name for path in parts.values())}
