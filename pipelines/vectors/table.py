"""Tables of a user's own as multi-task problems, without code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import Task, TaskSuite, UserError, knob, nearest
from mtlscale.data.format.categories import UNKNOWN, as_text, codes_of
from mtlscale.data.format.table_columns import by_kind
from mtlscale.data.tables.notations import DECIMALS, Question
from mtlscale.data.tables.raw_files import is_hidden
from mtlscale.data.tables.table_file import ROW, TableRead, read_table
from mtlscale.data.tables.table_format import SUFFIXES, TableFormat, is_table_file
from pipelines._formats.hub import HubFolder, is_saved
from pipelines._formats.hub_table import read_hub_table
from pipelines._steps.features import (
    TEST,
    VALIDATION,
    Vectors,
    random_split,
    seen_inputs,
    standardised,
    vector_tables,
)
from pipelines._tables.inputs import InputColumns, no_input
from pipelines._tables.large_table import large_table
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.shared_table import SharedTable
from pipelines._tables.table_parts import LARGE, is_large, parts_of
from pipelines._tables.targets import check_kinds
from pipelines._tables.text_columns import Use, read_texts, refuse_questions
from pipelines.contract import Pipeline, PrepareContext, Prepared

MOST_CLASSES = 1000
MOST_CATEGORIES = 10_000  # categories of a column, at most


class TableFile(Pipeline):
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

    file: str = knob("", help="the file's name, where the source is a folder with several")
    task: str = knob("task", help="column that names the task")
    target: str = knob("target", help="column to predict")
    id: str = knob("", help="column that names the sample; none: the row number")
    features: tuple[str, ...] = knob((), help="feature columns; none: all others")
    categorical: tuple[str, ...] = knob((), help="those of the features that are categories: texts or whole numbers")
    problem: str = knob("auto", choices=("auto", "classification", "regression"), help="auto: by the target's type")
    classes: str = knob("shared", choices=("shared", "own"), help="the same classes in all tasks, or each task its own")
    constant: str = knob("refuse", choices=("refuse", "drop"), help="what to do about a constant feature")
    standardise: bool = knob(True, help="features to mean 0 and variance 1 over the training part")
    test: float = knob(TEST, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the samples for test")
    validation: float = knob(
        VALIDATION, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the rest for validation"
    )
    split: int = knob(0, low=0, help="which random split")

    targets: dict[str, Any] = knob(
        {}, later=True, help="target column -> class, regression, multilabel or auto: several targets in each row"
    )
    separator: str = knob("auto", later=True, help="of the tags of a multilabel target; auto: the first of ; | ,")
    group: str = knob("", later=True, help="column whose values are not divided between splits (with `targets`)")
    time: str = knob("", later=True, help="column of times: the latest rows are test (with `targets`)")
    split_column: str = knob("", later=True, help="column with train, val or test (with `targets`)")
    weight: str = knob("", later=True, help="column of weights of the training losses (with `targets`)")
    most_categories: int = knob(
        100, low=2, high=MOST_CATEGORIES, later=True, help="categories with a code of their own"
    )
    buckets: int = knob(128, low=2, high=MOST_CATEGORIES, later=True, help="codes of a column with more")
    missing: tuple[str, ...] | None = knob(
        None,
        later=True,
        help="texts and numbers that are empty cells, as ?; none: NA, null, NaN …, unless a value",
    )
    header: bool = knob(True, later=True, help="whether the first line has names; else columns are called 1, 2, …")
    skip_lines: int | None = knob(None, low=0, later=True, help="lines above the header; none: a title is asked about")
    skip_rows: int | None = knob(None, low=0, later=True, help="rows below the header, as units; none: asked about")
    decimal: str = knob("", choices=DECIMALS, later=True, help="mark before decimals, . or ,; none: point, or asked")
    dates: tuple[str, ...] | None = knob(
        None, later=True, help="formats of dates, such as '%d.%m.%Y', besides 2024-01-31; none: others are asked about"
    )
    scale_targets: bool = knob(True, later=True, help="targets of regression to mean 0 and variance 1 over training")
    grouped: str = knob("", later=True, help="category column that groups samples for `gauroc` (with `targets`)")
    smiles: str = knob("", later=True, help="column of molecules as SMILES, the only input then (with `targets`)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(self.name, self.targets)
        _ = self.row_split  # refuses two rules at once
        with_targets = ("separator", "group", "time", "split_column", "weight", "scale_targets", "grouped",
                        "smiles")  # fmt: skip
        defaults = {name: default for name, (default, _) in self.knobs().items()}
        for option in () if self.targets else with_targets:
            if getattr(self, option) != defaults[option]:
                raise UserError(f"table: `{option}` goes with `targets`; name the target columns there")
        for option in ("task", "target", "problem", "classes") if self.targets else ():
            if getattr(self, option) != defaults[option]:
                raise UserError(f"table: `{option}` does not go with `targets`, which name every task; drop one")

    def locate(self, source: Path) -> Path:
        """Return the file itself, the one in the folder, or the folder of the `datasets` library."""
        if not source.exists():
            raise UserError(f"table: source {source} does not exist; pass --source with its file")
        if source.is_dir() and (is_saved(source) or next(source.glob("*.arrow"), None)):
            return source

        candidates = [source]
        if source.is_dir():
            files = sorted(path for path in source.iterdir() if is_table_file(path) and not is_hidden(path.name))
            candidates = [path for path in files if not self.file or path.name == self.file]
            if len(candidates) != 1:
                names = ", ".join(path.name for path in files) or f"no file that ends in {', '.join(SUFFIXES)}"
                raise UserError(f"table: {source} holds {names}; name one by option `file` or --source")

        if not is_table_file(candidates[0]):
            raise UserError(f"table: {candidates[0].name} is none of {', '.join(SUFFIXES)}; rename or convert it")
        return candidates[0]

    def source_fingerprint(self, located: Path | None) -> str:
        if located is not None and located.is_dir():
            return HubFolder(self.name, located).fingerprint()
        return super().source_fingerprint(located)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        if self.targets:
            return self._prepared_targets(source, context)

        read = self.read(source)
        self.refuse(read)
        names = self._feature_names(read, source)
        self._read_numbers(read, names)
        table, notes = self._complete(read, names, context)
        notes = read.notes | notes

        targets, classes = self._targets(table[self.target].combine_chunks())
        ids = _as_texts(table[self.id]) if self.id else np.array([f"{row:09d}" for row in table[ROW].to_pylist()])
        if len(np.unique(ids)) < len(ids):
            raise UserError(f"table: a value of the id column {self.id!r} occurs twice; it must name one row")
        rows_of = _tasks(_as_texts(table[self.task]))

        labels, classes_of, splits = {}, {}, {}
        for task, rows in rows_of.items():
            labels[task], classes_of[task] = _labels(task, targets[rows], classes, own=self.classes == "own")
            splits[task] = random_split(
                self.name,
                task,
                ids[rows],
                f"{self.name}/{self.split}",
                labels[task] if classes else None,
                test=self.test,
                validation=self.validation,
            )

        train = np.concatenate([rows_of[task][split["train"]] for task, split in splits.items()])
        features, categories = self._features(table, names, train, notes)
        options = {"standardise": self.standardise, "drop": self.constant == "drop"}
        varying = _varying(table.take(train), features[train], names, **options)
        features, names = features[:, varying], [name for name, varies in zip(names, varying, strict=True) if varies]

        counts = tuple(1 + len(categories[name]) if name in categories else 0 for name in names)
        numbers = np.array(counts) == 0
        if self.standardise and numbers.any():
            features, notes["standardised"] = standardised(features, train, numbers)

        samples = {
            task: Vectors(ids[rows], features[rows], labels[task], splits[task]) for task, rows in rows_of.items()
        }
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(_task(task, task_classes) for task, task_classes in classes_of.items()),
            inputs="per_task",
            input_kind="vector",
            input_shape=(features.shape[1],),
            categories=counts if any(counts) else (),
        )

        notes["features"] = names
        if categories:
            notes["categories"] = {name: categories[name] for name in names if name in categories}
        if repeated := seen_inputs(samples):
            notes["test_inputs_in_train_or_val"] = repeated
        return Prepared(suite, vector_tables(samples), notes=notes)

    @property
    def form(self) -> TableFormat:
        """How the table is written."""
        return TableFormat(header=self.header, skip_lines=self.skip_lines, skip_rows=self.skip_rows,
                           decimal=self.decimal, dates=self.dates, missing=self.missing)  # fmt: skip

    def read(self, source: Path) -> TableRead:
        """Return the rows of the file or folder that `locate` returned, texts that are numbers not converted yet."""
        return read_hub_table(self.name, source) if source.is_dir() else read_table(source, self.form)

    def refuse(self, read: TableRead) -> None:
        """Raise `UserError` for what is to be asked about a file."""
        if read.questions:
            raise UserError(read.questions[0])

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

    def _prepared_targets(self, source: Path, context: PrepareContext) -> Prepared:
        """Return a table with several targets in each row."""
        shared = SharedTable(
            pipeline=self.name, targets=self.targets, separator=self.separator, id=self.id, weight=self.weight,
            split=self.row_split, inputs=self.input_columns, standardise=self.standardise,
            scale_targets=self.scale_targets, drop_constant=self.constant == "drop", grouped=self.grouped,
            form=self.form,
        )  # fmt: skip
        if is_large(source) and not self.smiles:
            return large_table(shared, parts_of(source, self.form), context)
        read = self.read(source)
        self.refuse(read)
        return shared.prepared(read.table, read.notes, read.problems, context)

    def _features(
        self, table: pa.Table, names: list[str], train: np.ndarray, notes: dict[str, Any]
    ) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Return the features [N, D], categories as codes, and the values of each column of categories by code."""
        columns, categories, unseen = [], {}, {}
        for name in names:
            if name not in self.categorical:
                columns.append(table[name].to_numpy().astype(float))
                continue

            values = np.array([as_text(value) for value in table[name].to_pylist()], dtype=object)
            category_names = categories[name] = sorted(set(values[train]), key=by_kind)
            if len(category_names) > MOST_CATEGORIES:
                raise UserError(f"table: column {name!r} has {len(category_names)} categories, "
                                f"{MOST_CATEGORIES} at most; leave it out of `features` if it names rows")  # fmt: skip

            columns.append(codes_of(values, category_names).astype(float))
            if count := int((columns[-1] == UNKNOWN).sum()):
                unseen[name] = count

        if unseen:
            notes["unknown_categories"] = unseen
        return np.column_stack(columns), categories

    def _feature_names(self, read: TableRead, source: Path) -> list[str]:
        """Return the feature columns; `UserError` if a named column is missing."""
        table = read.table
        available = [name for name in table.column_names if name != ROW]
        for option, name in (("task", self.task), ("target", self.target), ("id", self.id)):
            if (name or option != "id") and name not in available:
                start = f"mtlscale inspect {source.name} --write {source.name.partition('.')[0]}.yaml"
                raise UserError(
                    f"table: there is no column {name!r}; {nearest(name, available)}; set the option {option}, or, for "
                    f"a table with a column per task, begin with `{start}`"
                )

        roles = {self.task, self.target, self.id}
        left_out = {name: reason for name in available if name not in (*roles, *self.features)
                    and (reason := no_input(table.schema.field(name)))}  # fmt: skip
        if left_out and not self.features:
            read.notes["left_out"] = left_out
        names = list(self.features) or [name for name in available if name not in roles and name not in left_out]
        if not names:
            raise UserError("table: there is no feature column beside task, target and id")

        for name in names:
            if name not in available:
                raise UserError(f"table: there is no column {name!r}; {nearest(name, available)}; correct `features`")
            if name in roles:
                raise UserError(f"table: column {name!r} is task, target or id and a feature as well; drop one role")
        self._check_categorical(table, names)
        return names

    def _read_numbers(self, read: TableRead, names: Sequence[str]) -> None:
        """Convert texts that are numbers in some notation; `UserError` if a feature is no number."""
        uses: dict[str, Use] = {name: "number" for name in names if name not in self.categorical}
        uses |= {self.target: "number"} if self.problem == "regression" else {}
        rows = [f"row {row + 1}" for row in read.table[ROW].to_pylist()]
        questions: dict[str, Question] = {}
        read.table = read_texts(read.table, uses, self.form, rows, read.problems, questions)
        refuse_questions(self.name, questions, "`categorical`, if it is none")
        for name in uses:
            kind = read.table[name].type
            if name != self.target and not _is_number(kind):
                raise UserError(f"table: feature {name!r} holds {kind}, no numbers; name it in `categorical`, or list "
                                "`features` without it")  # fmt: skip

    def _check_categorical(self, table: pa.Table, names: list[str]) -> None:
        for name in self.categorical:
            if name not in names:
                raise UserError(f"table: {name!r} of `categorical` is no feature; {nearest(name, names)}")
            if pa.types.is_floating(table[name].type) and not _is_whole(table[name].drop_null().combine_chunks()):
                raise UserError(
                    f"table: column {name!r} holds numbers that are not whole; leave it out of `categorical`"
                )

    def _complete(self, read: TableRead, names: list[str], context: PrepareContext) -> tuple[pa.Table, dict[str, Any]]:
        """Return the rows without an empty cell (or NaN, or infinity) in the columns that count."""
        table, problems = read.table, dict[int, str]()
        for name in (*names, self.task, self.target, *([self.id] if self.id else [])):
            problem_rows = {f"has no value in {name}": table[name].is_null()}
            if pa.types.is_floating(table[name].type):
                problem_rows[f"has no value in {name}"] = table[name].is_null(nan_is_null=True)
                problem_rows[f"is infinite in {name}"] = pc.fill_null(pc.is_inf(table[name]), False)
            for problem, rows in problem_rows.items():
                for row in np.flatnonzero(rows.to_numpy()):
                    problems.setdefault(int(row), problem)

        numbers = table[ROW].to_pylist()
        bad_cells = [(f"row {numbers[row] + 1}", problem) for row, problem in problems.items()]
        notes = context.settle([*read.problems, *bad_cells], "rows")
        is_complete = np.ones(len(table), dtype=bool)
        is_complete[list(problems)] = False
        if not is_complete.any():
            raise UserError("table: there is no complete row")
        return table.filter(pa.array(is_complete)), notes

    def _targets(self, column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return numbers and no classes, or the code of each row's class and the classes in order."""
        number = _is_number(column.type)
        fractions = pa.types.is_floating(column.type) and not _is_whole(column)
        if self.problem == "regression" or (self.problem == "auto" and fractions):
            if not number:
                raise UserError(
                    f"table: target {self.target!r} holds {column.type}, no numbers; set `problem` to classification"
                )
            return column.to_numpy(zero_copy_only=False).astype(np.float32), ()

        distinct, codes = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        floats = pa.types.is_floating(column.type)
        values = [as_text(value) if floats else str(value) for value in distinct.tolist()]

        mend = "set `problem` to regression" if number else "name another column by `target`"
        if len(values) > MOST_CLASSES or 2 * len(values) > len(codes):
            raise UserError(f"table: target {self.target!r} has {len(values)} classes in {len(codes)} rows; {mend}")
        if len(values) < 2:
            raise UserError(f"table: all labels of {self.target!r} are {values[0]}; there is nothing to learn")

        return codes, tuple(values)


def _labels(task: str, codes: np.ndarray, classes: tuple[str, ...], *, own: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a task's targets and classes."""
    if not classes:
        return codes, ()

    present_codes, task_codes = np.unique(codes, return_inverse=True)
    if own:
        if len(present_codes) < 2:
            raise UserError(f"table: all labels of task {task} are {classes[present_codes[0]]}; leave the task out")
        return task_codes, tuple(classes[code] for code in present_codes)

    if len(present_codes) < len(classes):
        missing = next(name for code, name in enumerate(classes) if code not in present_codes)
        raise UserError(
            f"table: task {task} has no sample of class {missing}; leave the task out or set `classes` to own"
        )
    return codes, classes


def _varying(table: pa.Table, train: np.ndarray, names: list[str], *, standardise: bool, drop: bool) -> np.ndarray:
    """Return a mask of the features that vary over the training samples."""
    # Scaling keeps differences that float32 would lose.
    stored = train if standardise else train.astype(np.float32)
    varying = stored.max(0) > stored.min(0)

    constant = [name for name, varies in zip(names, varying, strict=True) if not varies]
    rounded_away = next((name for name in constant if pc.count_distinct(table[name]).as_py() > 1), None)
    if rounded_away is not None:
        raise UserError(
            f"table: feature {rounded_away!r} loses its differences in {stored.dtype}; take its smallest value off"
        )

    if constant and not drop:
        raise UserError(
            f"table: feature {constant[0]!r} is constant over the training samples; leave it out of `features` or "
            "set `constant` to drop"
        )
    if not varying.any():
        raise UserError("table: every feature is constant over the training samples; there is nothing to learn from")
    return varying


def _tasks(column: np.ndarray) -> dict[str, np.ndarray]:
    """Return task -> its rows; names become file names, so unusual characters become underscores."""
    tasks: dict[str, np.ndarray] = {}
    for value in np.unique(column):
        name = re.sub(r"[^\w.-]", "_", str(value))
        if name in tasks:
            raise UserError(f"table: task {str(value)!r} and another are both called {name} in file names; rename it")
        tasks[name] = np.flatnonzero(column == value)
    return tasks


def _task(name: str, classes: tuple[str, ...]) -> Task:
    if not classes:
        return Task(name=name, loss="mse", outputs=1, metrics=("rmse", "mae"))
    return Task(name=name, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",), classes=classes)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _is_whole(column: pa.Array) -> bool:
    """Return whether all numbers are whole, as in a column of classes that once had an empty cell."""
    numbers = column.to_numpy(zero_copy_only=False)
    return bool((numbers == np.floor(numbers)).all())


def _as_texts(column: pa.ChunkedArray) -> np.ndarray:
    return np.array([str(value) for value in column.to_pylist()])
