"""Texts of yours as multi-task problems: a file for each task, described in the experiment file, without code."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa

from mtlscale.config import SPLITS, Task, UserError, knob, nearest
from mtlscale.data.format.texts import words_of
from mtlscale.data.tables.raw_files import Problems, encoding_note
from pipelines._engine.fingerprint import content
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._formats.text_files import QUOTES, SUFFIXES, check_columns, read_rows
from pipelines._sources.named_files import folder_with, is_archive
from pipelines._texts.labelled_texts import TextPipeline, held_out, keys_of, own_splits, sentences
from pipelines._texts.token_ids import RAY_FROM_BYTES
from pipelines.contract import PrepareContext, Prepared

MOST_CLASSES = 1000
PROBLEMS = ("auto", "classification", "regression")
COLUMNS = ("text", "second", "label")
WHOLE_SOURCE = "."  # the source itself, a folder of the `datasets` library
KEYS = ("file", *SPLITS, *COLUMNS, "problem")


@dataclass(frozen=True)
class TextSource:
    """Source of one task: its file or folder, or the file of each part; its columns; the kind of its labels."""

    task: str
    files: Mapping[str, str]  # part -> file; "" if one file or folder has all parts
    text: str
    second: str
    label: str
    problem: str

    @property
    def columns(self) -> list[str]:
        return [name for name in (self.text, self.second, self.label) if name]


@dataclass
class TaskRows:
    """Rows of a task as they were read: their positions, the parts they were given for, their texts and labels."""

    places: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    seconds: list[str | None] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


class Text(TextPipeline):
    """Labelled texts, or pairs of them, in a file of yours for each task, without code.

    The files are TSV, CSV or JSONL, or folders of the `datasets` library. `tasks` names them relative to the experiment
    file, to its `source`, or to --source, which may be an archive: `{reviews: reviews.tsv, pairs: {file: pairs.csv,
    second: answer}, titles: {train: a.jsonl, test: b.jsonl}}`. The options give the columns and the problem of tasks
    that do not name theirs. Folders of the `datasets` library have a column for each role, and their own splits; a task
    without a file belongs to the source itself if that is such a folder, `hf:NAME` included.

    A file is split 80/10/10 by a hash of its words, so that one text is in one split in all tasks. If train and test
    are given, a part of train is held out for validation; if train and validation are given without test, validation
    becomes the test part. Classes are those of the training part; numbers that are not all whole are regression. Words
    are runs of letters and digits, lower-cased; the vocabulary is that of the training texts. A pair is its first text,
    `<sep>`, its second; if it is too long, each text keeps half of the room and any room that the other does not need.

    Files that are not UTF-8 are read as Latin-1, which the manifest says. The manifest also counts texts that were cut,
    texts without a word (kept as an unknown one) and test texts that also occur in training.
    """

    name: ClassVar[str] = "text"
    results_version: ClassVar[int] = 2  # 2: files in the encoding of Windows, lines that end with a return alone
    source: ClassVar[str] = "files of yours"
    folder: ClassVar[str] = "text"
    delta: ClassVar[tuple[str, ...]] = ("accuracy", "rmse")
    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES
    hub: ClassVar[bool] = True

    tasks: dict[str, Any] = knob(
        {}, help="task -> its file, or {file | train, val, test; text, second, label, problem}"
    )
    text: str = knob("text", help="column of the text")
    second: str = knob("", help="column of the second text, where there are pairs")
    label: str = knob("label", help="column of the label")
    problem: str = knob("auto", choices=PROBLEMS, help="auto: regression where numbers are not all whole")
    header: bool = knob(True, help="whether files begin with the names of their columns; else they are called 1, 2, …")
    quotes: str = knob("auto", choices=QUOTES, help="whether fields stand in quotes; auto: in CSV, not in TSV")
    bad: str = knob("refuse", choices=("refuse", "skip"), help="rows that cannot be used stop it, or are left out")
    split: int = knob(0, low=0, help="which random split")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="held out of a given train")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.sources

    @cached_property
    def sources(self) -> tuple[TextSource, ...]:
        """The tasks as they are described; raises `UserError` for unknown keys and values."""
        return tuple(self._source(task, description) for task, description in self.tasks.items())

    def _source(self, task: object, told: object) -> TextSource:
        where = f"text: task {task}"
        description = {"file": told} if isinstance(told, str) else told
        if not isinstance(task, str) or not isinstance(description, Mapping):
            raise UserError(f"{where} should be a name with a file, or with `{{file: …, text: …, label: …}}`")

        for key, value in description.items():
            if key not in KEYS:
                raise UserError(f"{where}: unknown key {key!r}; {nearest(str(key), KEYS)}")
            if not isinstance(value, str):
                raise UserError(f"{where}: {key} = {value!r} should be a text; put it in quotes")

        files = {part: description[part] for part in SPLITS if part in description}
        if ("file" in description and files) or (files and ("train" not in files or len(files) < 2)):
            raise UserError(f"{where}: name its `file`, or its `train` and `test`, and `val` where there is one")
        files = files or {"": description.get("file", WHOLE_SOURCE)}

        for name in files.values():
            if not name or name.startswith(("/", "~")) or ".." in PurePosixPath(name).parts:
                raise UserError(
                    f"{where}: {name!r} should lie below the source; set `source` or --source to its folder"
                )

        settings = {key: description.get(key, getattr(self, key)) for key in (*COLUMNS, "problem")}
        if settings["problem"] not in PROBLEMS:
            raise UserError(f"{where}: problem = {settings['problem']!r} is none of {', '.join(PROBLEMS)}")
        return TextSource(task, files, **settings)

    def files(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name != WHOLE_SOURCE)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.files.values()))

    def locate(self, source: Path) -> Path:
        """Return the folder or archive after checking that it has all the named files."""
        if not self.tasks:
            raise UserError("text: it has no tasks; name a file for each, as in `tasks: {reviews: reviews.tsv}`")
        if not source.is_dir() and not is_archive(source):
            problem = "is a file" if source.exists() else "does not exist"
            raise UserError(f"text: source {source} {problem}; name the folder or archive with the files of `tasks`")

        with folder_with(source, self.files()) as folder:
            for task_source in self.sources:
                for name in task_source.files.values():
                    self._check_there(task_source.task, name, folder, source)

        return source

    def _check_there(self, task: str, name: str, folder: Path, source: Path) -> None:
        if name == WHOLE_SOURCE:
            if not is_hub_folder(folder):
                raise UserError(f"text: task {task}: name its `file`, or its `train` and `test`; {source} is no folder "
                                "that `save_to_disk` wrote")  # fmt: skip
        elif not (folder / name).exists():
            raise UserError(f"text: {name} of task {task} is missing in {source}; correct `tasks`, or name its folder "
                            "by `source` or --source")  # fmt: skip
        elif (folder / name).is_dir() and not is_hub_folder(folder / name):
            raise UserError(f"text: {name} of task {task} is no folder that `save_to_disk` wrote; name one, or a file "
                            f"({', '.join(SUFFIXES)})")  # fmt: skip

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the named files alone, packed or not."""
        assert located is not None
        digest = hashlib.sha256()
        with folder_with(located, self.files()) as folder:
            for name in self._names:
                path = folder / name
                file_hash = content(path) if path.is_file() else HubFolder(self.name, path).fingerprint()
                digest.update(f"{name}\0{file_hash}\n".encode())
        return digest.hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_vectors()
        with folder_with(source, self.files()) as folder:
            return self._prepared(folder, context)

    def _prepared(self, source: Path, context: PrepareContext) -> Prepared:
        problems: Problems = []
        notes: dict[str, Any] = {}
        tables, tasks = [], []

        for task_source in self.sources:
            rows = self._read_tasks(task_source, source, problems, notes)
            if not rows.ids:
                self._settle(problems, context)
                raise UserError(f"text: task {task_source.task} has no row to use; mend its file or leave it out")

            text, second = words_of(rows.texts), words_of(rows.seconds)
            splits = self._splits(task_source, rows.parts, keys_of(text, second), notes)
            try:
                usable, labels, task = _labels(task_source, rows, splits, problems)
            except UserError:
                self._settle(problems, context)  # report unreadable rows first: they may be the cause
                raise

            table = sentences(task_source.task, rows.ids, splits, labels, (text, second), (rows.texts, rows.seconds))
            tables.append(table.filter(pa.array(usable, pa.bool_())))
            tasks.append(task)
            context.progress("read", sum(map(len, tables)), 0)

        notes |= self._settle(problems, context)
        return self.prepared_texts(pa.concat_tables(tables), tasks, context, notes)

    def _settle(self, problems: Problems, context: PrepareContext) -> dict[str, Any]:
        try:
            return replace(context, skip_bad=context.skip_bad or self.bad == "skip").settle(problems, "rows")
        except UserError as error:
            raise UserError(f"text: {error}, or set `bad: skip`") from None

    def _read_tasks(self, of_task: TextSource, source: Path, problems: Problems, notes: dict[str, Any]) -> TaskRows:
        rows = TaskRows()
        for part, name in of_task.files.items():
            if not (source / name).is_dir():
                read = read_rows(f"text: {name}", source / name, of_task.columns, header=self.header,
                                 quotes=self.quotes, mend=_mend(of_task))  # fmt: skip
                for note, names in encoding_note(name, read.encoding).items():
                    notes.setdefault(note, []).extend(names)
                problems += [(position.removeprefix("text: "), problem) for position, problem in read.problems]
                named_rows = [(f"{name} line {line}", f"{of_task.task}/{part}{line:09d}") for line in read.lines]
                _add(rows, of_task, part, named_rows, read.columns, problems)
            else:
                for hub_part, values in _hub_parts(of_task, HubFolder(self.name, source / name), notes):
                    count = len(values[of_task.label])
                    named_rows = [
                        (f"{name} {hub_part} row {row + 1}", f"{of_task.task}/{part}{hub_part}{row:09d}")
                        for row in range(count)
                    ]
                    _add(rows, of_task, part or hub_part, named_rows, values, problems)

        if set(rows.parts) == {"train"}:  # a folder with one split
            rows.parts = [""] * len(rows.parts)

        return rows

    def _splits(
        self, of_task: TextSource, parts: Sequence[str], keys: Sequence[str], notes: dict[str, Any]
    ) -> list[str]:
        salt = f"{self.name}/{self.split}"
        given_parts = set(parts)
        if given_parts <= {""}:
            return own_splits(keys, salt)

        if "test" not in given_parts:
            notes.setdefault("validation_is_test", []).append(of_task.task)
            parts, given_parts = ["test" if part == "val" else part for part in parts], {"train", "test"}

        if "val" in given_parts:
            return list(parts)
        drawn_splits = held_out(keys, self.validation, salt)
        return [drawn_split if part == "train" else part for part, drawn_split in zip(parts, drawn_splits, strict=True)]


def _mend(of_task: TextSource) -> str:
    return f"name it by `text`, `second` or `label`, of all or of task {of_task.task}"


def _hub_parts(
    of_task: TextSource, folder: HubFolder, notes: dict[str, Any]
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yield the columns of every split of a folder; a test part without any label is skipped."""
    for part, split in folder.split_names.items():
        where = f"text: {split} of {folder.root.name}"
        check_columns(where, of_task.columns, folder.names(split), _mend(of_task))
        values = {name: folder.values(split, name) for name in of_task.columns}

        names = folder.class_names(split, of_task.label)
        if names is not None:
            codes = range(len(names))
            values[of_task.label] = [names[code] if code in codes else None for code in values[of_task.label]]

        if part == "test" and all(label is None for label in values[of_task.label]):
            notes.setdefault("test_without_labels", []).append(of_task.task)
            continue
        yield part, values


def _add(
    rows: TaskRows,
    of_task: TextSource,
    part: str,
    places: Sequence[tuple[str, str]],
    columns: Mapping[str, Sequence[Any]],
    problems: Problems,
) -> None:
    """Add the rows that have all that they need."""
    texts = [name for name in (of_task.text, of_task.second) if name]
    for row, (position, id) in enumerate(places):
        empty = next((name for name in texts if not _is_text(columns[name][row])), None)
        label = _label(columns[of_task.label][row])
        if empty is not None or not label:
            problems.append((position, f"has no text in {empty}" if empty is not None else "has no label"))
            continue

        rows.places.append(position)
        rows.ids.append(id)
        rows.parts.append(part)
        rows.texts.append(columns[of_task.text][row])
        rows.seconds.append(columns[of_task.second][row] if of_task.second else None)
        rows.labels.append(label)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _label(value: object) -> str:
    """Return a label as a text file would have it; "" for a missing one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None or value != value or isinstance(value, list | dict) else str(value).strip()


def _labels(
    of_task: TextSource, rows: TaskRows, splits: Sequence[str], problems: Problems
) -> tuple[list[bool], list[float], Task]:
    """Return which rows can be used, the label of every row, and the task."""
    numbers = [_number(label) for label in rows.labels]
    is_finite = [math.isfinite(number) for number in numbers]
    is_integral = [
        number_is_finite and number.is_integer() for number_is_finite, number in zip(is_finite, numbers, strict=True)
    ]

    if of_task.problem == "regression" or (of_task.problem == "auto" and all(is_finite) and not all(is_integral)):
        not_numbers = [
            (position, label)
            for position, label, number_is_finite in zip(rows.places, rows.labels, is_finite, strict=True)
            if not number_is_finite
        ]
        problems += [(position, f"has the label {label[:40]!r}, which is no number") for position, label in not_numbers]
        return is_finite, numbers, Task(name=of_task.task, loss="mse", outputs=1, metrics=("rmse", "mae"))

    counts = Counter(rows.labels)
    training_labels = {label for label, split in zip(rows.labels, splits, strict=True) if split == "train"}
    classes = sorted({label for label in training_labels if counts[label] > 1}, key=_label_order(training_labels))
    if not 2 <= len(classes) <= MOST_CLASSES:
        problem = f"the label {classes[0]!r} alone" if len(classes) == 1 else f"{len(classes)} classes"
        raise UserError(f"text: task {of_task.task} has {problem} in training; name another `label`, or set `problem`")

    codes = {label: float(code) for code, label in enumerate(classes)}
    for position, label in zip(rows.places, rows.labels, strict=True):
        if counts[label] == 1:
            problems.append((position, f"is the only row of {of_task.task} with the label {label[:40]!r}"))
        elif label not in codes:
            problems.append((position, f"has the label {label[:40]!r}, which no training row of {of_task.task} has"))

    task = Task(name=of_task.task, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",),
                classes=tuple(classes))  # fmt: skip
    return [label in codes for label in rows.labels], [codes.get(label, -1.0) for label in rows.labels], task


def _label_order(labels: set[str]) -> Any:
    """Return a sort key: by value if all labels are numbers, else alphabetical."""
    numeric = all(math.isfinite(_number(label)) for label in labels)
    return (lambda label: (_number(label), label)) if numeric else str


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
