"""Tagged words in files of yours, a word and a tag on every line; the experiment file describes the tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from mtlscale.config import SPLITS, UserError, knob, nearest
from mtlscale.data.sampling.splits import carve_validation
from mtlscale.data.tables.raw_files import unpacked
from pipelines._engine.fingerprint import content
from pipelines._formats.tagged import (
    BEGINS,
    INSIDE,
    OUTSIDE,
    TaggedFile,
    in_iob2,
    is_iob2,
    read_columns,
    scheme_of,
    with_beginnings,
)
from pipelines._sources.named_files import folder_with
from pipelines._texts.tagged_texts import TaggedCorpus, TaggedPipeline
from pipelines.contract import PrepareContext, Prepared

KEYS = (*SPLITS, "word", "tag")
MOST_TAGS = 1000


@dataclass(frozen=True)
class TaskFiles:
    """Files of a task by split, and its columns."""

    task: str
    files: Mapping[str, str]
    word: int
    tag: int


class Conll(TaggedPipeline):
    """Words with tags in files of yours: a word per line, a blank line after each sentence; a task for each file set.

    `tasks` names the files relative to the experiment file, to its `source`, or to --source, which may be an archive:
    `{ner: {train: a.conll, test: b.conll}, pos: {train: a.conll, val: c.conll, test: b.conll, tag: 2}}`. Columns are
    counted from 1, or from -1 at the end. They are separated by tabs in a file that has any, else by spaces;
    `-DOCSTART-` lines and comments (`# …`) are skipped, as are fused tokens (`1-2`) and empty nodes (`1.1`) of CoNLL-U.
    Without val, a part of train is held out by a hash of its words.

    Tags are those of all tasks together (`tags: shared`) or of each task (`own`); one that training does not have is a
    class, and counted. If they are entity tags (`O`, `B-` and `I-`), an entity that starts with `I-` is read as a
    beginning and counted, so that IOB1 becomes IOB2, as IOBES, BILOU and BMES do.
    """

    name: ClassVar[str] = "conll"
    results_version: ClassVar[int] = 2  # 2: comments, other schemes of entities, tags that training does not have
    source: ClassVar[str] = "files of yours"
    folder: ClassVar[str] = "conll"

    tasks: dict[str, Any] = knob({}, help="task -> {train, test, val: its files; word, tag: its columns}")
    word: int = knob(1, low=-99, high=99, help="column of the word")
    tag: int = knob(-1, low=-99, high=99, help="column of the tag")
    tags: str = knob("shared", choices=("shared", "own"), help="one set of tags for all tasks, or each its own")
    validation: float = knob(0.1, low=0.0, high=0.5, open_low=True, open_high=True, help="held out of a train without")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.sources

    @cached_property
    def sources(self) -> tuple[TaskFiles, ...]:
        """The tasks as they are described; raises `UserError` for unknown keys and values."""
        return tuple(self._source(task, description) for task, description in self.tasks.items())

    def _source(self, task: object, told: object) -> TaskFiles:
        where = f"conll: task {task}"
        if not isinstance(task, str) or not isinstance(told, Mapping):
            raise UserError(f"{where} should be a name with `{{train: FILE, test: FILE}}`")

        for key, value in told.items():
            if key not in KEYS:
                raise UserError(f"{where}: unknown key {key!r}; {nearest(str(key), KEYS)}")
            if not isinstance(value, str if key in SPLITS else int) or isinstance(value, bool):
                raise UserError(f"{where}: {key} = {value!r} should be {'a file' if key in SPLITS else 'a column'}")

        files = {split: told[split] for split in SPLITS if split in told}
        if not {"train", "test"} <= set(files):
            raise UserError(f"{where}: name its `train` and its `test`, and `val` where there is one")
        for name in files.values():
            if not name or name.startswith(("/", "~")) or ".." in PurePosixPath(name).parts:
                raise UserError(
                    f"{where}: {name!r} should lie below the source; set `source` or --source to its folder"
                )

        word, tag = told.get("word", self.word), told.get("tag", self.tag)
        if word == tag or 0 in (word, tag):
            raise UserError(f"{where}: word = {word} and tag = {tag} should be two columns, counted from 1 or from -1")

        return TaskFiles(task, files, word, tag)

    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in self.sources for name in source.files.values()))

    def locate(self, source: Path) -> Path:
        """Return the folder or archive after checking that it has all the named files."""
        if not self.tasks:
            raise UserError("conll: it has no tasks; name their files, as in `tasks: {ner: {train: a, test: b}}`")

        with folder_with(source, self.files()) as folder:
            for task_source in self.sources:
                for name in task_source.files.values():
                    if not (folder / name).is_file():
                        raise UserError(f"conll: {name} of task {task_source.task} is missing in {source}; correct "
                                        "`tasks`, or name its folder by `source` or --source")  # fmt: skip

        return source

    def source_fingerprint(self, located: Path | None) -> str:
        """Hash the named files alone, packed or not."""
        assert located is not None
        with folder_with(located, self.files()) as folder:
            listing = "".join(f"{name}\0{content(folder / name)}\n" for name in self.files())
        return hashlib.sha256(listing.encode()).hexdigest()

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_options()
        with folder_with(source, self.files()) as folder:
            return self._prepared(folder, context)

    def _prepared(self, source: Path, context: PrepareContext) -> Prepared:
        gathered = TaggedCorpus()
        reads = {task_source.task: self._reads(task_source, source, gathered) for task_source in self.sources}
        trained = {task: _tags(by_split["train"]) for task, by_split in reads.items()}
        present = {task: set().union(*map(_tags, by_split.values())) for task, by_split in reads.items()}
        if self.tags == "shared":
            all_classes = _classes(set().union(*trained.values()), set().union(*present.values()))
            classes = dict.fromkeys(reads, all_classes)
        else:
            classes = {task: _classes(trained[task], present[task]) for task in reads}

        for task, tags in classes.items():
            if not 2 <= len(tags) <= MOST_TAGS:
                raise UserError(f"conll: task {task} has {len(tags)} tags in training; name another column by `tag`")

        for task_source in self.sources:
            task, tags = task_source.task, classes[task_source.task]
            by_split = {split: _usable(f"conll: {task_source.files[split]}", read, tags)
                        for split, read in reads[task].items()}  # fmt: skip
            if "val" not in by_split:
                by_split["train"], by_split["val"] = self._held_out(by_split["train"])
            seen = set(_classes(trained[task], trained[task]))
            for split in SPLITS:
                read = with_beginnings(by_split[split]) if is_iob2(set(tags)) else by_split[split]
                read.count("tags_not_in_training", sum(tag not in seen for one in read.sentences for tag in one.tags))
                gathered.add(task, split, [read], tags, self.limit)
                context.progress("read", sum(map(len, gathered.rows)), 0)

        return self.prepared_tags(gathered, classes, context)

    def _reads(self, of_task: TaskFiles, source: Path, corpus: TaggedCorpus) -> dict[str, TaggedFile]:
        """Return split -> the sentences of its file, tags of other schemes of entities as IOB2."""
        reads = {}
        for split, name in of_task.files.items():
            where = f"conll: {name}"
            text = corpus.text(where, name, unpacked(where, source / name))
            read = reads[split] = read_columns(where, text, of_task.word, of_task.tag)
            if not read.sentences:
                reason = f", {' '.join(read.problems[0])}" if read.problems else ""
                raise UserError(
                    f"{where} of task {of_task.task} has no sentence to use{reason}; mend it or name another"
                )

        scheme = scheme_of(_tags(reads["train"]))
        return {split: in_iob2(read, scheme) for split, read in reads.items()}

    def _held_out(self, read: TaggedFile) -> tuple[TaggedFile, TaggedFile]:
        """Divide a part into train and validation; equal sentences go to the same one."""
        parts: dict[str, list[Any]] = {"train": [], "val": []}
        for sentence in read.sentences:
            parts[carve_validation("\t".join(sentence.words), self.validation, self.name)].append(sentence)
        return TaggedFile(parts["train"], read.problems, read.counts), TaggedFile(parts["val"])


def _tags(read: TaggedFile) -> set[str]:
    return {tag for sentence in read.sentences for tag in sentence.tags}


def _classes(trained: set[str], present: set[str]) -> tuple[str, ...]:
    """Return the tags of training in order, then those that other parts alone have."""
    if not is_iob2(trained):
        return (*sorted(trained), *sorted(present - trained))
    # For entities, `O` first, then `B-` and `I-` of every kind, even if one is absent.
    kinds, others = _kinds(trained), _kinds({tag for tag in present if is_iob2({tag})})
    all_kinds = (*sorted(kinds), *sorted(others - kinds))
    return (OUTSIDE, *(start + kind for kind in all_kinds for start in (BEGINS, INSIDE)))


def _kinds(tags: set[str]) -> set[str]:
    return {tag[len(BEGINS) :] for tag in tags if tag != OUTSIDE}


def _usable(where: str, read: TaggedFile, tags: Sequence[str]) -> TaggedFile:
    """Return the sentences whose tags are classes; others are problems."""
    known = set(tags)
    good = [sentence for sentence in read.sentences if known.issuperset(sentence.tags)]
    bad = [
        (f"{where} line {sentence.line + place}", f"has the tag {tag[:20]!r}, none of {', '.join(sorted(known)[:20])}")
        for sentence in read.sentences
        for place, tag in enumerate(sentence.tags)
        if tag not in known
    ]
    return TaggedFile(good, [*read.problems, *bad], read.counts)
