"""Tables with a column that names the task of each row: the settings that only they have, and their preparation."""

from __future__ import annotations

from pathlib import Path

from mtlscale.config import knob
from pipelines._tables.inputs import InputColumns
from pipelines._tables.long_table import MOST_CATEGORIES, LongTable
from pipelines._tables.table_rules import TableRules
from pipelines.vectors._own_table import OwnTable


class TaskColumnTable(OwnTable):
    """Base of the settings of a table with a column of tasks."""

    task: str = knob("task", help="column that names the task")
    target: str = knob("target", help="column to predict")
    problem: str = knob("auto", choices=("auto", "classification", "regression"), help="auto: by the target's type")
    classes: str = knob("shared", choices=("shared", "own"), help="the same classes in all tasks, or each task its own")

    def task_rules(self, source: Path) -> TableRules:
        """Return what the columns mean in a table whose rows belong to a task each."""
        inputs = InputColumns(pipeline=self.name, features=self.features, categorical=self.categorical,
                              most_categories=MOST_CATEGORIES, buckets=1, complete=True)  # fmt: skip
        return LongTable(
            pipeline=self.name, file=source.name, task=self.task, target=self.target, problem=self.problem,
            own_classes=self.classes == "own", id=self.id, test=self.test, validation=self.validation,
            split=self.split, inputs=inputs, standardise=self.standardise, drop_constant=self.constant == "drop",
            form=self.form,
        )  # fmt: skip
