import re
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.data.format.texts import PADDING, SPECIAL_WORDS, UNKNOWN, encode, latin1_words, split_words
from pipelines._texts.token_ids import count_words, rank_words

words = st.text("abcé0", min_size=1, max_size=3)
texts = st.lists(st.lists(words, max_size=8), min_size=1, max_size=6)


@given(st.binary(max_size=60))
def test_words_of_latin1_are_its_runs_of_letters_and_digits(raw: bytes) -> None:
    assert latin1_words(raw).split() == re.findall(r"[^\W_]+", raw.decode("latin-1").lower())


@given(st.lists(st.text("ab \t\n\u00a0\u3000é", max_size=12), min_size=1))
def test_split_words_is_str_split(lines: list[str]) -> None:
    assert split_words(pa.array(lines)).to_pylist() == [line.split() for line in lines]


@given(texts, st.integers(3, 12), st.integers(1, 3))
def test_the_vocabulary_is_the_most_frequent_words(texts: list[list[str]], size: int, min_count: int) -> None:
    counter = Counter(word for text in texts for word in text)
    frequent = [(-count, word.encode(), word) for word, count in counter.items() if count >= min_count]
    expected = [*SPECIAL_WORDS, *(word for _, _, word in sorted(frequent))][:size]
    blocks = [count_words(pa.array([text], pa.list_(pa.string()))) for text in texts]
    assert rank_words(pa.concat_tables(blocks), size, min_count) == expected
    assert rank_words(pa.concat_tables(blocks[::-1]), size, min_count) == expected


@given(texts, st.sets(words), st.integers(1, 6))
def test_encode_looks_words_up_cuts_and_pads(texts: list[list[str]], known: set[str], length: int) -> None:
    vocabulary = [*SPECIAL_WORDS, *sorted(known)]
    ids = {word: index for index, word in enumerate(vocabulary)}
    expected = []
    for text in texts:
        row = [ids.get(word, UNKNOWN) for word in text][:length] or [UNKNOWN]
        expected.append(row + [PADDING] * (length - len(row)))
    encoded = encode(pa.array(texts, pa.list_(pa.string())), vocabulary, length)
    assert encoded.type == pa.list_(pa.int32(), length)
    assert np.array(encoded.to_pylist()).tolist() == expected


def test_a_word_like_a_special_one_is_unknown() -> None:
    """Padding must stay padding, whatever somebody writes."""
    encoded = encode(pa.array([["<pad>", "x"]]), [*SPECIAL_WORDS, "x"], 3)
    assert encoded.to_pylist() == [[UNKNOWN, 2, PADDING]]
