"""Tables with several targets in each row: the settings that only they have, and their preparation."""

from __future__ import annotations

from typing import Any

from mtlscale.config import knob
from pipelines._tables.inputs import InputColumns
from pipelines._tables.long_table import MOST_CATEGORIES
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.shared_table import SharedTable
from pipelines._tables.table_rules import TableRules
from pipelines._tables.targets import check_kinds
from pipelines.vectors._own_table import OwnTable


class TargetsTable(OwnTable):
    """Base of the settings of a table with `targets`."""

    targets: dict[str, Any] = knob(
        {}, later=True, help="target column -> class, regression, multilabel or auto: several targets in each row"
    )
    separator: str = knob("auto", later=True, help="of the tags of a multilabel target; auto: the first of ; | ,")
    group: str = knob("", later=True, help="column whose values are not divided between splits")
    time: str = knob("", later=True, help="column of times: the latest rows are test")
    split_column: str = knob("", later=True, help="column with train, val or test")
    weight: str = knob("", later=True, help="column of weights of the training losses")
    most_categories: int = knob(
        100, low=2, high=MOST_CATEGORIES, later=True, help="categories with a code of their own"
    )
    buckets: int = knob(128, low=2, high=MOST_CATEGORIES, later=True, help="codes of a column with more")
    grouped: str = knob("", later=True, help="category column that groups samples for `gauroc`")
    smiles: str = knob("", later=True, help="column of molecules as SMILES, the only input then")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(self.name, self.targets)
        _ = self.row_split  # refuses two rules at once

    @property
    def row_split(self) -> RowSplit:
        """The rule that splits a table with `targets`."""
        return RowSplit(pipeline=self.name, test=self.test, validation=self.validation, seed=self.split,
                        group=self.group, time=self.time, column=self.split_column)  # fmt: skip

    @property
    def input_columns(self) -> InputColumns:
        """The inputs of a table with `targets`."""
        return InputColumns(pipeline=self.name, features=self.features, categorical=self.categorical,
                            most_categories=self.most_categories, buckets=self.buckets,
                            smiles=self.smiles)  # fmt: skip

    def targets_rules(self) -> TableRules:
        """Return what the columns mean in a table with several targets in each row."""
        return SharedTable(
            pipeline=self.name, targets=self.targets, separator=self.separator, id=self.id, weight=self.weight,
            split=self.row_split, inputs=self.input_columns, standardise=self.standardise,
            drop_constant=self.constant == "drop", grouped=self.grouped, form=self.form,
        )  # fmt: skip
