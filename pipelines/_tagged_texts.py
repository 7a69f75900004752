"""Words with tags, one stream a task: what the pipelines of token-level sets share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.splits import uniform_hash
from mtlscale.data.tokenizer import check_tokenizer
from mtlscale.spec import SPLITS, Task, TaskSuite, UserError, files, knob
from pipelines._base import Pipeline, Prepared, Work
from pipelines._tagged import Read, is_iob2
from pipelines._text import RAY_FROM_BYTES
from pipelines._text_files import LATIN_1, decoded
from pipelines._token_rows import by_pieces, by_words, seen

FEATURES_FROM_BYTES = 1e6
_NAMED = 10  # words of each kind that the notes name
TAGS_OF_WORDS, TAGS_OF_ENTITIES = ("accuracy", "f1", "entity_f1"), ("entity_f1", "accuracy", "f1")


@dataclass
class Gathered:
    """What was read of all files: rows by task and part, problems, and counts by task."""

    rows: list[pa.Table] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    latin_1: list[str] = field(default_factory=list)

    def text(self, where: str, name: str, raw: bytes) -> str:
        """The text of a file."""
        text, encoding = decoded(where, raw)
        if encoding == LATIN_1:
            self.latin_1.append(name)
        return text

    def add(self, task: str, split: str, reads: Sequence[Read], classes: Sequence[str], limit: int) -> None:
        """The sentences of a part, of several files; classes: the tags in their order."""
        codes = {tag: code for code, tag in enumerate(classes)}
        sentences = [sentence for read in reads for sentence in read.sentences]
        ids = [f"{task}/{split}{number:06d}" for number in range(len(sentences))]
        order = list(range(len(ids)))
        if limit and limit < len(ids):
            order = sorted(sorted(order, key=lambda place: uniform_hash(ids[place], "limit"))[:limit])
        for read in reads:
            self.problems += read.problems
            self.counts.setdefault(task, Counter()).update(read.counts)
        chosen = [sentences[place] for place in order]
        columns = {
            "id": pa.array([ids[place] for place in order], pa.string()),
            "split": pa.array([split] * len(chosen), pa.string()),
            "stream": pa.array([task] * len(chosen), pa.string()),
            "words": pa.array([sentence.words for sentence in chosen], pa.list_(pa.string())),
            "tags": pa.array([[codes[tag] for tag in one.tags] for one in chosen], pa.list_(pa.int16())),
        }
        self.rows.append(pa.table(columns))

    @property
    def notes(self) -> dict[str, Any]:
        """Counts by what was counted, then by task."""
        names = sorted({name for counts in self.counts.values() for name in counts})
        told: dict[str, Any] = {name: {task: its[name] for task, its in self.counts.items() if its[name]}
                                for name in names}  # fmt: skip
        return told | ({"read_as_latin_1": self.latin_1} if self.latin_1 else {})


class TaggedPipeline(Pipeline):
    """A pipeline of sentences with a tag for every word; a task is a stream of its own."""

    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES
    without_floors: ClassVar[tuple[str, ...]] = ("linear",)  # it looks at whole samples

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
        if self.features:  # a pass through a model takes this process longer than starting Ray
            object.__setattr__(self, "ray_from_bytes", FEATURES_FROM_BYTES)

    def options(self) -> dict[str, Any]:
        """A tokenizer counts by what it holds, and its model where features are wanted."""
        if self.tokenizer is None:
            return super().options()
        folder = Path(self.tokenizer)
        check_tokenizer(self.name, folder, weights=self.features)
        whole = files.identity({"tokenizer": files.known(self.tokenizer)})
        return super().options() | (whole if self.features else {"tokenizer": files.tokenizer_hash(folder)})

    def check_options(self) -> None:
        """Said before anything is read."""
        if self.features and self.tokenizer is None:
            raise UserError(f"{self.name}: features are those of a model; name its folder as `tokenizer`")

    def prepared_tags(self, gathered: Gathered, classes: Mapping[str, Sequence[str]], work: Work) -> Prepared:
        """The rows as `Prepared` has them; classes: task -> its tags."""
        notes = gathered.notes | work.settle(gathered.problems, "sentences")
        rows = pa.concat_tables(gathered.rows)
        for task in classes:
            self._check_there(task, rows)
        if again := seen(rows):
            notes["test_sentences_in_train_or_val"] = again
        encoded, suite, notes = (self._words if self.tokenizer is None else self._pieces)(rows, classes, work, notes)
        whole, parts = _by_task(rows), _by_task(encoded)
        if cut := {task: parts[task] - whole[task] for task in classes if parts[task] > whole[task]}:
            notes["cuts_in_long_sentences"] = cut
        vocabulary = notes.pop("vocabulary", None)
        if self.features:
            assert self.tokenizer is not None
            from pipelines._token_features import standardised, with_token_features

            encoded, size = with_token_features(encoded, suite, Path(self.tokenizer), work, target="label")
            encoded = standardised(encoded, size, pc.equal(encoded["split"], "train").to_numpy())
            shape = (suite.input_shape[0], size)
            suite = replace(suite, input_kind="vector", input_shape=shape, vocabulary_size=None, extras={})
        tables = {split: {task: _select(encoded, split, task) for task in classes} for split in SPLITS}
        shapes = dict.fromkeys(classes, (suite.input_shape[0],))
        return Prepared(suite, tables, {**shapes}, vocabulary=vocabulary, notes=notes)

    def _check_there(self, task: str, rows: pa.Table) -> None:
        its = rows.filter(pc.field("stream") == task)["split"]
        for split in SPLITS:
            if not pc.any(pc.equal(its, split)).as_py():
                raise UserError(f"{self.name}: {task} has no sentence in {split}; its files are empty, or name others")

    def _words(
        self, rows: pa.Table, classes: Mapping[str, Sequence[str]], work: Work, notes: dict[str, Any]
    ) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        found = by_words(rows, self.length, self.vocabulary, self.min_count, self.characters, work)
        suite = replace(
            self._suite(classes, found.width),
            input_shape=(found.width, 1 + self.characters),
            vocabulary_size=len(found.words),
            extras={"characters": found.characters},
        )
        return found.rows, suite, notes | {"vocabulary": found.words}

    def _pieces(
        self, rows: pa.Table, classes: Mapping[str, Sequence[str]], work: Work, notes: dict[str, Any]
    ) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        assert self.tokenizer is not None
        folder = Path(self.tokenizer)
        found = by_pieces(self.name, rows, self.length, folder, work)
        for what, words in (("words_the_tokenizer_drops", found.dropped), ("words_longer_than_a_sentence", found.long)):
            if words:
                first = [word for word, _ in sorted(words.items(), key=lambda one: (-one[1], one[0]))[:_NAMED]]
                notes = notes | {what: {"count": words.total(), "first": first}}
        told = {
            "sha256": files.tokenizer_hash(folder),
            "padding": found.frame.padding,
            "separator": found.frame.separator,
        }
        suite = replace(self._suite(classes, found.width), vocabulary_size=found.frame.size, extras={"tokenizer": told})
        return found.rows, suite, notes | {"tokens_kept": found.frame.most}

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
    """`UserError` unless each is named once, and at least one is."""
    named = list(languages)
    if not named or len(set(named)) < len(named):
        raise UserError(f"{name}: languages = {named} should name each language once, and at least one")


def _by_task(rows: pa.Table) -> Counter[str]:
    return Counter(rows["stream"].to_pylist())


def _select(encoded: pa.Table, split: str, task: str) -> pa.Table:
    rows = encoded.filter((pc.field("split") == split) & (pc.field("stream") == task))
    return pa.table({"id": rows["id"], "input": rows["input"], f"target.{task}": rows["label"]})
