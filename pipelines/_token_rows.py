"""Sentences with a tag for every word to the rows of a set: words with their characters, or a tokenizer's pieces."""

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

from mtlscale.data.prepared import SPECIAL_WORDS
from mtlscale.data.texts import PADDING, UNKNOWN
from mtlscale.data.tokenizer import Frame, exchanged, frame, pieces
from mtlscale.spec import MISSING_CLASS, UserError
from pipelines._base import Work
from pipelines._text import count_words, rank_words

_KEYS = ("id", "split", "stream")


@dataclass(frozen=True)
class Words:
    """Rows with `input` and `label`, the words by their ids and the characters from id 2 on."""

    rows: pa.Table
    words: list[str]
    characters: list[str]
    width: int


@dataclass(frozen=True)
class Pieces:
    """Rows with `input` and `label`, the tokenizer's frame, and the words it has no token for or no room."""

    rows: pa.Table
    frame: Frame
    width: int
    dropped: Counter[str]
    long: Counter[str]


def by_words(rows: pa.Table, length: int, vocabulary: int, min_count: int, characters: int, work: Work) -> Words:
    """Rows of lists `words` and `tags` -> [width, 1 + characters] ids a sentence: of a word, lower-cased, then of its
    first characters as they are written. Sentences of more words than `length` are cut into several."""
    rows = work.blocks(rows).map(partial(_in_parts, length=length), "cut").collect()
    train = rows.filter(pc.field("split") == "train")["words"].combine_chunks()
    known = rank_words(count_words(_lowered(train)), vocabulary, min_count)
    alphabet = _alphabet(train, min_count)
    width = pc.max(pc.list_value_length(rows["words"])).as_py() or 1
    encode = partial(_encoded, words=known, alphabet=alphabet, characters=characters, width=width)
    return Words(work.blocks(rows).map(encode, "encode").collect(), known, alphabet, width)


def by_pieces(where: str, rows: pa.Table, length: int, folder: Path, work: Work) -> Pieces:
    """The same rows -> token ids of the tokenizer in a folder, its padding 0, a word's tag at its first one
    that has something of it.

    A sentence of more tokens than there is room for is cut between words, as XTREME does; a word that the tokenizer
    drops, or that is longer than the room, is its unknown one. `UserError` names such a word where it has none.
    """
    around = frame(where, folder, length)
    tokenised = partial(_tokenised, where=where, folder=folder, around=around)
    found = work.blocks(rows).map(tokenised, "tokenise").collect()
    dropped, long = (Counter(found[name].combine_chunks().flatten().to_pylist()) for name in ("dropped", "long"))
    if around.unknown is None and (dropped or long):
        word = min(dropped or long)
        raise UserError(f"{where}: the tokenizer of {folder} has no token for {word!r}, and none for unknown words; "
                        "take another tokenizer")  # fmt: skip
    width = len(around.before) + len(around.after) + (pc.max(pc.list_value_length(found["pieces"])).as_py() or 1)
    encoded = work.blocks(found).map(partial(_framed, around=around, width=width), "encode").collect()
    return Pieces(encoded, around, width, dropped, long)


def seen(rows: pa.Table) -> dict[str, int]:
    """Of every task, how many test sentences stand in its train or validation, too, word for word."""
    keys = pc.binary_join(rows["words"].combine_chunks(), "\t")
    keys = pc.binary_join_element_wise(rows["stream"], keys, "\n")
    test = pc.equal(rows["split"], "test")
    again = pc.and_(test, pc.is_in(keys, value_set=keys.filter(pc.invert(test))))
    return dict(sorted(Counter(rows["stream"].filter(again).to_pylist()).items()))


def _in_parts(table: pa.Table, length: int) -> pa.Table:
    """Sentences cut after every so many words."""
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
    """The id of the number-th part of a sentence: of the first, the sentence's own."""
    return f"{id}+{number}" if number else id


def _lowered(words: pa.ListArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(words.flatten())], pa.int32()), pc.utf8_lower(words.flatten()))


def _alphabet(words: pa.ListArray, min_count: int) -> list[str]:
    """The characters of words that are not rarer, the most frequent first."""
    counts: Counter[str] = Counter()
    for word, count in zip(
        *(counted.to_pylist() for counted in pc.value_counts(words.flatten()).flatten()), strict=True
    ):
        for character in word:
            counts[character] += count
    return sorted((one for one in counts if counts[one] >= min_count), key=lambda one: (-counts[one], one))


def _encoded(table: pa.Table, words: Sequence[str], alphabet: Sequence[str], characters: int, width: int) -> pa.Table:
    lists = table["words"].combine_chunks()
    distinct = lists.flatten().dictionary_encode()
    index = pc.index_in(
        pc.utf8_lower(distinct.dictionary), value_set=pa.array(words[len(SPECIAL_WORDS) :], pa.string())
    )
    ids = np.full((len(distinct.dictionary), 1 + characters), PADDING, np.int32)
    ids[:, 0] = pc.fill_null(pc.add(index, len(SPECIAL_WORDS)), UNKNOWN).to_numpy()
    known = {character: len(SPECIAL_WORDS) + place for place, character in enumerate(alphabet)}
    for row, word in enumerate(distinct.dictionary.to_pylist()):
        spelt = [known.get(character, UNKNOWN) for character in word[:characters]]
        ids[row, 1 : 1 + len(spelt)] = spelt
    inputs = np.full((len(table), width, 1 + characters), PADDING, np.int32)
    rows, columns = _places(lists)
    inputs[rows, columns] = ids[distinct.indices.to_numpy()]
    return _rows(table, inputs.reshape(len(table), -1), _filled(table["tags"].combine_chunks(), width))


def _tokenised(table: pa.Table, where: str, folder: Path, around: Frame) -> pa.Table:
    """Rows of `pieces` and `labels` instead of words and tags; in every sentence's first part, which words have no
    token, and which too many."""
    room, unknown = around.room, around.unknown
    lists = table["words"].combine_chunks()
    distinct = lists.flatten().dictionary_encode()
    written = distinct.dictionary.to_pylist()
    ids = pieces(where, folder, written)
    none = [not its for its in ids]
    long = [len(its) > room for its in ids]
    kept = [its if 0 < len(its) <= room else [unknown if unknown is not None else 0] for its in ids]
    found: dict[str, list[Any]] = {name: [] for name in (*_KEYS, "pieces", "labels", "dropped", "long")}
    starts = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    indices, tags = distinct.indices.to_pylist(), table["tags"].to_pylist()
    for row, key in enumerate(zip(*(table[name].to_pylist() for name in _KEYS), strict=True)):
        words = indices[starts[row] : starts[row + 1]]
        odd = [[written[word] for word in words if flags[word]] for flags in (none, long)]
        parts = _parted([kept[word] for word in words], tags[row], around)
        for number, (its, labels) in enumerate(parts):
            told = odd if number == 0 else [[], []]
            values = (part_of(key[0], number), *key[1:], its, labels, *told)
            for name, value in zip(found, values, strict=True):
                found[name].append(value)
    texts, numbers = pa.list_(pa.string()), (pa.list_(pa.int32()), pa.list_(pa.int16()))
    kinds = (*[pa.string()] * len(_KEYS), *numbers, texts, texts)
    return pa.table({name: pa.array(found[name], kind) for name, kind in zip(found, kinds, strict=True)})


def _parted(words: Sequence[list[int]], tags: Sequence[int], around: Frame) -> Iterator[tuple[list[int], list[int]]]:
    """The pieces of a sentence, a tag at each word's first: cut before the word that does not fit any more. Where the
    first is the space before the word alone, as that of most Chinese words, it is the second that has the tag."""
    ids: list[int] = []
    labels: list[int] = []
    for its, tag in zip(words, tags, strict=True):
        if len(ids) + len(its) > around.room:
            yield ids, labels
            ids, labels = [], []
        ids = ids + its
        before = int(len(its) > 1 and its[0] == around.bare)
        labels = [*labels, *[MISSING_CLASS] * before, tag, *[MISSING_CLASS] * (len(its) - 1 - before)]
    yield ids, labels


def _framed(table: pa.Table, around: Frame, width: int) -> pa.Table:
    lists = table["pieces"].combine_chunks()
    inputs = np.full((len(table), width), around.padding, np.int32)
    rows, columns = _places(lists)
    before, ends = len(around.before), len(around.before) + pc.list_value_length(lists).to_numpy()
    inputs[:, :before] = around.before
    inputs[rows, before + columns] = lists.flatten().to_numpy()
    for place, id in enumerate(around.after):
        inputs[np.arange(len(table)), ends + place] = id
    labels = _filled(table["labels"].combine_chunks(), width, before)
    return _rows(table, exchanged(inputs, around.padding), labels)


def _rows(table: pa.Table, inputs: np.ndarray, labels: np.ndarray) -> pa.Table:
    columns = {
        name: pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
        for name, values in (("input", inputs), ("label", labels))
    }
    return pa.table({**{name: table[name] for name in _KEYS}, **columns})


def _filled(tags: pa.ListArray, width: int, start: int = 0) -> np.ndarray:
    """[N, width] of the tags from `start` on, `MISSING_CLASS` elsewhere."""
    labels = np.full((len(tags), width), MISSING_CLASS, np.int16)
    rows, columns = _places(tags)
    labels[rows, start + columns] = tags.flatten().to_numpy()
    return labels


def _places(lists: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of every entry of the lists."""
    counts = pc.list_value_length(lists).to_numpy()
    rows = np.repeat(np.arange(len(lists)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
