"""The sentence sets of Kim 2014: sentiment, subjectivity, opinion polarity, kinds of questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from mtlscale.config import UserError, knob, nearest
from mtlscale.data.format.texts import words_of
from mtlscale.data.tables.raw_files import Problems
from pipelines._formats.archive import read_members
from pipelines._texts.labelled_texts import TextPipeline, class_tasks, keys_of, own_splits, sentences
from pipelines.contract import PrepareContext, Prepared

NEGATIVE = ("negative", "positive")
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
QUESTIONS = ("description", "entity", "abbreviation", "human", "location", "number")
LATIN_1, UTF_8 = "latin-1", "utf-8"


@dataclass(frozen=True)
class Set:
    """Files of a task by their official part ("": it has none), their encoding, and its classes."""

    files: dict[str, str]
    encoding: str
    classes: tuple[str, ...]


SETS = {
    "MR": Set({"": "rt-polarity.all"}, LATIN_1, NEGATIVE),
    "SUBJ": Set({"": "subj.all"}, LATIN_1, ("subjective", "objective")),
    "CR": Set({"": "custrev.all"}, UTF_8, NEGATIVE),
    "MPQA": Set({"": "mpqa.all"}, UTF_8, NEGATIVE),
    "TREC": Set({"train": "TREC.train.all", "test": "TREC.test.all"}, LATIN_1, QUESTIONS),
    "SST-1": Set({part: f"stsa.fine.{name}" for part, name in (("train", "train"), ("val", "dev"), ("test", "test"))},
                 UTF_8, FIVE),
    "SST-2": Set({part: f"stsa.binary.{name}" for part, name in (("train", "train"), ("val", "dev"), ("test", "test"))},
                 UTF_8, NEGATIVE),
}  # fmt: skip
DEFAULT = ("MR", "SUBJ", "CR", "MPQA", "TREC", "SST-2")
HELD_FIRST = ("test", "val", "train")  # precedence of the parts for a sentence that occurs in several


class Sentences(TextPipeline):
    """MR, SUBJ, CR, MPQA, TREC and SST-2, or SST-1: sentences with two to six classes, a task for each set.

    The source has the files of `<label> <sentence>` lines that come with Kim's and Harvard NLP's code, in a tar or a
    folder. Words are runs of letters and digits, lower-cased; the vocabulary is that of the training sentences of all
    tasks.

    `split: own` decides 80/10/10 by a hash of a sentence's words: MR, SUBJ and SST share thousands of sentences, each
    of which is in one split in all tasks; pieces of sentences, as SST has some, count as sentences of their own.
    `official` keeps the test part of TREC and the validation and test parts of SST. A sentence of a set without parts
    that also occurs in a part of another set is in that split; the others are drawn as before, and so is a tenth of
    TREC's training part for validation. SST-1 and SST-2 have the same sentences: take one of them.
    """

    name: ClassVar[str] = "sentences"
    source: ClassVar[str] = "Kim 2014; Pang & Lee 2004, 2005; Hu & Liu 2004; Wiebe 2005; Li & Roth 2002; Socher 2013"
    folder: ClassVar[str] = "sentence_tasks"
    archives: ClassVar[tuple[str, ...]] = ("sentence_tasks.tar.gz",)
    roots: ClassVar[tuple[str, ...]] = ("", "sentence_tasks", "data")

    tasks: tuple[str, ...] = knob(DEFAULT, help=f"of {', '.join(SETS)}")
    split: str = knob("own", choices=("own", "official"), help="80/10/10 by hash, or the test parts of TREC and SST")
    length: int = knob(64, low=1, high=65536, help="words kept of a sentence")

    def __post_init__(self) -> None:
        super().__post_init__()
        for task in self.tasks:
            if task not in SETS:
                raise UserError(f"sentences: tasks has {task!r}; {nearest(task, list(SETS))}")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise UserError(f"sentences: tasks = {list(self.tasks)} should name each set once, and at least one")

    def expected(self) -> tuple[str, ...]:
        return tuple(file for task in self.tasks for file in SETS[task].files.values())

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_vectors()
        problems: Problems = []
        tables = [self._read_task(task, parts, problems) for task, parts in self._files(source).items()]
        notes = context.settle(problems, "lines")

        rows = self._split(pa.concat_tables(tables))
        tasks = class_tasks({task: SETS[task].classes for task in self.tasks}, {})
        prepared = self.prepared_texts(rows, tasks, context, notes)
        prepared.notes["sentences_in_several_tasks"] = _shared(rows)

        return prepared

    def _files(self, source: Path) -> dict[str, dict[str, bytes]]:
        """Return task -> official part -> content; `UserError` names the first file that is missing."""
        expected_files = set(self.expected())
        contents = {}
        for name, content in read_members(source, lambda name: name.rpartition("/")[2] in expected_files):
            contents[name.rpartition("/")[2]] = content
        for file in self.expected():
            if file not in contents:
                raise UserError(f"sentences: {file} is missing in {source}; fetch it again, or choose other `tasks`")
        return {task: {part: contents[file] for part, file in SETS[task].files.items()} for task in self.tasks}

    def _read_task(self, task: str, parts: dict[str, bytes], problems: Problems) -> pa.Table:
        """Return the rows of a task, with the official part as their split."""
        sentence_set = SETS[task]
        ids, splits, labels, texts = [], [], [], []

        for part, content in parts.items():
            file = sentence_set.files[part]
            try:
                lines = content.decode(sentence_set.encoding).split("\n")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"sentences: {file} is not {sentence_set.encoding} ({error.reason}); fetch it again"
                ) from None

            for number, line in enumerate(lines, start=1):
                label, _, text = line.partition(" ")
                if label.isdigit() and int(label) < len(sentence_set.classes):
                    ids.append(f"{task}/{part}{number:06d}")
                    splits.append(part)
                    labels.append(float(label))
                    texts.append(text)
                elif line.strip():
                    problems.append(
                        (f"{file} line {number}", f"begins with {label[:20]!r}, which is no class of {task}")
                    )

        text = words_of(texts)

        return sentences(
            task, ids, splits, labels, (text, pa.nulls(len(text), pa.string())), (texts, [None] * len(texts))
        )

    def _split(self, rows: pa.Table) -> pa.Table:
        keys, parts = keys_of(*(rows[name].combine_chunks() for name in ("text", "second"))), rows["split"].to_pylist()
        splits = own_splits(keys, self.name)
        if self.split == "official":
            splits = _official(keys, parts, rows["stream"].to_pylist(), splits)
        return rows.set_column(rows.column_names.index("split"), "split", pa.array(splits, pa.string()))


def _official(keys: list[str], parts: list[str], streams: list[str], drawn: list[str]) -> list[str]:
    """Return the split of every sentence: its official part, else that of an equal sentence, else the drawn split."""
    official_splits = [
        "val" if part == "train" and drawn_split == "val" and "val" not in SETS[stream].files else part
        for part, drawn_split, stream in zip(parts, drawn, streams, strict=True)
    ]
    split_of_key: dict[str, str] = {}
    for key, split in zip(keys, official_splits, strict=True):
        if split and (key not in split_of_key or HELD_FIRST.index(split) < HELD_FIRST.index(split_of_key[key])):
            split_of_key[key] = split
    return [
        split or split_of_key.get(key, drawn_split)
        for key, split, drawn_split in zip(keys, official_splits, drawn, strict=True)
    ]


def _shared(rows: pa.Table) -> dict[str, int]:
    """Count, per task, the sentences that other tasks have, too."""
    keys = keys_of(rows["text"].combine_chunks(), rows["second"].combine_chunks())
    streams = rows["stream"].to_pylist()
    owners: dict[str, set[str]] = {}
    for key, stream in zip(keys, streams, strict=True):
        owners.setdefault(key, set()).add(stream)
    return dict(Counter(stream for key, stream in zip(keys, streams, strict=True) if len(owners[key]) > 1))
