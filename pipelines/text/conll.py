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
from pipelines._formats.tagged import BEGINS, INSIDE, OUTSIDE, TaggedFile, is_iob2, read_columns, with_beginnings
from pipelines._sources.named_files import folder_with
from pipelines._steps.fingerprint import content
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
    counted from 1, or from -1 at the end. They are separated by tabs in a file that has any, else by white space;
    `-DOCSTART-` lines are skipped. Without val, a part of train is held out by a hash of its words.

    Tags are those of the training part, of all tasks together (`tags: shared`) or of each task (`own`). If they are
    entity tags (`O`, `B-` and `I-`), an entity that starts with `I-` is read as a beginning and counted, so that IOB1
    becomes IOB2.
    """

    name: ClassVar[str] = "conll"
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
        train = {
            task_source.task: self._read_task(task_source, "train", source, gathered, None)
            for task_source in self.sources
        }

        raw_tags_of = {
            task: {tag for sentence in read.sentences for tag in sentence.tags} for task, read in train.items()
        }
        classes = {task: _classes(raw_tags) for task, raw_tags in raw_tags_of.items()}
        if self.tags == "shared":
            all_classes = _classes(set().union(*raw_tags_of.values()))
            classes = dict.fromkeys(classes, all_classes)

        for task, tags in classes.items():
            if not 2 <= len(tags) <= MOST_TAGS:
                raise UserError(f"conll: task {task} has {len(tags)} tags in training; name another column by `tag`")

        for task_source in self.sources:
            tags = classes[task_source.task]
            reads = {split: self._read_task(task_source, split, source, gathered, tags) for split in task_source.files
                     if split != "train"}  # fmt: skip
            reads = {"train": train[task_source.task], **reads}
            if "val" not in reads:
                reads["train"], reads["val"] = self._held_out(reads["train"])
            for split in SPLITS:
                read = with_beginnings(reads[split]) if is_iob2(set(tags)) else reads[split]
                gathered.add(task_source.task, split, [read], tags, self.limit)
                context.progress("read", sum(map(len, gathered.rows)), 0)

        return self.prepared_tags(gathered, classes, context)

    def _read_task(
        self, of_task: TaskFiles, split: str, source: Path, corpus: TaggedCorpus, tags: Sequence[str] | None
    ) -> TaggedFile:
        name = of_task.files[split]
        where = f"conll: {name}"
        text = corpus.text(where, name, unpacked(where, source / name))
        read = read_columns(where, text, of_task.word, of_task.tag, tags=tags)
        if not read.sentences:
            reason = f", {' '.join(read.problems[0])}" if read.problems else ""
            raise UserError(f"{where} of task {of_task.task} has no sentence to use{reason}; mend it or name another")
        return read

    def _held_out(self, read: TaggedFile) -> tuple[TaggedFile, TaggedFile]:
        """Divide a part into train and validation; equal sentences go to the same one."""
        parts: dict[str, list[Any]] = {"train": [], "val": []}
        for sentence in read.sentences:
            parts[carve_validation("\t".join(sentence.words), self.validation, self.name)].append(sentence)
        return TaggedFile(parts["train"], read.problems, read.counts), TaggedFile(parts["val"])


def _classes(tags: set[str]) -> tuple[str, ...]:
    """Return the tags in order; for entities `O` first, then `B-` and `I-` of every kind, even if one is absent."""
    if not is_iob2(tags):
        return tuple(sorted(tags))
    kinds = sorted({tag[len(BEGINS) :] for tag in tags if tag != OUTSIDE})
    return (OUTSIDE, *(start + kind for kind in kinds for start in (BEGINS, INSIDE)))
