"""Common parts of the pipelines of token-level sets: words with tags, one stream per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, knob, named_files
from mtlscale.data.format.tokenizer import check_tokenizer
from mtlscale.data.sampling.splits import uniform_hash
from mtlscale.data.tables.raw_files import decoded, encoding_note
from pipelines._formats.tagged import TaggedFile, is_iob2
from pipelines._texts.text_features import FEATURES_FROM_BYTES
from pipelines._texts.token_ids import RAY_FROM_BYTES
from pipelines._texts.token_rows import by_subwords, by_words, leaked_counts
from pipelines.contract import Pipeline, PrepareContext, Prepared

_NAMED = 10  # words of each kind listed in the notes
TAGS_OF_WORDS, TAGS_OF_ENTITIES = ("accuracy", "f1", "entity_f1"), ("entity_f1", "accuracy", "f1")


@dataclass
class TaggedCorpus:
    """The content of all files.

    Attributes:
        rows: A table per task and part.
        problems: (place, problem) of unusable sentences.
        counts: Task -> counts of the readers.
        encodings: Note -> the files that are in another encoding than UTF-8.
    """

    rows: list[pa.Table] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    encodings: dict[str, list[str]] = field(default_factory=dict)

    def text(self, where: str, name: str, raw: bytes) -> str:
        """Return the text of a file, recording its encoding if it is not UTF-8."""
        text, encoding = decoded(where, raw)
        for note, names in encoding_note(name, encoding).items():
            self.encodings.setdefault(note, []).extend(names)
        return text

    def add(self, task: str, split: str, reads: Sequence[TaggedFile], classes: Sequence[str], limit: int) -> None:
        """Add the sentences of a part of a task.

        Args:
            reads: The content of the part's files.
            classes: The tags in their order.
            limit: Number of sentences to draw by hash; 0: all.
        """
        codes = {tag: code for code, tag in enumerate(classes)}
        sentences = [sentence for read in reads for sentence in read.sentences]
        ids = [f"{task}/{split}{number:06d}" for number in range(len(sentences))]
        order = list(range(len(ids)))
        if limit and limit < len(ids):
            order = sorted(sorted(order, key=lambda index: uniform_hash(ids[index], "limit"))[:limit])

        for read in reads:
            self.problems += read.problems
            self.counts.setdefault(task, Counter()).update(read.counts)

        chosen = [sentences[index] for index in order]
        columns = {
            "id": pa.array([ids[index] for index in order], pa.string()),
            "split": pa.array([split] * len(chosen), pa.string()),
            "stream": pa.array([task] * len(chosen), pa.string()),
            "words": pa.array([sentence.words for sentence in chosen], pa.list_(pa.string())),
            "tags": pa.array([[codes[tag] for tag in tagged.tags] for tagged in chosen], pa.list_(pa.int16())),
        }

        self.rows.append(pa.table(columns))

    @property
    def notes(self) -> dict[str, Any]:
        """The counts, by name and then by task, and the files in another encoding than UTF-8."""
        names = sorted({name for counts in self.counts.values() for name in counts})
        by_name: dict[str, Any] = {
            name: {task: task_counts[name] for task, task_counts in self.counts.items() if task_counts[name]}
            for name in names
        }
        return by_name | self.encodings


class TaggedPipeline(Pipeline):
    """Pipeline of sentences with a tag for every word; each task has a stream of its own."""

    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES
    without_floors: ClassVar[tuple[str, ...]] = ("linear", "forest", "boosting")  # they work on whole samples

    length: int = knob(
        128, low=4, high=65536, help="most tokens of a sentence, special ones included, or words; longer ones are cut"
    )
    limit: int = knob(0, low=0, high=1e9, help="only so many sentences of each part of a task, drawn by hash; 0: all")
    vocabulary: int = knob(50000, low=4, high=10_000_000, help="word ids in all, padding and unknown included")
    min_count: int = knob(2, low=1, high=1e9, help="a word or a character that is rarer in training is unknown")
    characters: int = knob(16, low=1, high=256, help="of a word, the first so many")
    tokenizer: str | None = knob(
        None, file="tokenizer", help="folder of a pretrained model whose tokenizer makes the token ids; none: words"
    )
    features: bool = knob(False, help="the tokenizer's model, frozen, in place of token ids: a vector for every word")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features:  # a pass through a model takes longer here than starting Ray
            object.__setattr__(self, "ray_from_bytes", FEATURES_FROM_BYTES)

    def options(self) -> dict[str, Any]:
        """Return the knobs; a tokenizer counts by its content, and its model's weights only for features."""
        if self.tokenizer is None:
            return super().options()
        folder = Path(self.tokenizer)
        check_tokenizer(self.name, folder, weights=self.features)
        identity = named_files.identity({"tokenizer": named_files.with_content_hash(self.tokenizer)})
        return super().options() | (identity if self.features else {"tokenizer": named_files.tokenizer_hash(folder)})

    def check_options(self) -> None:
        """Raise `UserError` before anything is read if options contradict."""
        if self.features and self.tokenizer is None:
            raise UserError(f"{self.name}: features are those of a model; name its folder as `tokenizer`")

    def prepared_tags(
        self, corpus: TaggedCorpus, classes: Mapping[str, Sequence[str]], context: PrepareContext
    ) -> Prepared:
        """Return the prepared set of the gathered rows."""
        notes = corpus.notes | context.settle(corpus.problems, "sentences")
        rows = pa.concat_tables(corpus.rows)
        for task in classes:
            self._check_there(task, rows)

        if repeated := leaked_counts(rows):
            notes["test_sentences_in_train_or_val"] = repeated

        encoded, suite, notes = (self._word_rows if self.tokenizer is None else self._subword_rows)(
            rows, classes, context, notes
        )
        sentence_counts, part_counts = _by_task(rows), _by_task(encoded)
        if cut_counts := {
            task: part_counts[task] - sentence_counts[task]
            for task in classes
            if part_counts[task] > sentence_counts[task]
        }:
            notes["cuts_in_long_sentences"] = cut_counts

        vocabulary = notes.pop("vocabulary", None)
        if self.features:
            assert self.tokenizer is not None
            from pipelines._texts.token_features import standardised, with_token_features

            encoded, size = with_token_features(encoded, suite, Path(self.tokenizer), context, target="label")
            encoded = standardised(encoded, size, pc.equal(encoded["split"], "train").to_numpy())
            shape = (suite.input_shape[0], size)
            suite = replace(suite, input_kind="vector", input_shape=shape, vocabulary_size=None, extras={})

        tables = {split: {task: _select(encoded, split, task) for task in classes} for split in SPLITS}
        shapes = dict.fromkeys(classes, (suite.input_shape[0],))
        return Prepared(suite, tables, {**shapes}, vocabulary=vocabulary, notes=notes)

    def _check_there(self, task: str, rows: pa.Table) -> None:
        splits = rows.filter(pc.field("stream") == task)["split"]
        for split in SPLITS:
            if not pc.any(pc.equal(splits, split)).as_py():
                raise UserError(f"{self.name}: {task} has no sentence in {split}; its files are empty, or name others")

    def _word_rows(
        self, rows: pa.Table, classes: Mapping[str, Sequence[str]], context: PrepareContext, notes: dict[str, Any]
    ) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        encoded = by_words(rows, self.length, self.vocabulary, self.min_count, self.characters, context)
        suite = replace(
            self._suite(classes, encoded.width),
            input_shape=(encoded.width, 1 + self.characters),
            vocabulary_size=len(encoded.words),
            extras={"characters": encoded.characters},
        )
        return encoded.rows, suite, notes | {"vocabulary": encoded.words}

    def _subword_rows(
        self, rows: pa.Table, classes: Mapping[str, Sequence[str]], context: PrepareContext, notes: dict[str, Any]
    ) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        assert self.tokenizer is not None
        folder = Path(self.tokenizer)
        encoded = by_subwords(self.name, rows, self.length, folder, context)

        for note, words in (
            ("words_the_tokenizer_drops", encoded.dropped),
            ("words_longer_than_a_sentence", encoded.long),
        ):
            if words:
                first = [word for word, _ in sorted(words.items(), key=lambda one: (-one[1], one[0]))[:_NAMED]]
                notes = notes | {note: {"count": words.total(), "first": first}}

        tokenizer_info = {
            "sha256": named_files.tokenizer_hash(folder),
            "padding": encoded.frame.padding,
            "separator": encoded.frame.separator,
        }
        suite = replace(
            self._suite(classes, encoded.width),
            vocabulary_size=encoded.frame.size,
            extras={"tokenizer": tokenizer_info},
        )
        return encoded.rows, suite, notes | {"tokens_kept": encoded.frame.limit}

    def _suite(self, classes: Mapping[str, Sequence[str]], width: int) -> TaskSuite:
        tasks = tuple(
            Task(
                name=task,
                loss="cross_entropy",
                outputs=len(tags),
                metrics=TAGS_OF_ENTITIES if is_iob2(set(tags)) else TAGS_OF_WORDS,
                classes=tuple(tags),
                per="token",
            )
            for task, tags in classes.items()
        )
        return TaskSuite(name=self.name, tasks=tasks, inputs="per_task", input_kind="tokens", input_shape=(width,))


def check_languages(name: str, languages: Iterable[str]) -> None:
    """Raise `UserError` unless there is at least one language and each is named once."""
    named = list(languages)
    if not named or len(set(named)) < len(named):
        raise UserError(f"{name}: languages = {named} should name each language once, and at least one")


def _by_task(rows: pa.Table) -> Counter[str]:
    return Counter(rows["stream"].to_pylist())


def _select(encoded: pa.Table, split: str, task: str) -> pa.Table:
    rows = encoded.filter((pc.field("split") == split) & (pc.field("stream") == task))
    return pa.table({"id": rows["id"], "input": rows["input"], f"target.{task}": rows["label"]})
