"""Pictures of yours in a folder: labels in a table beside them, or in the names of their folders, without code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob, nearest
from mtlscale.data.format.table_columns import category_names
from mtlscale.data.tables.notations import DECIMALS, Question
from mtlscale.data.tables.raw_files import Problems, is_hidden
from mtlscale.data.tables.table_file import ROW, read_table
from mtlscale.data.tables.table_format import SUFFIXES, TableFormat, is_table_file
from pipelines._engine.fingerprint import content
from pipelines._formats.hub import SPLIT_NAMES
from pipelines._images.indexed_images import DecodedColumn, Files, ImagePipeline, Row, index_table, prepared_images
from pipelines._images.pixels import colour
from pipelines._sources.file_store import Store
from pipelines._steps.features import TEST, VALIDATION
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.shared_table import scaled_labels
from pipelines._tables.targets import check_kinds, labels_of, read_target, target_uses
from pipelines._tables.text_columns import read_texts, refuse_questions
from pipelines.contract import PrepareContext, Prepared

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
CLASS, SPLIT, IMAGE = "class", "split", "image"  # columns of a folder without a table of labels


class ImageFolder(ImagePipeline):
    """Pictures in a folder, with a table of labels or `<class>/` folders, scaled to size x size pixels.

    The folder has pictures, in sub-folders or zips as well, and a CSV, TSV, Parquet or ARFF file of labels: a column
    names the picture (its path below the folder, its name, or its name without the ending), others are targets.
    `targets` gives their kinds as those of `table`. Without such a file, the folder of a picture is its class, and a
    folder train, val or test above it its split. Pictures that the table does not name, and rows whose picture is not
    there, stop the preparation and are named, or are left out with --skip-bad; a label may be missing. Pictures are
    turned as their Exif says, what is transparent becomes white, and more than 8 bits are scaled by their range. The
    split is random by the picture's name and keeps one of each class in training, or goes by `group` or `split_column`.
    Targets of regression have mean 0 and variance 1 over training.
    """

    name: ClassVar[str] = "image_folder"
    results_version: ClassVar[int] = 2  # 2: more than 8 bits are scaled, Exif turns, transparency is on white
    source: ClassVar[str] = "a folder of yours"
    folder: ClassVar[str] = "image_folder"
    delta: ClassVar[tuple[str, ...]] = ("accuracy", "auroc", "rmse")

    size: int = knob(64, low=8, high=1024, help="pixels of height and width")
    white: float = knob(
        0.0,
        low=0.0,
        later=True,
        help="value of white in pictures of more than 8 bits; 0: 65535, or 1 of floats",
    )
    labels: str = knob("", help="the table of labels, if the folder has several")
    image: str = knob("", help="the column that names the picture; none: the first whose cells are pictures")
    targets: dict[str, Any] = knob({}, help="target column -> class, regression, multilabel or auto; none: all columns")
    separator: str = knob("auto", help="of the tags of a multilabel target; auto: the first of ; | ,")
    missing: tuple[str, ...] | None = knob(
        None, later=True, help="texts that are empty cells, such as ?; none: NA, null, NaN …, unless a value"
    )
    decimal: str = knob("", choices=DECIMALS, later=True, help="mark before decimals, . or ,; none: point, or asked")
    group: str = knob("", help="column whose values are not divided between splits")
    split_column: str = knob("", help="column with train, val or test")
    scale_targets: bool = knob(True, help="targets of regression to mean 0 and variance 1 over training")
    test: float = knob(TEST, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the pictures for test")
    validation: float = knob(
        VALIDATION, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the rest for validation"
    )
    split: int = knob(0, low=0, help="which random split")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kinds(self.name, self.targets)
        self.row_split()
        if self.white and self.encoded:
            raise UserError("image_folder: `white` changes the pictures, `encoded` keeps them as they are; drop one")

    def row_split(self, column: str = "") -> RowSplit:
        """Return the rule that splits the pictures; `column` names the splits unless `split_column` does."""
        return RowSplit(pipeline=self.name, test=self.test, validation=self.validation, seed=self.split,
                        group=self.group, column=self.split_column or column)  # fmt: skip

    @property
    def form(self) -> TableFormat:
        """How the table of labels is written."""
        return TableFormat(decimal=self.decimal, missing=self.missing)

    def selects(self, name: str) -> bool:
        return PurePosixPath(name).suffix.lower() in PICTURES

    def locate(self, source: Path) -> Path:
        if not source.is_dir():
            problem = "is a file" if source.exists() else "does not exist"
            raise UserError(f"image_folder: source {source} {problem}; name the folder with the pictures")
        return source

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the names and sizes of the pictures, and the table of labels."""
        assert located is not None
        labels = self.label_file(located)
        label_hash = "" if labels is None else f"{labels.name}\0{content(labels)}"
        return hashlib.sha256(f"{self.store(located).fingerprint()}\0{label_hash}".encode()).hexdigest()

    def label_file(self, source: Path) -> Path | None:
        """Return the table of labels; None if the folder has none."""
        files = sorted(
            path for path in source.iterdir() if path.is_file() and is_table_file(path) and not is_hidden(path.name)
        )
        if self.labels:
            if not is_table_file(source / self.labels):
                raise UserError(f"image_folder: labels {self.labels} is none of {', '.join(SUFFIXES)}; convert it")
            if not (source / self.labels).is_file():
                names = ", ".join(path.name for path in files) or "no table"
                raise UserError(f"image_folder: {self.labels} is missing in {source}, which has {names}")
            return source / self.labels
        if len(files) > 1:
            names = ", ".join(path.name for path in files)
            raise UserError(f"image_folder: {source} holds {names}; name the one with the labels by option `labels`")
        return files[0] if files else None

    def read(self, source: Path, problems: Problems) -> tuple[Store, pa.Table, dict[str, Any]]:
        """Return the pictures, a table with the name of one in the column `IMAGE` of every row, and notes.

        Pictures without a row and rows without a picture are added to the problems.
        """
        store = self.store(source)
        if not store.names:
            raise UserError(f"image_folder: {source} has no picture ({', '.join(PICTURES)})")

        labels = self.label_file(source)
        if labels is None:
            return store, self._class_folders(store, problems), {}
        read = read_table(labels, self.form, where=f"image_folder: {labels.name}")
        problems += read.problems
        table, notes = read.table, read.notes
        if read.questions:
            raise UserError(read.questions[0])
        table = _with_pictures(table, self._image_column(table, store, labels.name), store, labels.name, problems)
        return store, table, notes

    def target_kinds(self, table: pa.Table) -> Mapping[str, str]:
        """Return target column -> kind: those of `targets`, or all columns without another role."""
        roles = (IMAGE, ROW, SPLIT if SPLIT in split_folders(table) else "", self.group, self.split_column, self.image)
        available = [name for name in table.column_names if name not in (IMAGE, ROW)]
        for option, name in (*(("targets", target) for target in self.targets), ("group", self.group),
                             ("split_column", self.split_column)):  # fmt: skip
            if name and name not in available:
                hint = nearest(name, available)
                raise UserError(f"image_folder: there is no column {name!r}; {hint}; correct `{option}`")
        kinds = self.targets or {name: "auto" for name in available if name not in roles}
        if not kinds:
            raise UserError("image_folder: the table has no column beside the pictures' names; add the labels")
        return kinds

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        problems: Problems = []
        store, table, notes = self.read(source, problems)
        table = table.slice(0, self.limit) if self.limit else table
        names = table[IMAGE].to_pylist()

        kinds = self.target_kinds(table)
        questions: dict[str, Question] = {}
        table = read_texts(table, target_uses(table.schema, kinds), self.form, names, problems, questions)
        refuse_questions(self.name, questions, "`targets` as class, if it is one")
        targets = [
            read_target(self.name, table, column, kind, self.separator, names, problems)
            for column, kind in kinds.items()
        ]
        classes = [target.codes for target in targets if target.kind == "class"]
        context.settle(problems, "images")
        splits = self.row_split(split_folders(table)).rows(table, np.array(names, dtype=object), classes)
        labels = [pair for target in targets for pair in labels_of(self.name, target, splits, names, problems)]
        scaled, scaling = scaled_labels(labels, splits["train"]) if self.scale_targets else (labels, {})

        split_of = {row: split for split in SPLITS for row in splits[split].tolist()}
        bad = {name for name, _ in problems}
        good_rows = [row for row, name in enumerate(names) if name not in bad]
        rows = [{"id": names[row], "split": split_of[row], "image": store.location(names[row])} for row in good_rows]
        index = index_table(rows, ["image"])
        for task, values in scaled:
            values = values[good_rows].astype(np.int64 if task.classes else np.float32)
            index = index.append_column(f"target.{task.name}", pa.array(values))

        shape = (3, self.size, self.size)
        return prepared_images(
            self._suite([task for task, _ in labels], shape, scaling),
            index,
            partial(decode_picture, size=self.size, white=self.white),
            {"input": DecodedColumn("uint8", shape)},
            str(store.root),
            problems,
            context,
            self.encoded_modality,
            notes,
        )

    def _suite(self, tasks: list[Task], shape: tuple[int, ...], scaling: Mapping[str, list[float]]) -> TaskSuite:
        names = [task.name for task in tasks]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"image_folder: two targets are both called {twice}; rename a column")
        return TaskSuite(
            name=self.name,
            tasks=tuple(tasks),
            inputs="shared",
            input_kind="image",
            input_shape=shape,
            extras={"target_scaling": scaling} if scaling else {},
        )

    def _image_column(self, table: pa.Table, store: Store, file: str) -> str:
        """Return the column that names the pictures."""
        available = [name for name in table.column_names if name != ROW]
        if self.image:
            if self.image not in available:
                hint = nearest(self.image, available)
                raise UserError(f"image_folder: {file} has no column {self.image!r}; {hint}; correct `image`")
            return self.image

        known_names = _known_names(store)
        for name in available:
            cells = set(category_names(table[name])) if not pa.types.is_nested(table[name].type) else set()
            if 2 * sum(cell in known_names for cell in cells) > len(cells):
                return name
        raise UserError(f"image_folder: no column of {file} names pictures of the folder; name it by option `image`")

    def _class_folders(self, store: Store, problems: Problems) -> pa.Table:
        """Return the table of pictures whose folders are their classes and, above those, their splits."""
        names, classes, splits = [], [], []
        for name in store.names:
            folders = PurePosixPath(name).parts[:-1]
            if not folders:
                problems.append((name, "lies in no folder of a class, and there is no table of labels"))
                continue
            names.append(name)
            classes.append(folders[-1])
            splits.append(SPLIT_NAMES.get(folders[-2].lower(), "") if len(folders) > 1 else "")

        if not names:
            raise UserError(
                f"image_folder: {store.source} has no table of labels ({', '.join(SUFFIXES)}) and no folders of classes"
            )
        columns = {IMAGE: names, CLASS: classes}
        if all(splits):
            columns[SPLIT] = splits
        return pa.table(columns).append_column(ROW, pa.array(range(len(names))))


def decode_picture(row: Row, files: Files, size: int, white: float) -> dict[str, np.ndarray]:
    """Decode one picture to size x size pixels."""
    return {"input": colour(files("image"), (size, size), white)[0]}


def split_folders(table: pa.Table) -> str:
    """Return the column of splits of a folder without a table of labels; "" if there is none."""
    return SPLIT if table.column_names == [IMAGE, CLASS, SPLIT, ROW] else ""


def _known_names(store: Store) -> dict[str, str]:
    """Return what a table may call a picture -> its name: its path, or its file's name or stem if no other has it."""
    known_names: dict[str, str] = {}
    ambiguous: set[str] = set()
    for name in store.names:
        path = PurePosixPath(name)
        for short in {path.name, path.stem, path.with_suffix("").as_posix()} - {name}:
            if known_names.setdefault(short, name) != name:
                ambiguous.add(short)
    for short in ambiguous:
        del known_names[short]
    return known_names | {name: name for name in store.names}


def _with_pictures(table: pa.Table, column: str, store: Store, file: str, problems: Problems) -> pa.Table:
    """Return the rows whose picture is there, its name in the column `IMAGE`; the column that named it is dropped."""
    known_names, row_of, positions, names = _known_names(store), dict[str, int](), [], []
    for position, (row, cell) in enumerate(zip(table[ROW].to_pylist(), category_names(table[column]), strict=True)):
        name = known_names.get(cell.replace("\\", "/").removeprefix("./"))
        if name is None:
            problems.append((f"{file} row {row + 1}", f"names {cell or 'no picture'!r}, which is not in the folder"))
        elif name in row_of:
            problems.append((f"{file} row {row + 1}", f"names {name}, as row {row_of[name] + 1} does"))
        else:
            row_of[name] = row
            positions.append(position)
            names.append(name)

    problems += [(name, f"is a picture that {file} does not name") for name in store.names if name not in row_of]
    if not positions:
        raise UserError(f"image_folder: column {column!r} of {file} names no picture of the folder; correct `image`")
    table = table.take(pa.array(positions)).drop_columns([column])
    if IMAGE in table.column_names:
        raise UserError(f"image_folder: {file} has a column {IMAGE!r} beside the one of the pictures; rename it")
    return table.append_column(IMAGE, pa.array(names))
