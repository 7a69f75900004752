"""Features of word pieces by a frozen pretrained model, computed once for each tagged token."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, TaskSuite, build
from pipelines.contract import PrepareContext

_AT_ONCE = 4096  # pieces in a batch, padding included
_STORED = np.float16
_MIN_DEVIATION = 1e-4  # of a deviation: a number that varies less is only centred


def with_token_features(
    encoded: pa.Table, suite: TaskSuite, folder: Path, context: PrepareContext, target: str = "label"
) -> tuple[pa.Table, int]:
    """Return the rows with features in place of word pieces, and the number of features per token.

    Args:
        encoded: Rows whose `input` is a fixed-size list of token ids; it becomes the bytes of float16 vectors, of
            tagged tokens alone.
        target: The column of tags, a fixed-size list of the same length; tags move to the left with their tokens.
    """
    import torch

    model = build("encoders", "pretrained_layers", {"checkpoint": str(folder), "hidden": [1]})
    with torch.device("meta"):  # it only tells the number of features
        size = int(model.build(suite).frozen.features)

    tables = [encoded.slice(first, context.rows_per_block) for first in range(0, len(encoded), context.rows_per_block)]
    finished: list[pa.Table] = []
    with closing(context.held(TokenFeatures, (suite, model, target), tables)) as results:
        for table in results:
            finished.append(table)
            context.progress("features", sum(map(len, finished)), len(encoded))

    return pa.concat_tables(finished).combine_chunks(), size


def standardised(table: pa.Table, size: int, train: np.ndarray) -> pa.Table:
    """Return the features with mean 0 and deviation 1 of each number over the tokens of the training rows.

    Features of a language model consist mostly of one vector that all tokens share, which hides the differences from
    small layers.

    Args:
        table: The rows; `input` holds the bytes of float16 vectors.
        size: Numbers per token.
        train: Mask of the training rows.
    """
    rows = table["input"].to_pylist()
    total, squares, count = np.zeros(size), np.zeros(size), 0
    for row, in_train in zip(rows, train, strict=True):
        if in_train:
            vectors = np.frombuffer(row, _STORED).reshape(-1, size).astype(np.float64)
            total, squares, count = total + vectors.sum(0), squares + np.square(vectors).sum(0), count + len(vectors)

    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0.0))
    deviation[deviation < _MIN_DEVIATION] = 1.0

    scaled = [((np.frombuffer(row, _STORED).reshape(-1, size) - mean) / deviation).astype(_STORED).tobytes()
              for row in rows]  # fmt: skip
    return _replaced(table, "input", pa.array(scaled, pa.large_binary()))


class TokenFeatures:
    """Function from rows of pieces to rows of features, which holds a frozen model."""

    def __init__(self, suite: TaskSuite, model: Any, target: str) -> None:
        # In double precision, features do not depend on the sentences that share a block.
        self._module, self._target = model.build(suite).double().eval(), target

    def __call__(self, table: pa.Table) -> pa.Table:
        import torch

        ids, tags = (_matrix(table, name) for name in ("input", self._target))
        is_tagged, vectors = tags != MISSING_CLASS, np.empty(len(table), object)

        lengths = ((ids != 0) * np.arange(1, ids.shape[1] + 1)).max(1, initial=1)
        order = np.argsort(lengths, kind="stable")  # sentences of similar length need the least padding

        first = 0
        with torch.no_grad():
            while first < len(order):
                rows = order[first : first + 1]
                while (
                    first + len(rows) < len(order) and (len(rows) + 1) * lengths[order[first + len(rows)]] <= _AT_ONCE
                ):
                    rows = order[first : first + len(rows) + 1]

                longest = int(lengths[rows].max())
                features = self._module.prepare(torch.from_numpy(ids[rows, :longest]))
                features = features.reshape(len(rows), longest, -1).half().numpy()
                for row, row_features in zip(rows, features, strict=True):
                    vectors[row] = row_features[is_tagged[row, :longest]].tobytes()
                first += len(rows)

        packed = np.full_like(tags, MISSING_CLASS)
        has_tag = np.arange(tags.shape[1]) < is_tagged.sum(1, keepdims=True)
        packed[has_tag] = tags[is_tagged]

        table = _replaced(table, "input", pa.array(vectors.tolist(), pa.large_binary()))
        tagged = pa.FixedSizeListArray.from_arrays(pa.array(packed.ravel()), tags.shape[1])
        return _replaced(table, self._target, tagged)


def _matrix(table: pa.Table, name: str) -> np.ndarray:
    column = table[name].combine_chunks()
    matrix: np.ndarray = column.flatten().to_numpy().reshape(len(table), column.type.list_size)
    return matrix


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
