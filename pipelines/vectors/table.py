"""Tables of a user's own as multi-task problems, without code."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mtlscale.config import UserError
from pipelines._tables.prepared_table import prepared_table
from pipelines._tables.table_parts import LARGE, WholeTable, is_large, parts_of
from pipelines.contract import PrepareContext, Prepared
from pipelines.vectors._own_table import OwnTable
from pipelines.vectors._targets_table import TargetsTable
from pipelines.vectors._task_table import TaskColumnTable


class TableFile(TaskColumnTable, TargetsTable):
    """Table, one row per sample: several targets in each row, or one target and a column that names the row's task.

    The file is CSV, TSV, Parquet or ARFF, text files also packed with gzip, or a set of the `datasets` library.

    With `targets`, all tasks share the rows as inputs. A target is `class` (two classes are scored by AUROC),
    `regression`, `multilabel` (a task per tag) or `auto`. All other columns are inputs unless `features` lists them:
    numbers, true and false, dates (days, and positions in year, week and day), and texts, which are categories; up to
    `most_categories` values of training have codes of their own, more are hashed into `buckets`. Numbers are scaled,
    and empty cells filled with the mean and marked by a column, by the training rows alone; an empty category is a
    category. With `smiles`, the only input is a column of molecules, which become graphs of atoms and bonds for `mpnn`;
    a row without a molecule cannot be used. A label that is missing is left out of losses and metrics. Targets of
    regression have mean 0 and variance 1 over training, so an RMSE of 1 is that of the mean; exported models predict in
    the original units. The split is random and keeps a row of each class in training, or goes by `group`, `time` or
    `split_column`.

    Without `targets`, `task` and `target` name a column each. Features are numbers, or categories where `categorical`
    names them: texts or whole numbers, which become codes in the order of the training rows' values; a value that does
    not occur in training is unknown, and counted. Every task is split by itself, in classification also by class; one
    sample of each class stays in training. The split goes by the id column or, without one, by the row number. Text
    targets are class names; numeric targets are classes if they are whole numbers. Rows with an empty cell stop the
    preparation, or are left out with --skip-bad. Test rows whose features also occur in training or validation, in any
    task, are counted.
    """

    name: ClassVar[str] = "table"
    results_version: ClassVar[int] = 3  # 3: line breaks in quotes, words such as NA, declared kinds, other notations
    source: ClassVar[str] = "a file of yours"
    folder: ClassVar[str] = "table"
    delta: ClassVar[tuple[str, ...]] = ("accuracy", "auroc", "rmse")
    hub: ClassVar[bool] = True
    ray_from_bytes: ClassVar[float] = LARGE
    collects: ClassVar[bool] = True  # targets, ids and splits of large tables, and the whole of others

    def __post_init__(self) -> None:
        super().__post_init__()
        other: type[OwnTable] = TaskColumnTable if self.targets else TargetsTable
        mend = "goes with `targets`; name the target columns there"
        if self.targets:
            mend = "does not go with `targets`, which name every task; drop one"
        for option, (default, _) in other.knobs().items():
            if option not in OwnTable.knobs() and getattr(self, option) != default:
                raise UserError(f"table: `{option}` {mend}")

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        rules = self.targets_rules() if self.targets else self.task_rules(source)
        if is_large(source):
            return prepared_table(rules, parts_of(source, self.form), context, {}, [])
        read = self.read(source)
        if read.questions:
            raise UserError(read.questions[0])
        return prepared_table(rules, WholeTable(read.table, self.form), context, read.notes, read.problems)
