"""20 Newsgroups: four topics, with four groups to tell apart in each."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import Task, TaskSuite, UserError, knob
from mtlscale.data.format.texts import latin1_words, split_words
from mtlscale.data.sampling.splits import carve_validation, hash_split
from pipelines._formats.archive import read_members
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._texts.pretrained_texts import PretrainedTexts
from pipelines._texts.token_ids import TextOptions, encode_samples, text_suite, text_tables
from pipelines.contract import Download, PrepareContext, Prepared

TOPICS = {
    "comp": ("comp.os.ms-windows.misc", "comp.sys.mac.hardware", "comp.graphics", "comp.windows.x"),
    "rec": ("rec.sport.baseball", "rec.sport.hockey", "rec.autos", "rec.motorcycles"),
    "sci": ("sci.crypt", "sci.electronics", "sci.med", "sci.space"),
    "talk": ("talk.politics.mideast", "talk.religion.misc", "talk.politics.misc", "talk.politics.guns"),
}
STRIPPABLE = ("headers", "footers", "quotes")
LABELS = {group: (topic, label) for topic, groups in TOPICS.items() for label, group in enumerate(groups)}
OFFICIAL_SPLITS = ("20news-bydate-train", "20news-bydate-test")
RANDOM = {"train": 0.6, "val": 0.2, "test": 0.2}
BYDATE_VALIDATION = 0.2  # share of the official training part


class Newsgroups(PretrainedTexts):
    """20 Newsgroups (bydate): four topic tasks (comp, rec, sci, talk) of four groups each, as token ids.

    The tasks are those of AAMTRL, ICML 2020. Messages are Latin-1. Words are runs of letters and digits, lower-cased;
    the vocabulary is that of the training messages, and word vectors are fitted on them alone. Messages without a word
    are dropped and counted. `split="random"` decides 60/20/20 by a hash of group and number; `"bydate"` keeps the
    official test part and holds 20 % of the other messages out for validation.

    A set of the `datasets` library has the columns text and label_text (the group) or label (numbers that it names),
    and its own splits train and test; many of these copies come without headers, footers and quotes.
    """

    name: ClassVar[str] = "newsgroups"
    source: ClassVar[str] = "Lang 1995, the bydate version of qwone.com/~jason/20Newsgroups"
    folder: ClassVar[str] = "20newsgroups"
    archives: ClassVar[tuple[str, ...]] = ("20news-bydate.tar.xz", "20news-bydate.tar.gz", "20news-bydate.zip")
    roots: ClassVar[tuple[str, ...]] = ("", "20news-bydate")
    # The copy that scikit-learn fetches, with its checksum.
    download: ClassVar[Download | None] = Download(
        url="https://ndownloader.figshare.com/files/5975967",
        filename="20news-bydate.tar.gz",
        sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    )
    engine: ClassVar[Literal["ray", "auto"]] = "ray"
    words: ClassVar[str | None] = "latin1"
    hub: ClassVar[bool] = True

    split: str = knob("random", choices=("random", "bydate"), help="60/20/20 by hash, or the official test part")
    strip: tuple[str, ...] = knob((), help="of headers, footers, quotes: what to leave out")
    length: int = knob(256, low=1, high=65536, help="words or tokens kept of a message")
    vocabulary: int = knob(20000, low=3, high=10_000_000, help="token ids in all, padding and unknown included")
    min_count: int = knob(1, low=1, high=1e9, help="a rarer word is unknown")

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.strip:
            if part not in STRIPPABLE:
                raise UserError(f"newsgroups: strip = {part!r} is none of {', '.join(STRIPPABLE)}")

    def expected(self) -> tuple[str, ...]:
        return tuple(f"{part}/{group}" for part in OFFICIAL_SPLITS for group in LABELS)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        self.check_vectors()
        messages, problems = self.read_hub(source) if is_hub_folder(source) else self.read(source, context)
        notes = context.settle(problems, "messages")
        _check_groups(source, messages)

        tokenised = partial(tokenise, strip=self.strip)
        words: list[str] = []
        if self.tokenizer is not None:
            has_words = pc.greater(pc.list_value_length(tokenised(messages)["tokens"]), 0)
            notes["messages_without_words_dropped"] = len(messages) - pc.sum(has_words).as_py()
            filled, suite, cut = self._tokenized(messages.filter(has_words), context)
            notes |= cut
        else:
            options = TextOptions(self.length, self.vocabulary, self.min_count)
            encoded, words = encode_samples(messages, tokenised, options, context)
            filled = encoded.filter(pc.field("words") > 0)
            notes["messages_without_words_dropped"] = len(encoded) - len(filled)
            suite = text_suite(self.name, TASKS, words, self.length)

        def train() -> pa.ListArray:
            return tokenised(messages.filter(pc.field("split") == "train"))["tokens"].combine_chunks()

        return Prepared(
            suite,
            text_tables(filled, TOPICS),
            vocabulary=words or None,
            extra=self.fit_vectors(train, words, context),
            notes=notes,
        )

    def _tokenized(self, messages: pa.Table, context: PrepareContext) -> tuple[pa.Table, TaskSuite, dict[str, Any]]:
        texts = [_stripped(raw, self.strip).decode("latin-1") for raw in messages["raw"].to_pylist()]
        rows, pairs = messages.drop_columns("raw"), (texts, [None] * len(texts))
        return self.tokenized(rows, pairs, self.length, TASKS, context)

    def read(self, source: Path, context: PrepareContext) -> tuple[pa.Table, list[tuple[str, str]]]:
        """Read the messages of the chosen groups, and list those that are no text."""
        rows: dict[str, list[object]] = {"id": [], "split": [], "stream": [], "label": [], "raw": []}
        problems = []
        size = 0

        for name, raw in read_members(source, _is_selected):
            size += len(raw)
            part, group, number = name.split("/")[-3:]
            if b"\0" in raw:
                problems.append((name, "is not text: it contains NUL bytes"))
                continue

            topic, label = LABELS[group]
            id = f"{group}/{number}"
            for column, value in zip(rows.values(), (id, self._split_of(part, id), topic, label, raw), strict=True):
                column.append(value)

            if len(rows["id"]) % 1000 == 0:
                context.progress("read", len(rows["id"]), 0, size)
        return pa.table({**rows, "label": pa.array(rows["label"], pa.int8())}), problems

    def read_hub(self, source: Path) -> tuple[pa.Table, list[tuple[str, str]]]:
        """Read the same from a set of the `datasets` library; split and row identify a message."""
        hub = HubFolder(self.name, source)
        column = hub.columns({"text": ("text", "data"), "group": ("label_text", "group", "newsgroup", "label")})

        rows: dict[str, list[object]] = {"id": [], "split": [], "stream": [], "label": [], "raw": []}
        problems = []

        for part, split in hub.split_names.items():
            official = OFFICIAL_SPLITS[part == "test"]
            groups = _groups(hub, split, column["group"])
            for row, (text, group) in enumerate(zip(hub.values(split, column["text"]), groups, strict=True)):
                if group not in LABELS:
                    continue
                if text is None or "\0" in text:
                    problems.append((f"{split} row {row + 1}", "is not text: it is empty or contains NUL"))
                    continue

                topic, label = LABELS[group]
                id = f"{group}/{part}{row:06d}"
                raw = text.encode("latin-1", "replace")
                cells = (id, self._split_of(official, id), topic, label, raw)
                for values, value in zip(rows.values(), cells, strict=True):
                    values.append(value)

        return pa.table({**rows, "label": pa.array(rows["label"], pa.int8())}), problems

    def _split_of(self, part: str, id: str) -> str:
        if self.split == "random":
            return hash_split(id, RANDOM, self.name)
        return "test" if part == OFFICIAL_SPLITS[1] else carve_validation(id, BYDATE_VALIDATION, self.name)


TASKS = tuple(
    Task(name=topic, loss="cross_entropy", outputs=len(groups), metrics=("accuracy",), classes=groups)
    for topic, groups in TOPICS.items()
)


def _is_selected(name: str) -> bool:
    parts = name.split("/")[-3:]
    return len(parts) == 3 and parts[0] in OFFICIAL_SPLITS and parts[1] in LABELS


def _groups(hub: HubFolder, split: str, column: str) -> list[str]:
    values = hub.values(split, column)
    if all(isinstance(value, str) for value in values):
        return values
    names = hub.class_names(split, column)
    if names is None or not all(isinstance(value, int) and value < len(names) for value in values):
        raise UserError(
            f"newsgroups: column {column} of {hub.root} holds numbers without names; add label_text with the groups"
        )
    return [names[value] for value in values]


def _check_groups(source: Path, messages: pa.Table) -> None:
    """Raise `UserError` for a group without a message; an archive cannot be checked before it is read."""
    present = {id.rsplit("/", 1)[0] for id in messages["id"].to_pylist()}
    for group, (topic, _) in LABELS.items():
        if group not in present:
            raise UserError(
                f"newsgroups: {source} has no message in {OFFICIAL_SPLITS[0]}/{group}: a class of task {topic} is empty"
            )


def tokenise(table: pa.Table, strip: tuple[str, ...]) -> pa.Table:
    """Convert raw messages to lists of words."""
    raw = table["raw"].to_pylist()
    if strip:
        raw = [_stripped(message, strip) for message in raw]
    text = pa.array([latin1_words(message) for message in raw], pa.string())
    return table.drop_columns("raw").append_column("tokens", split_words(text))


def _stripped(raw: bytes, strip: tuple[str, ...]) -> bytes:
    """Remove the named parts by the rules of scikit-learn's `fetch_20newsgroups(remove=...)`."""
    from sklearn.datasets import _twenty_newsgroups as rules

    text = raw.decode("latin-1")
    # The order is scikit-learn's and matters: footers are looked for before quotes are removed.
    if "headers" in strip:
        text = rules.strip_newsgroup_header(text)
    if "footers" in strip:
        text = rules.strip_newsgroup_footer(text)
    if "quotes" in strip:
        text = rules.strip_newsgroup_quoting(text)
    return text.encode("latin-1")
