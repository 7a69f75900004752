"""Conversion of labelled texts to token ids: a vocabulary of the training texts, rows of fixed length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, TaskSuite
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.format.texts import encode
from pipelines._engine.blocks import TableFunction
from pipelines.contract import PrepareContext

# Above this size of compressed text, starting Ray and working on two cores is faster than this process alone.
RAY_FROM_BYTES = 64e6


def count_words(tokens: pa.Array) -> pa.Table:
    """Count each word in lists of words: columns `word`, `count`."""
    counted = pc.value_counts(tokens.flatten())
    return pa.table({"word": counted.field("values"), "count": counted.field("counts")})


def rank_words(counts: pa.Table, size: int, min_count: int, first: Sequence[str] = ()) -> list[str]:
    """Return the vocabulary: `SPECIAL_WORDS`, the words of `first`, then the most frequent words.

    Equally frequent words are in alphabetical order.

    Args:
        counts: Columns `word` and `count`; a word may occur in several rows.
        size: Number of words in all.
        min_count: Rarer words are left out.
        first: Words that are included however rare.
    """
    summed = counts.group_by("word").aggregate([("count", "sum")])
    frequent = summed.filter(pc.greater_equal(summed["count_sum"], min_count))
    if first:
        frequent = frequent.filter(pc.invert(pc.is_in(frequent["word"], value_set=pa.array(first, pa.string()))))

    ranked = frequent.sort_by([("count_sum", "descending"), ("word", "ascending")])
    fixed_words = [*SPECIAL_WORDS, *first]
    return [*fixed_words, *ranked["word"][: size - len(fixed_words)].to_pylist()]


@dataclass(frozen=True)
class TextOptions:
    """The settings that turn words into token ids."""

    length: int  # words of a text; the remaining ones are cut
    vocabulary: int  # token ids in all, `SPECIAL_WORDS` included
    min_count: int  # a rarer word is unknown
    first: tuple[str, ...] = ()  # words in the vocabulary however rare


def encode_samples(
    samples: pa.Table, tokenise: TableFunction, options: TextOptions, context: PrepareContext
) -> tuple[pa.Table, list[str]]:
    """Return the labelled texts as token ids, and the vocabulary of the training texts.

    Args:
        samples: Columns `id`, `split`, `stream`, `label`, and those that `tokenise` reads.
        tokenise: Function that replaces the latter by a column `tokens` of lists of words. The result has `input` and
            `words`, the number of words before cutting, instead.
        options: The settings of the conversion.
    """
    tokens = context.blocks(samples).map(tokenise, "tokenise")
    counts = tokens.map(_count_train, "count words").collect()
    words = rank_words(counts, options.vocabulary, options.min_count, options.first)

    return tokens.map(partial(_encode_table, words=words, length=options.length), "encode").collect(), words


def text_tables(encoded: pa.Table, streams: Iterable[str]) -> dict[str, dict[str, pa.Table]]:
    """Return encoded rows by split and stream for a `Prepared`; each stream is a task of the same name."""
    names = list(streams)
    return {split: {stream: _select(encoded, split, stream) for stream in names} for split in SPLITS}


def text_suite(name: str, tasks: tuple[Task, ...], words: Sequence[str], length: int) -> TaskSuite:
    """Return a suite of token rows, one stream per task."""
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
