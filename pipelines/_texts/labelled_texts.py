"""Texts with labels, one stream per task: their words, splits by content, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, knob
from mtlscale.data.format.texts import SEPARATOR, join_pairs, split_words
from mtlscale.data.sampling.splits import carve_validation, hash_split
from pipelines._texts.pretrained_texts import (
    FEATURES,
    FEATURES_HELP,
    TOKENIZER_HELP,
    PretrainedTexts,
    count_by_task,
)
from pipelines._texts.token_ids import TextOptions, encode_samples, text_suite
from pipelines.contract import PrepareContext, Prepared

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
_FIELDS = ("id", "split", "stream", "label", "text", "second", "written", "written_second")


class TextPipeline(PretrainedTexts):
    """Pipeline of labelled texts, or pairs of them, that become token ids."""

    words: ClassVar[str | None] = "unicode"

    length: int = knob(256, low=1, high=65536, help="words kept of a text, or of a pair with what stands between")
    vocabulary: int = knob(20000, low=4, high=10_000_000, help="token ids in all, padding and unknown included")
    min_count: int = knob(1, low=1, high=1e9, help="a rarer word is unknown")
    # They were there before any run was, so that they always distinguish a preparation.
    tokenizer: str | None = knob(None, file="tokenizer", help=TOKENIZER_HELP)
    features: str = knob("none", choices=FEATURES, help=FEATURES_HELP)

    def prepared_texts(
        self, rows: pa.Table, tasks: Sequence[Task], context: PrepareContext, notes: dict[str, Any]
    ) -> Prepared:
        """Return the encoded texts, with notes on texts that were cut, have no word, or occur in two splits.

        Rows are no wider than the longest text needs.
        """
        notes = notes | count_by_task("test_texts_in_train_or_val", rows, _leaked_rows(rows))
        if self.tokenizer is not None:
            texts, seconds = (rows[name].to_pylist() for name in ("written", "written_second"))
            labelled = rows.select(["id", "split", "stream", "label"])
            encoded, suite, more = self.tokenized(labelled, (texts, seconds), self.length, tasks, context)
            tables = {split: {task.name: _select(encoded, split, task) for task in tasks} for split in SPLITS}
            return Prepared(suite, tables, notes=notes | more)

        rows = rows.drop_columns(["written", "written_second"])
        pairs = rows["second"].null_count < len(rows)
        first_words = (SEPARATOR,) if pairs else ()
        options = TextOptions(self.length, self.vocabulary, self.min_count, first_words)
        encoded, words = encode_samples(rows, partial(tokenise, length=self.length), options, context)

        def train() -> pa.ListArray:
            return tokenise(rows.filter(pc.field("split") == "train"), self.length)["tokens"].combine_chunks()

        notes |= count_by_task("texts_cut", encoded, pc.greater(encoded["words"], self.length))
        notes |= count_by_task("texts_without_words", encoded, pc.equal(encoded["words"], 0))

        width = max(1, min(self.length, pc.max(encoded["words"]).as_py() or 1))
        inputs = _narrowed(encoded["input"].combine_chunks(), width)
        encoded = encoded.set_column(encoded.column_names.index("input"), "input", inputs)

        tables = {split: {task.name: _select(encoded, split, task) for task in tasks} for split in SPLITS}
        return Prepared(
            text_suite(self.name, tuple(tasks), words, width),
            tables,
            vocabulary=words,
            extra=self.fit_vectors(train, words, context),
            notes=notes,
        )


def sentences(
    stream: str,
    ids: Sequence[str],
    splits: Sequence[str],
    labels: Sequence[float],
    words: tuple[pa.Array, pa.Array],
    written: tuple[Sequence[str | None], Sequence[str | None]],
) -> pa.Table:
    """Return the rows of one stream for `prepared_texts`.

    Args:
        words: Texts and second texts, null where there is none, as words between spaces.
        written: The same texts as they are written.
    """
    columns = (pa.array(ids, pa.string()), pa.array(splits, pa.string()), pa.array([stream] * len(ids), pa.string()),
               pa.array(labels, pa.float64()), *words, *(pa.array(text, pa.string()) for text in written))  # fmt: skip

    return pa.table(dict(zip(_FIELDS, columns, strict=True)))


def keys_of(text: pa.Array, second: pa.Array) -> list[str]:
    """Return the key of each text or pair: its words, so that equal texts have equal keys."""
    joined = pc.binary_join_element_wise(text, second, f" {SEPARATOR} ", null_handling="skip")
    return [str(key) for key in joined.to_pylist()]


def own_splits(keys: Sequence[str], salt: str) -> list[str]:
    """Return splits of 80/10/10 by hash: the same text is in the same split, whatever its task."""
    return [hash_split(key, SHARES, salt) for key in keys]


def held_out(keys: Sequence[str], fraction: float, salt: str) -> list[str]:
    """Return train or val for each text of a training part."""
    return [carve_validation(key, fraction, salt) for key in keys]


def tokenise(table: pa.Table, length: int) -> pa.Table:
    """Convert texts and pairs to lists of words, pairs by `join_pairs`."""
    text, second = (table[name].combine_chunks() for name in ("text", "second"))
    tokens = split_words(text)
    if second.null_count < len(second):
        seconds = split_words(pc.fill_null(second, ""))
        tokens = join_pairs(tokens, seconds, second.is_valid().to_pylist(), length)
    return table.drop_columns(["text", "second"]).append_column("tokens", tokens)


def _leaked_rows(rows: pa.Table) -> pa.Array:
    """Return a mask of the test rows whose text also occurs in train or validation of any task."""
    keys = pa.array(keys_of(rows["text"].combine_chunks(), rows["second"].combine_chunks()), pa.string())
    test = pc.equal(rows["split"], "test").combine_chunks()
    return pc.and_(test, pc.is_in(keys, value_set=keys.filter(pc.invert(test))))


def _narrowed(inputs: pa.FixedSizeListArray, width: int) -> pa.FixedSizeListArray:
    matrix = inputs.flatten().to_numpy().reshape(len(inputs), inputs.type.list_size)
    return pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(matrix[:, :width]).ravel(), width)


def _select(encoded: pa.Table, split: str, task: Task) -> pa.Table:
    rows = encoded.filter((pc.field("split") == split) & (pc.field("stream") == task.name))
    kind = pa.int16() if task.loss == "cross_entropy" else pa.float32()
    return pa.table({"id": rows["id"], "input": rows["input"], f"target.{task.name}": rows["label"].cast(kind)})


def class_tasks(classes: Mapping[str, Sequence[str]], metrics: Mapping[str, tuple[str, ...]]) -> list[Task]:
    """Return tasks of classes; a task that `metrics` does not name reports accuracy."""
    return [
        Task(name=name, loss="cross_entropy", outputs=len(names), metrics=metrics.get(name, ("accuracy",)),
             classes=tuple(names))
        for name, names in classes.items()
    ]  # fmt: skip
