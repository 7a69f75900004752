"""Word vectors: prepared with a data set, or from a file in word2vec or GloVe text format.

fastText's .vec is the word2vec format.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from mtlscale.config import TaskSuite, UserError

logger = logging.getLogger(__name__)

PREPARED = "prepared"
VECTORS_HELP = "file of word vectors, word2vec or GloVe text format; prepared: the data set's own; none: random"


def read_prepared_vectors(suite: TaskSuite, dimensions: int) -> tuple[Tensor, Tensor]:
    """Return the ids [M], ascending, of words with a vector in the prepared suite, and these [M, D] (float32)."""
    import pyarrow.parquet as pq

    path = suite.extras.get("vectors")
    if path is None:
        raise UserError(
            f"vectors: {suite.name} was prepared without; set its option vectors to word2vec or name a file of vectors"
        )

    table = pq.read_table(path).combine_chunks()
    vectors = from_dlpack(table["vector"].chunk(0).flatten()).reshape(len(table), -1)
    if vectors.shape[1] != dimensions:
        raise UserError(
            f"vectors: those of {suite.name} have {vectors.shape[1]} numbers, the encoder {dimensions}; set its "
            "dimensions to it"
        )

    index = {word: i for i, word in enumerate(suite.extras["vocabulary"])}
    ids = torch.tensor([index[word] for word in table["id"].to_pylist()])
    order = ids.argsort()
    return ids[order], vectors[order]


def read_vectors(path: str | Path, vocabulary: Sequence[str], dimensions: int) -> tuple[Tensor, Tensor]:
    """Return the ids [M], ascending, of the vocabulary's words in a file, and their vectors [M, D] (float32).

    Each line holds one word and its numbers, separated by spaces. A first line "count dimensions" is skipped; of
    several lines for one word the first counts. Logs the share of the vocabulary that the file covers.

    Args:
        vocabulary: The words, in the order of their ids.
        dimensions: The size D that the vectors must have.
    """
    if not isinstance(path, str | Path) or not Path(path).is_file():
        raise UserError(f"vectors: {path} is not a file; name a file of word vectors in word2vec or GloVe text format")

    index = {word: i for i, word in enumerate(vocabulary)}
    vectors_by_id: dict[int, list[float]] = {}
    with Path(path).open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1 and len(fields := line.split()) == 2 and all(field.isdecimal() for field in fields):
                continue  # the header: number of words, dimensions
            word, _, numbers = line.partition(" ")
            i = index.get(word)
            if number <= 2 or i is not None:
                values = _numbers(numbers, f"{path}: line {number}", dimensions)
                if i is not None:
                    vectors_by_id.setdefault(i, values)

    if not vectors_by_id:
        raise UserError(f"vectors: {path} has none of the {len(vocabulary)} words of the data set; check its language")

    logger.info(
        "%s: vectors for %d of %d words (%.1f %%)",
        path,
        len(vectors_by_id),
        len(index),
        100 * len(vectors_by_id) / len(index),
    )
    ids = sorted(vectors_by_id)
    return torch.tensor(ids), torch.tensor([vectors_by_id[i] for i in ids])


def _numbers(text: str, where: str, dimensions: int) -> list[float]:
    try:
        values = [float(field) for field in text.split()]
    except ValueError:
        raise UserError(f"vectors: {where} is not a word and its numbers; use word2vec or GloVe text format") from None
    if len(values) != dimensions:
        raise UserError(
            f"vectors: {where} has {len(values)} numbers, the encoder {dimensions}; set its dimensions to it"
        )
    if not all(math.isfinite(value) for value in values):
        raise UserError(f"vectors: {where} holds a number that is not finite; remove the line")
    return values
