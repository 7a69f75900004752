"""Conversion of texts to words and token ids with Arrow's vectorised functions.

The same functions run when a set is prepared and when an exported model reads raw texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.format.manifest import SPECIAL_WORDS

SEPARATOR = "<sep>"  # between the two texts of a pair; no word can be it
PADDING, UNKNOWN = range(len(SPECIAL_WORDS))
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"


_WORDS = bytes(ord(chr(code).lower()) if chr(code).isalnum() else ord(" ") for code in range(256))


def latin1_words(raw: bytes) -> str:
    r"""Return lower-cased Latin-1 text with every character but letters and digits replaced by a space.

    Equals `" ".join(re.findall(r"[^\W_]+", raw.decode("latin-1").lower()))` up to the number of spaces, at a fortieth
    of its time.
    """
    return raw.translate(_WORDS).decode("latin-1")


def words_of(texts: Sequence[str | None]) -> pa.Array:
    """Return lower-cased texts with every character but letters, marks and digits replaced by a space."""
    plain = pc.replace_substring_regex(pc.utf8_lower(pa.array(texts, pa.string())), _NO_WORD, " ")
    return pc.utf8_trim_whitespace(plain)


def split_words(text: pa.Array) -> pa.ListArray:
    """Split strings into lists of the words between white space."""
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text))
    words = lists.flatten()
    is_word = pc.not_equal(words, "")  # a blank string gives one empty word
    rows = pc.list_parent_indices(lists).filter(is_word).to_numpy()
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(lists)), out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, words.filter(is_word))


def words_in(texts: Sequence[str], rule: Literal["latin1", "unicode", "spaces"]) -> pa.ListArray:
    """Return lists of the lower-case words of texts.

    Args:
        rule: The definition of a word: a run of letters and digits of Latin-1 or of Unicode, or the text between
            spaces.
    """
    if rule == "latin1":
        return split_words(pa.array([latin1_words(text.encode("latin-1", "replace")) for text in texts], pa.string()))
    if rule == "unicode":
        return split_words(words_of(texts))
    return split_words(pa.array([text.lower() for text in texts], pa.string()))


def join_pairs(text: pa.ListArray, second: pa.ListArray, paired: Sequence[bool], length: int) -> pa.ListArray:
    """Return the words of texts, and of pairs of texts with `SEPARATOR` between them.

    A pair that is longer than `length` leaves each of its texts half of the room, and the part that the other does not
    need; words that do not fit are moved to the end, where they are cut off.
    """
    rows = zip(text.to_pylist(), second.to_pylist(), paired, strict=True)
    return pa.array(
        [
            _joined(first_words, second_words, length) if pair else first_words
            for first_words, second_words, pair in rows
        ],
        pa.list_(pa.string()),
    )


def _joined(a: list[str], b: list[str], length: int) -> list[str]:
    room = max(0, length - 1)
    of_b = min(len(b), max(room // 2, room - len(a)))
    of_a = min(len(a), room - of_b)
    return [*a[:of_a], SEPARATOR, *b[:of_b], *a[of_a:], *b[of_b:]]


def encode(tokens: pa.ListArray, words: Sequence[str], length: int) -> pa.FixedSizeListArray:
    """Return token ids, int32 [N, length], of lists of words, cut or padded at the end; no words give one `UNKNOWN`."""
    index = pc.index_in(tokens.flatten(), value_set=pa.array(words[len(SPECIAL_WORDS) :], pa.string()))
    ids = pc.fill_null(pc.add(index, len(SPECIAL_WORDS)), UNKNOWN).to_numpy()
    counts = pc.list_value_length(tokens).to_numpy()
    rows = np.repeat(np.arange(len(tokens)), counts)
    columns = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)

    matrix = np.full((len(tokens), length), PADDING, np.int32)
    fits = columns < length
    matrix[rows[fits], columns[fits]] = ids[fits]
    matrix[counts == 0, 0] = UNKNOWN
    return pa.FixedSizeListArray.from_arrays(matrix.ravel(), length)
