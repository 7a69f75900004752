"""Conversion of texts to the token ids of a pretrained model's own tokenizer."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.config import UserError, checkpoints, named_files

_NO_LIMIT = 1_000_000  # tokenizers without a limit report an enormous number
_AT_ONCE = 4096  # texts
_BARE = "\u2581"  # how SentencePiece writes the space before a word

Ids = np.ndarray[tuple[int, int], np.dtype[np.int32]]


@dataclass(frozen=True)
class Tokens:
    """Texts as rows of ids, padding 0, no wider than the longest text needs.

    * `padding`: the id that stands for the tokenizer's 0, which changed places with its padding.
    * `separator`: the id between the texts of a pair, for models that distinguish their tokens by type, else None.
    """

    ids: Ids
    counts: list[int]  # tokens of each text before cutting
    limit: int  # tokens kept
    size: int  # ids in all
    padding: int
    separator: int | None


def check_tokenizer(where: str, folder: Path, *, weights: bool) -> None:
    """Raise `UserError` if a tokenizer cannot be used.

    That is the case if the folder has no model with a tokenizer, if it lacks required weights, or if transformers is
    not installed.

    Args:
        where: The beginning of the error message.
        weights: Whether weights are required.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"{where}: tokenizer needs transformers; pip install 'mtlscale[text]'")
    if not folder.is_dir():
        raise UserError(f"{where}: tokenizer: {folder} is no folder; name one with a model's config.json and tokenizer")
    checkpoints.check_folder(folder, f"{where}: tokenizer: {folder}", weights=weights)


def tokenize(where: str, folder: Path, texts: Sequence[str], seconds: Sequence[str | None], length: int) -> Tokens:
    """Tokenize texts, and pairs of texts, by the tokenizer in a folder, with its special tokens.

    A text is cut if it has more tokens than `length`, the tokenizer or the model takes; a pair loses tokens of its
    longer text.

    Args:
        where: The beginning of error messages.
        seconds: The second texts of pairs, None for single texts.
        length: The most tokens of a text.
    """
    tokenizer = _loaded(where, folder)
    most = _token_limit(where, folder, tokenizer, length, pair=True)
    rows: list[list[int]] = []
    counts: list[int] = []
    for start in range(0, len(texts), _AT_ONCE):
        end = start + _AT_ONCE
        _add(tokenizer, texts[start:end], seconds[start:end], most, rows, counts)

    size, padding = _size(tokenizer)
    ids = np.full((len(rows), max(1, max(map(len, rows), default=1))), padding, np.int32)
    for row_number, row_ids in enumerate(rows):
        ids[row_number, : len(row_ids)] = row_ids
    return Tokens(exchanged(ids, padding), counts, most, size, padding, _separator(tokenizer))


def exchanged(ids: Ids, padding: int) -> Ids:
    """Return the ids with the tokenizer's padding and 0 exchanged."""
    return np.where(ids == padding, 0, np.where(ids == 0, padding, ids)).astype(np.int32)


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens that a tokenizer puts before and behind a sentence, and its ids.

    * `limit`: the most tokens of a sentence, special ones included.
    * `unknown`: the id of an unknown word, None if the tokenizer has none.
    * `size`, `padding`, `separator`: as in `Tokens`.
    * `bare`: the id of the beginning of a word without any of its letters.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    limit: int
    unknown: int | None
    size: int
    padding: int
    separator: int | None
    bare: int | None = None

    @property
    def room(self) -> int:
        """The most tokens of the words of a sentence."""
        return self.limit - len(self.before) - len(self.after)


def frame(where: str, folder: Path, length: int) -> SpecialTokens:
    """Return the frame of the tokenizer in a folder.

    Args:
        where: The beginning of error messages.
        length: The most tokens of a sentence, special ones included.

    Raises:
        UserError: If the tokenizer cannot be loaded, or leaves no room for words.
    """
    tokenizer = _loaded(where, folder)
    most = _token_limit(where, folder, tokenizer, length, pair=False)

    unframed = tokenizer("a", add_special_tokens=False, verbose=False)["input_ids"]
    framed = tokenizer("a", verbose=False)["input_ids"]
    start = next(
        (position for position in range(len(framed)) if framed[position : position + len(unframed)] == unframed), None
    )
    if start is None:
        raise UserError(f"{where}: the tokenizer of {folder} changes words beside its special tokens; take another")

    before, after = tuple(framed[:start]), tuple(framed[start + len(unframed) :])
    unknown = tokenizer.unk_token_id
    size, padding = _size(tokenizer)
    unknown = None if unknown is None else int(unknown)
    bare = tokenizer.get_vocab().get(_BARE)
    return SpecialTokens(before, after, most, unknown, size, padding, _separator(tokenizer), bare)


def subword_ids(where: str, folder: Path, words: Sequence[str]) -> list[list[int]]:
    """Return the ids of single words by the tokenizer in a folder, without special tokens.

    A word that the tokenizer drops has no ids.
    """
    ids: list[list[int]] = []
    for start in range(0, len(words), _AT_ONCE):
        block = list(words[start : start + _AT_ONCE])
        ids += _loaded(where, folder)(block, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _loaded(where: str, folder: Path) -> Any:
    return _load_tokenizer(where, folder, named_files.tokenizer_hash(folder))


@functools.lru_cache(maxsize=1)
def _load_tokenizer(where: str, folder: Path, content: str) -> Any:
    """Load a tokenizer; cached, since it is called for every block of texts."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        int(tokenizer.num_special_tokens_to_add(pair=True))
    except Exception as error:  # its file readers raise errors of any kind
        text = (str(error).splitlines() or [""])[0]
        raise UserError(f"{where}: the tokenizer of {folder} cannot be loaded ({text}); save it again") from None
    return tokenizer


def _token_limit(where: str, folder: Path, tokenizer: Any, length: int, *, pair: bool) -> int:
    """Return the most tokens that are kept: the smallest limit of `length`, the tokenizer and the model."""
    limits = [length, tokenizer.model_max_length, checkpoints.longest(checkpoints.read_config(folder, where))]
    most = min(int(limit) for limit in limits if limit is not None and limit < _NO_LIMIT)
    special = int(tokenizer.num_special_tokens_to_add(pair=pair))
    if most <= special:
        raise UserError(f"{where}: {most} tokens have no room for words beside {special} special ones; raise `length`")
    return most


def _size(tokenizer: Any) -> tuple[int, int]:
    """Return the number of ids, and the padding's id: one behind all others if the tokenizer has none."""
    highest = int(max(tokenizer.get_vocab().values())) + 1
    padding = highest if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    return max(highest, padding + 1), padding


def _add(
    tokenizer: Any,
    texts: Sequence[str],
    seconds: Sequence[str | None],
    limit: int,
    token_rows: list[list[int]],
    counts: list[int],
) -> None:
    """Append the ids of some texts, cut to `limit`, and their numbers of tokens before cutting."""
    rows: list[list[int]] = [[] for _ in texts]
    sizes = [0] * len(texts)
    for pair in (False, True):
        chosen = [row for row, second in enumerate(seconds) if (second is not None) == pair]
        if not chosen:
            continue

        columns: list[list[Any]] = [
            [texts[row] for row in chosen],
            *([[seconds[row] for row in chosen]] if pair else []),
        ]
        uncut = tokenizer(*columns, verbose=False)["input_ids"]
        long_rows = [position for position, row_ids in enumerate(uncut) if len(row_ids) > limit]

        for row, row_ids in zip(chosen, uncut, strict=True):
            rows[row], sizes[row] = row_ids, len(row_ids)

        if long_rows:
            long_columns = [[column[position] for position in long_rows] for column in columns]
            cut = tokenizer(*long_columns, truncation=True, max_length=limit, verbose=False)["input_ids"]
            for position, row_ids in zip(long_rows, cut, strict=True):
                rows[chosen[position]] = row_ids

    token_rows += rows
    counts += sizes


def _separator(tokenizer: Any) -> int | None:
    """Return the id behind which tokens of a pair have type 1; None if there is one type or another rule."""
    pair = tokenizer("a", "b")
    types, separator = pair.get("token_type_ids"), tokenizer.sep_token_id
    if types is None or separator is None or 1 not in types:
        return None
    ends = np.asarray(pair["input_ids"]) == separator
    return int(separator) if np.array_equal(np.minimum(np.cumsum(ends) - ends, 1), types) else None
