"""KDD Census-Income: income, marriage and education of Americans from some forty columns, most of them categories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import knob
from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.named_table import PART, NamedTable, check_texts, parts_of, read_columns, yes_or_no

DEGREES = ("Bachelors", "Masters", "Doctorate", "Prof school")  # beginnings of their names
COLUMNS = (
    "age", "class_of_worker", "industry_code", "occupation_code", "education", "wage_per_hour", "enrolled", "marital",
    "industry", "occupation", "race", "hispanic_origin", "sex", "union", "unemployment_reason", "employment",
    "capital_gains", "capital_losses", "dividends", "tax_filer", "previous_region", "previous_state",
    "household_detail", "household", "instance_weight", "migration_msa", "migration_region", "migration_within",
    "same_house", "migration_sunbelt", "employer_size", "family_under_18", "father_birth", "mother_birth",
    "self_birth", "citizenship", "self_employed", "veteran_questionnaire", "veteran_benefits", "weeks_worked", "year",
    "income",
)  # fmt: skip


class CensusIncome(NamedTable):
    """KDD Census-Income (UCI): income above 50,000 $ and never married, or a college degree and never married.

    The pairs of MMoE. What a task asks for is no input, nor is the weight of the sample, as the owners of the data
    demand. With both official parts, validation is a share of the first; with one of them alone, its rows are
    split at random, by the shares of incomes.
    """

    name: ClassVar[str] = "census_income"
    source: ClassVar[str] = "Lane & Kohavi, UCI 2000; the tasks: Ma et al., KDD 2018"
    folder: ClassVar[str] = "census_income"
    delta: ClassVar[tuple[str, ...]] = ("auroc",)
    kinds: ClassVar[Mapping[str, str]] = {"income": "class", "never_married": "class"}
    categorical: ClassVar[tuple[str, ...]] = (
        "industry_code",
        "occupation_code",
        "self_employed",
        "veteran_benefits",
        "year",
    )

    pair: str = knob("income", choices=("income", "education"), help="income or a college degree, each with marriage")

    def chosen_kinds(self, table: pa.Table) -> Mapping[str, str]:
        return self.kinds if self.pair == "income" else {"degree": "class", "never_married": "class"}

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        parts = parts_of(self.name, source, {"train": "census-income.data", "test": "census-income.test"})
        tables = []
        for split, path in parts.items():
            table = read_columns(self.name, path, COLUMNS, problems)
            tables.append(table.append_column(PART, pa.array([split] * len(table))) if len(parts) > 1 else table)
        table = pa.concat_tables(tables, promote_options="permissive")

        check_texts(self.name, table, ("income", "marital", "education"))
        degrees = [name for name in pc.unique(table["education"]).to_pylist() if name.startswith(DEGREES)]
        answers = {
            "income": yes_or_no(pc.starts_with(table["income"], "50000")),
            "never_married": yes_or_no(pc.equal(table["marital"], "Never married")),
            "degree": yes_or_no(pc.is_in(table["education"], pa.array(degrees, pa.string()))),
        }
        targets = ("income",) if self.pair == "income" else ("education", "income")
        table = table.drop_columns([*targets, "marital", "instance_weight"])
        for column, values in answers.items():
            if column != "degree" or self.pair == "education":
                table = table.append_column(column, values)
        return table, {"parts": sorted(path.name for path in parts.values())}
