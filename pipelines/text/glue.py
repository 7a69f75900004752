"""GLUE: sentences and sentence pairs from the benchmark's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from mtlscale.config import Task, UserError, knob, nearest
from mtlscale.data.format.texts import words_of
from mtlscale.data.tables.raw_files import Problems
from pipelines._engine.fingerprint import content
from pipelines._formats.text_files import read_rows
from pipelines._texts.labelled_texts import TextPipeline, held_out, keys_of, sentences
from pipelines._texts.token_ids import RAY_FROM_BYTES
from pipelines.contract import PrepareContext, Prepared

ENTAILMENT = ("entailment", "not_entailment")
F1 = ("binary_f1", "accuracy")


@dataclass(frozen=True)
class GlueTask:
    """Columns of a task's files, its classes as the files write them (none: numbers), and its metrics."""

    text: str
    second: str
    label: str
    classes: tuple[str, ...]
    metrics: tuple[str, ...]
    dev: str = "dev.tsv"
    header: bool = True


LAYOUTS = {
    "CoLA": GlueTask("4", "", "2", ("0", "1"), ("matthews", "accuracy"), header=False),
    "MRPC": GlueTask("#1 String", "#2 String", "Quality", ("0", "1"), F1),
    "QNLI": GlueTask("question", "sentence", "label", ENTAILMENT, ("accuracy",)),
    "RTE": GlueTask("sentence1", "sentence2", "label", ENTAILMENT, ("accuracy",)),
    "SST-2": GlueTask("sentence", "", "label", ("0", "1"), ("accuracy",)),
    "STS-B": GlueTask("sentence1", "sentence2", "score", (), ("pearson", "spearman")),
    "QQP": GlueTask("question1", "question2", "is_duplicate", ("0", "1"), F1),
    "MNLI": GlueTask("sentence1", "sentence2", "gold_label", ("contradiction", "entailment", "neutral"), ("accuracy",),
                   dev="dev_matched.tsv"),
}  # fmt: skip
DEFAULT = ("CoLA", "MRPC", "QNLI", "RTE", "SST-2")
TRAIN = "train.tsv"


class Glue(TextPipeline):
    """GLUE: CoLA, MRPC, QNLI, RTE and SST-2, or STS-B, QQP and MNLI too, each with its own metric.

    The source has the official files, `<task>/train.tsv` and `<task>/dev.tsv` (MNLI: `dev_matched.tsv`); quotes in them
    are text. The official test parts have no labels, so the development part is the test part, as is usual in reports,
    and a share of train is held out for validation by a hash of the words. CoLA reports Matthews correlation, MRPC and
    QQP F1 of the positive class, STS-B (a regression) Pearson and Spearman correlation, the others accuracy.

    Words are runs of letters and digits, lower-cased; a pair is its first text, `<sep>`, its second. SST-2's training
    part has several phrases of one sentence, which may fall into both training and validation.
    """

    name: ClassVar[str] = "glue"
    source: ClassVar[str] = "Wang et al., ICLR 2019; gluebenchmark.com"
    folder: ClassVar[str] = "glue"
    roots: ClassVar[tuple[str, ...]] = ("", "glue_data", "GLUE")
    delta: ClassVar[tuple[str, ...]] = ("matthews", "binary_f1", "accuracy", "pearson")
    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES

    tasks: tuple[str, ...] = knob(DEFAULT, help=f"of {', '.join(LAYOUTS)}")
    length: int = knob(128, low=1, high=65536, help="words kept of a text or pair")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="share held out of train")

    def __post_init__(self) -> None:
        super().__post_init__()
        for task in self.tasks:
            if task not in LAYOUTS:
                raise UserError(f"glue: tasks has {task!r}; {nearest(task, list(LAYOUTS))}")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise UserError(f"glue: tasks = {list(self.tasks)} should name each task once, and at least one")

    def expected(self) -> tuple[str, ...]:
        return tuple(f"{task}/{file}" for task in self.tasks for file in (TRAIN, LAYOUTS[task].dev))

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the chosen tasks' files alone, or the source if it is a file."""
        assert located is not None
        if located.is_file():
            return content(located)
        listing = "".join(f"{file}\0{content(located / file)}\n" for file in self.expected())
        return hashlib.sha256(listing.encode()).hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_vectors()
        if source.is_file():
            raise UserError(f"glue: {source.name} is a file; unpack it and pass the folder with {self.expected()[0]}")

        problems: Problems = []
        tables = []
        for task in self.tasks:
            tables += [self._read_task(task, source, part, problems) for part in ("train", "test")]
            context.progress("read", sum(map(len, tables)), 0)

        notes = context.settle(problems, "rows")
        return self.prepared_texts(pa.concat_tables(tables), [_task(name) for name in self.tasks], context, notes)

    def _read_task(self, task: str, source: Path, part: str, problems: Problems) -> pa.Table:
        layout = LAYOUTS[task]
        file = f"{task}/{TRAIN if part == 'train' else layout.dev}"
        columns = [name for name in (layout.text, layout.second, layout.label) if name]
        read = read_rows(f"glue: {file}", source / file, columns, header=layout.header, quotes="never",
                         mend="fetch the official files")  # fmt: skip
        problems += [(position.removeprefix("glue: "), problem) for position, problem in read.problems]

        values = [_value(label, layout.classes) for label in read.columns[layout.label]]
        usable_rows = [row for row, value in enumerate(values) if value is not None]
        for row in sorted(set(range(len(values))) - set(usable_rows)):
            label = read.columns[layout.label][row]
            problems.append((f"{file} line {read.lines[row]}", f"has the label {label[:40]!r}, which {task} has not"))

        texts = [read.columns[layout.text][row] for row in usable_rows]
        seconds = [read.columns[layout.second][row] if layout.second else None for row in usable_rows]
        text, second = words_of(texts), words_of(seconds)

        ids = [f"{task}/{'dev' if part == 'test' else part}/{read.lines[row]:09d}" for row in usable_rows]
        splits = (
            [part] * len(usable_rows) if part == "test" else held_out(keys_of(text, second), self.validation, self.name)
        )
        return sentences(
            task, ids, splits, [values[row] or 0.0 for row in usable_rows], (text, second), (texts, seconds)
        )


def _value(label: str, classes: Sequence[str]) -> float | None:
    """Return the class index or the number of a label; None if it is invalid."""
    label = label.strip()
    if classes:
        return float(classes.index(label)) if label in classes else None
    try:
        value = float(label)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _task(name: str) -> Task:
    layout = LAYOUTS[name]
    if not layout.classes:
        return Task(name=name, loss="mse", outputs=1, metrics=(*layout.metrics, "rmse"))
    return Task(
        name=name, loss="cross_entropy", outputs=len(layout.classes), metrics=layout.metrics, classes=layout.classes
    )
