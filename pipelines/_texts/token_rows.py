"""Rows of sentences with a tag for every word: words with their characters, or a tokenizer's pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import MISSING_CLASS, UserError
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.format.texts import PADDING, UNKNOWN
from mtlscale.data.format.tokenizer import SpecialTokens, exchanged, frame, subword_ids
from pipelines._texts.token_ids import count_words, rank_words
from pipelines.contract import PrepareContext

_KEYS = ("id", "split", "stream")


@dataclass(frozen=True)
class Words:
    """The sentences as words.

    Attributes:
        rows: Rows with `input` and `label`.
        words: The words by their ids.
        characters: The characters, from id 2 on.
        width: The words of the longest row.
    """

    rows: pa.Table
    words: list[str]
    characters: list[str]
    width: int


@dataclass(frozen=True)
class Subwords:
    """The sentences as a tokenizer's pieces.

    Attributes:
        rows: Rows with `input` and `label`.
        frame: The tokenizer's frame.
        width: The tokens of the longest row.
        dropped: Words that the tokenizer has no token for.
        long: Words that are longer than the room.
    """

    rows: pa.Table
    frame: SpecialTokens
    width: int
    dropped: Counter[str]
    long: Counter[str]


def by_words(
    rows: pa.Table, length: int, vocabulary: int, min_count: int, characters: int, context: PrepareContext
) -> Words:
    """Return sentences as ids [width, 1 + characters]: each lower-cased word, then its first characters as written.

    Args:
        rows: Rows of lists `words` and `tags`.
        length: Words in a row; longer sentences are cut into several rows.
        vocabulary: Number of word ids in all.
        min_count: Rarer words and characters are unknown.
        characters: Number of characters of a word.
    """
    rows = context.blocks(rows).map(partial(_in_parts, length=length), "cut").collect()

    train = rows.filter(pc.field("split") == "train")["words"].combine_chunks()
    ranked_words = rank_words(
        count_words(
            pa.ListArray.from_arrays(pa.array([0, len(train.flatten())], pa.int32()), pc.utf8_lower(train.flatten()))
        ),
        vocabulary,
        min_count,
    )
    alphabet = _alphabet(train, min_count)
    width = pc.max(pc.list_value_length(rows["words"])).as_py() or 1

    encode = partial(_encoded, words=ranked_words, alphabet=alphabet, characters=characters, width=width)
    return Words(context.blocks(rows).map(encode, "encode").collect(), ranked_words, alphabet, width)


def by_subwords(where: str, rows: pa.Table, length: int, folder: Path, context: PrepareContext) -> Subwords:
    """Return sentences as token ids, padding 0; a word's tag is at its first piece that has part of it.

    A sentence of more tokens than there is room for is cut between words, as XTREME does. A word that the tokenizer
    drops, or that is longer than the room, becomes the unknown token.

    Args:
        where: The pipeline, for messages.
        rows: Rows of lists `words` and `tags`.
        length: Tokens in a row, special ones included.

    Raises:
        UserError: The tokenizer has no unknown token but needs one; the message names a word.
    """
    around = frame(where, folder, length)
    tokenised = partial(_tokenised, where=where, folder=folder, around=around)
    pieces_table = context.blocks(rows).map(tokenised, "tokenise").collect()

    dropped, long = (Counter(pieces_table[name].combine_chunks().flatten().to_pylist()) for name in ("dropped", "long"))
    if around.unknown is None and (dropped or long):
        word = min(dropped or long)
        raise UserError(f"{where}: the tokenizer of {folder} has no token for {word!r}, and none for unknown words; "
                        "take another tokenizer")  # fmt: skip

    width = len(around.before) + len(around.after) + (pc.max(pc.list_value_length(pieces_table["pieces"])).as_py() or 1)
    encoded = context.blocks(pieces_table).map(partial(_framed, around=around, width=width), "encode").collect()

    return Subwords(encoded, around, width, dropped, long)


def leaked_counts(rows: pa.Table) -> dict[str, int]:
    """Return the number of each task's test sentences that also occur, word for word, in its train or validation."""
    keys = pc.binary_join(rows["words"].combine_chunks(), "\t")
    keys = pc.binary_join_element_wise(rows["stream"], keys, "\n")
    test = pc.equal(rows["split"], "test")
    is_repeated = pc.and_(test, pc.is_in(keys, value_set=keys.filter(pc.invert(test))))
    return dict(sorted(Counter(rows["stream"].filter(is_repeated).to_pylist()).items()))


def _in_parts(table: pa.Table, length: int) -> pa.Table:
    """Cut sentences after every `length` words."""
    if (pc.max(pc.list_value_length(table["words"])).as_py() or 0) <= length:
        return table
    parts: list[dict[str, Any]] = []
    for row in table.to_pylist():
        starts = range(0, len(row["words"]), length)
        for number, start in enumerate(starts):
            parts.append({**row, "id": part_of(row["id"], number), "words": row["words"][start : start + length],
                          "tags": row["tags"][start : start + length]})  # fmt: skip
    return pa.Table.from_pylist(parts, table.schema)


def part_of(id: str, number: int) -> str:
    """Return the id of the number-th part of a sentence; the first part has the sentence's own id."""
    return f"{id}+{number}" if number else id


def _alphabet(words: pa.ListArray, min_count: int) -> list[str]:
    """Return the characters of words with at least `min_count` occurrences, the most frequent first."""
    counts: Counter[str] = Counter()
    for word, count in zip(
        *(counted.to_pylist() for counted in pc.value_counts(words.flatten()).flatten()), strict=True
    ):
        for character in word:
            counts[character] += count
    return sorted(
        (letter for letter in counts if counts[letter] >= min_count), key=lambda letter: (-counts[letter], letter)
    )


def _encoded(table: pa.Table, words: Sequence[str], alphabet: Sequence[str], characters: int, width: int) -> pa.Table:
    lists = table["words"].combine_chunks()
    distinct = lists.flatten().dictionary_encode()
    index = pc.index_in(
        pc.utf8_lower(distinct.dictionary), value_set=pa.array(words[len(SPECIAL_WORDS) :], pa.string())
    )
    ids = np.full((len(distinct.dictionary), 1 + characters), PADDING, np.int32)
    ids[:, 0] = pc.fill_null(pc.add(index, len(SPECIAL_WORDS)), UNKNOWN).to_numpy()

    character_ids = {character: len(SPECIAL_WORDS) + position for position, character in enumerate(alphabet)}
    for row, word in enumerate(distinct.dictionary.to_pylist()):
        spelt = [character_ids.get(character, UNKNOWN) for character in word[:characters]]
        ids[row, 1 : 1 + len(spelt)] = spelt

    inputs = np.full((len(table), width, 1 + characters), PADDING, np.int32)
    rows, columns = _places(lists)
    inputs[rows, columns] = ids[distinct.indices.to_numpy()]

    return _token_table(table, inputs.reshape(len(table), -1), _filled(table["tags"].combine_chunks(), width))


def _tokenised(table: pa.Table, where: str, folder: Path, around: SpecialTokens) -> pa.Table:
    """Return rows of `pieces` and `labels`; a sentence's first part lists its words with no or too many tokens."""
    room, unknown = around.room, around.unknown
    lists = table["words"].combine_chunks()
    distinct = lists.flatten().dictionary_encode()
    written = distinct.dictionary.to_pylist()

    ids = subword_ids(where, folder, written)
    is_dropped = [not word_ids for word_ids in ids]
    is_long = [len(word_ids) > room for word_ids in ids]
    usable_ids = [
        word_ids if 0 < len(word_ids) <= room else [unknown if unknown is not None else 0] for word_ids in ids
    ]

    columns: dict[str, list[Any]] = {name: [] for name in (*_KEYS, "pieces", "labels", "dropped", "long")}
    starts = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    indices, tags = distinct.indices.to_pylist(), table["tags"].to_pylist()

    for row, key in enumerate(zip(*(table[name].to_pylist() for name in _KEYS), strict=True)):
        words = indices[starts[row] : starts[row + 1]]
        unusable = [[written[word] for word in words if flags[word]] for flags in (is_dropped, is_long)]

        parts = _parted([usable_ids[word] for word in words], tags[row], around)
        for number, (word_ids, labels) in enumerate(parts):
            reported = unusable if number == 0 else [[], []]
            values = (part_of(key[0], number), *key[1:], word_ids, labels, *reported)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)

    texts, numbers = pa.list_(pa.string()), (pa.list_(pa.int32()), pa.list_(pa.int16()))
    kinds = (*[pa.string()] * len(_KEYS), *numbers, texts, texts)
    return pa.table({name: pa.array(columns[name], kind) for name, kind in zip(columns, kinds, strict=True)})


def _parted(
    words: Sequence[list[int]], tags: Sequence[int], around: SpecialTokens
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the pieces and labels of each part, which ends before the first word that does not fit."""
    ids: list[int] = []
    labels: list[int] = []

    for word_ids, tag in zip(words, tags, strict=True):
        if len(ids) + len(word_ids) > around.room:
            yield ids, labels
            ids, labels = [], []
        ids = ids + word_ids
        # The first piece may be the space before the word alone, as for most Chinese words.
        untagged = int(len(word_ids) > 1 and word_ids[0] == around.bare)
        labels = [*labels, *[MISSING_CLASS] * untagged, tag, *[MISSING_CLASS] * (len(word_ids) - 1 - untagged)]
    yield ids, labels


def _framed(table: pa.Table, around: SpecialTokens, width: int) -> pa.Table:
    lists = table["pieces"].combine_chunks()
    inputs = np.full((len(table), width), around.padding, np.int32)
    rows, columns = _places(lists)

    prefix_size, ends = len(around.before), len(around.before) + pc.list_value_length(lists).to_numpy()
    inputs[:, :prefix_size] = around.before
    inputs[rows, prefix_size + columns] = lists.flatten().to_numpy()
    for offset, token in enumerate(around.after):
        inputs[np.arange(len(table)), ends + offset] = token

    labels = _filled(table["labels"].combine_chunks(), width, prefix_size)
    return _token_table(table, exchanged(inputs, around.padding), labels)


def _token_table(table: pa.Table, inputs: np.ndarray, labels: np.ndarray) -> pa.Table:
    columns = {
        name: pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
        for name, values in (("input", inputs), ("label", labels))
    }
    return pa.table({**{name: table[name] for name in _KEYS}, **columns})


def _filled(tags: pa.ListArray, width: int, start: int = 0) -> np.ndarray:
    """Return [N, width] with the tags from `start` on, `MISSING_CLASS` elsewhere."""
    labels = np.full((len(tags), width), MISSING_CLASS, np.int16)
    rows, columns = _places(tags)
    labels[rows, start + columns] = tags.flatten().to_numpy()
    return labels


def _places(lists: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of every entry of the lists."""
    counts = pc.list_value_length(lists).to_numpy()
    rows = np.repeat(np.arange(len(lists)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
