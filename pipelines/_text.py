"""Labelled texts to a suite of token ids: the vocabulary of the training texts, fixed-length rows of ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.prepared import SPECIAL_WORDS
from mtlscale.data.texts import encode
from mtlscale.spec import SPLITS, Task, TaskSuite
from pipelines._base import Work
from pipelines._blocks import TableFunction

# Compressed text of this size takes this process longer than starting Ray and letting two cores do it.
RAY_FROM_BYTES = 64e6


def count_words(tokens: pa.Array) -> pa.Table:
    """How often each word occurs in lists of words: columns `word`, `count`."""
    counted = pc.value_counts(tokens.flatten())
    return pa.table({"word": counted.field("values"), "count": counted.field("counts")})


def rank_words(counts: pa.Table, size: int, min_count: int, first: Sequence[str] = ()) -> list[str]:
    """The most frequent words after `SPECIAL_WORDS` and those of `first`, `size` in all; ties in the order of the
    alphabet."""
    summed = counts.group_by("word").aggregate([("count", "sum")])
    frequent = summed.filter(pc.greater_equal(summed["count_sum"], min_count))
    if first:
        frequent = frequent.filter(pc.invert(pc.is_in(frequent["word"], value_set=pa.array(first, pa.string()))))
    ranked = frequent.sort_by([("count_sum", "descending"), ("word", "ascending")])
    before = [*SPECIAL_WORDS, *first]
    return [*before, *ranked["word"][: size - len(before)].to_pylist()]


@dataclass(frozen=True)
class TextOptions:
    """How words become token ids."""

    length: int  # words kept of a text
    vocabulary: int  # token ids in all, `SPECIAL_WORDS` included
    min_count: int  # a rarer word is unknown
    first: tuple[str, ...] = ()  # in the vocabulary however rare


def encode_samples(
    samples: pa.Table, tokenise: TableFunction, options: TextOptions, work: Work
) -> tuple[pa.Table, list[str]]:
    """Labelled texts -> the same rows as token ids, and the vocabulary of the training texts.

    `samples` has `id`, `split`, `stream`, `label` and whatever `tokenise` turns into a column `tokens` (lists of
    words). The result has `input` and `words`, the number of words before cutting, instead.
    """
    tokens = work.blocks(samples).map(tokenise, "tokenise")
    counts = tokens.map(_count_train, "count words").collect()
    words = rank_words(counts, options.vocabulary, options.min_count, options.first)
    return tokens.map(partial(_encode_table, words=words, length=options.length), "encode").collect(), words


def text_tables(encoded: pa.Table, streams: Iterable[str]) -> dict[str, dict[str, pa.Table]]:
    """Encoded rows by split and stream, as a `Prepared` has them; each stream is a task of the same name."""
    names = list(streams)
    return {split: {stream: _select(encoded, split, stream) for stream in names} for split in SPLITS}


def text_suite(name: str, tasks: tuple[Task, ...], words: Sequence[str], length: int) -> TaskSuite:
    """A suite of token rows, one stream a task."""
    return TaskSuite(
        name=name,
        tasks=tasks,
        inputs="per_task",
        input_kind="tokens",
        input_shape=(length,),
        vocabulary_size=len(words),
    )


def _count_train(table: pa.Table) -> pa.Table:
    return count_words(table.filter(pc.field("split") == "train")["tokens"].combine_chunks())


def _encode_table(table: pa.Table, words: Sequence[str], length: int) -> pa.Table:
    tokens = table["tokens"].combine_chunks()
    columns = {name: table[name] for name in ("id", "split", "stream", "label")}
    return pa.table({**columns, "words": pc.list_value_length(tokens), "input": encode(tokens, words, length)})


def _select(encoded: pa.Table, split: str, stream: str) -> pa.Table:
    rows = encoded.filter((pc.field("split") == split) & (pc.field("stream") == stream))
    return pa.table({"id": rows["id"], "input": rows["input"], f"target.{stream}": rows["label"]})
