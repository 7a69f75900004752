"""Texts to the token ids of a pretrained model's own tokenizer, and to the model's features."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.spec import UserError, checkpoints, files

_NO_LIMIT = 1_000_000  # tokenizers that know none say an enormous number
_AT_ONCE = 4096  # texts
_BARE = "\u2581"  # how SentencePiece writes the space before a word

Ids = np.ndarray[tuple[int, int], np.dtype[np.int32]]


@dataclass(frozen=True)
class Tokens:
    """Texts as rows of ids, padding 0, no wider than the longest text needs.

    `padding` is the id that stands for the tokenizer's 0, which changed places with its padding; `separator` the id
    between the texts of a pair in models that tell their tokens apart by type, else None.
    """

    ids: Ids
    counts: list[int]  # tokens of each text before cutting
    most: int  # tokens kept
    size: int  # ids in all
    padding: int
    separator: int | None


def check_tokenizer(where: str, folder: Path, *, weights: bool) -> None:
    """`UserError` where the folder has no model with a tokenizer, or no weights that are wanted, or nothing can read
    it."""
    if importlib.util.find_spec("transformers") is None:
        raise UserError(f"{where}: tokenizer needs transformers; pip install 'mtlscale[text]'")
    if not folder.is_dir():
        raise UserError(f"{where}: tokenizer: {folder} is no folder; name one with a model's config.json and tokenizer")
    checkpoints.check_folder(folder, f"{where}: tokenizer: {folder}", weights=weights)


def tokenize(where: str, folder: Path, texts: Sequence[str], seconds: Sequence[str | None], length: int) -> Tokens:
    """Texts, and pairs of them, by the tokenizer in a folder, with its special tokens.

    A text is cut where it has more tokens than `length`, the tokenizer or the model takes; a pair loses tokens of its
    longer text.
    """
    tokenizer = _loaded(where, folder)
    most = _most(where, folder, tokenizer, length, pair=True)
    found: list[list[int]] = []
    counts: list[int] = []
    for start in range(0, len(texts), _AT_ONCE):
        end = start + _AT_ONCE
        _add(tokenizer, texts[start:end], seconds[start:end], most, found, counts)
    size, padding = _size(tokenizer)
    ids = np.full((len(found), max(1, max(map(len, found), default=1))), padding, np.int32)
    for row, its in enumerate(found):
        ids[row, : len(its)] = its
    return Tokens(exchanged(ids, padding), counts, most, size, padding, _separator(tokenizer))


def exchanged(ids: Ids, padding: int) -> Ids:
    """The ids with 0 for the tokenizer's padding, which `ids` are filled up with, and its padding for 0."""
    return np.where(ids == padding, 0, np.where(ids == 0, padding, ids)).astype(np.int32)


@dataclass(frozen=True)
class Frame:
    """What a tokenizer puts before and behind a sentence, how many tokens there may be in all, and its ids as `Tokens`
    tells of them; unknown: the id of a word it has no token for, None where it knows none; bare: that of the beginning
    of a word with nothing of it."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    most: int
    unknown: int | None
    size: int
    padding: int
    separator: int | None
    bare: int | None = None

    @property
    def room(self) -> int:
        """Tokens of words."""
        return self.most - len(self.before) - len(self.after)


def frame(where: str, folder: Path, length: int) -> Frame:
    """Of the tokenizer in a folder, for sentences of at most so many tokens, special ones included; `UserError` where
    it cannot be loaded, or leaves no room for words."""
    tokenizer = _loaded(where, folder)
    most = _most(where, folder, tokenizer, length, pair=False)
    alone = tokenizer("a", add_special_tokens=False, verbose=False)["input_ids"]
    whole = tokenizer("a", verbose=False)["input_ids"]
    start = next((at for at in range(len(whole)) if whole[at : at + len(alone)] == alone), None)
    if start is None:
        raise UserError(f"{where}: the tokenizer of {folder} changes words beside its special tokens; take another")
    before, after = tuple(whole[:start]), tuple(whole[start + len(alone) :])
    unknown = tokenizer.unk_token_id
    size, padding = _size(tokenizer)
    unknown = None if unknown is None else int(unknown)
    bare = tokenizer.get_vocab().get(_BARE)
    return Frame(before, after, most, unknown, size, padding, _separator(tokenizer), bare)


def pieces(where: str, folder: Path, words: Sequence[str]) -> list[list[int]]:
    """The ids of single words by the tokenizer in a folder, without special tokens; none for a word that it drops."""
    found: list[list[int]] = []
    for start in range(0, len(words), _AT_ONCE):
        some = list(words[start : start + _AT_ONCE])
        found += _loaded(where, folder)(some, add_special_tokens=False, verbose=False)["input_ids"]
    return found


def _loaded(where: str, folder: Path) -> Any:
    return _read(where, folder, files.tokenizer_hash(folder))


@functools.lru_cache(maxsize=1)
def _read(where: str, folder: Path, content: str) -> Any:
    """Asked for every block of texts."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        int(tokenizer.num_special_tokens_to_add(pair=True))
    except Exception as error:  # whatever its readers of files raise
        text = (str(error).splitlines() or [""])[0]
        raise UserError(f"{where}: the tokenizer of {folder} cannot be loaded ({text}); save it again") from None
    return tokenizer


def _most(where: str, folder: Path, tokenizer: Any, length: int, *, pair: bool) -> int:
    """Tokens that are kept: no more than `length`, the tokenizer and the model take."""
    limits = [length, tokenizer.model_max_length, checkpoints.longest(checkpoints.read_config(folder, where))]
    most = min(int(limit) for limit in limits if limit is not None and limit < _NO_LIMIT)
    special = int(tokenizer.num_special_tokens_to_add(pair=pair))
    if most <= special:
        raise UserError(f"{where}: {most} tokens have no room for words beside {special} special ones; raise `length`")
    return most


def _size(tokenizer: Any) -> tuple[int, int]:
    """How many ids there are, and which is its padding: one behind the others where it has none."""
    highest = int(max(tokenizer.get_vocab().values())) + 1
    padding = highest if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    return max(highest, padding + 1), padding


def _add(
    tokenizer: Any,
    texts: Sequence[str],
    seconds: Sequence[str | None],
    most: int,
    found: list[list[int]],
    counts: list[int],
) -> None:
    """The ids of some texts, cut, and how many they had."""
    rows: list[list[int]] = [[] for _ in texts]
    sizes = [0] * len(texts)
    for pair in (False, True):
        chosen = [row for row, second in enumerate(seconds) if (second is not None) == pair]
        if not chosen:
            continue
        given: list[list[Any]] = [[texts[row] for row in chosen], *([[seconds[row] for row in chosen]] if pair else [])]
        whole = tokenizer(*given, verbose=False)["input_ids"]
        long = [place for place, its in enumerate(whole) if len(its) > most]
        for row, its in zip(chosen, whole, strict=True):
            rows[row], sizes[row] = its, len(its)
        if long:
            some = [[column[place] for place in long] for column in given]
            cut = tokenizer(*some, truncation=True, max_length=most, verbose=False)["input_ids"]
            for place, its in zip(long, cut, strict=True):
                rows[chosen[place]] = its
    found += rows
    counts += sizes


def _separator(tokenizer: Any) -> int | None:
    """The id after which tokens of a pair have type 1; None where they have one type, or another rule."""
    pair = tokenizer("a", "b")
    types, separator = pair.get("token_type_ids"), tokenizer.sep_token_id
    if types is None or separator is None or 1 not in types:
        return None
    ends = np.asarray(pair["input_ids"]) == separator
    return int(separator) if np.array_equal(np.minimum(np.cumsum(ends) - ends, 1), types) else None
