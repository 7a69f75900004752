"""Sentences of word pieces to the features of a frozen pretrained model, once for each tagged token."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.spec import MISSING_CLASS, TaskSuite, build
from pipelines._base import Work

_AT_ONCE = 4096  # pieces, padding included
_STORED = np.float16
_LEAST = 1e-4  # of a deviation: a number that hardly moves is centred alone


def with_token_features(
    encoded: pa.Table, suite: TaskSuite, folder: Path, work: Work, target: str = "label"
) -> tuple[pa.Table, int]:
    """Rows of a suite of pieces -> rows of features, and how many numbers each token has.

    `input`: token ids, a fixed-size list; it becomes the bytes of float16 vectors, of the tokens with a tag alone.
    `target`: tags, a fixed-size list of the same length, which moves to the left with them.
    """
    import torch

    model = build("encoders", "pretrained_layers", {"checkpoint": str(folder), "hidden": [1]})
    with torch.device("meta"):  # nothing is computed with it
        size = int(model.build(suite).frozen.features)
    tables = [encoded.slice(first, work.rows_per_block) for first in range(0, len(encoded), work.rows_per_block)]
    done: list[pa.Table] = []
    with closing(work.held(TokenFeatures, (suite, model, target), tables)) as results:
        for table in results:
            done.append(table)
            work.progress("features", sum(map(len, done)), len(encoded))
    return pa.concat_tables(done).combine_chunks(), size


def standardised(table: pa.Table, size: int, train: np.ndarray) -> pa.Table:
    """The same features with mean 0 and deviation 1 of each number over the tokens of the rows in `train` (a mask).

    Those of a language model are mostly one vector that all tokens have, which hides from small layers what differs.
    """
    rows = table["input"].to_pylist()
    total, squares, count = np.zeros(size), np.zeros(size), 0
    for row, counts in zip(rows, train, strict=True):
        if counts:
            vectors = np.frombuffer(row, _STORED).reshape(-1, size).astype(np.float64)
            total, squares, count = total + vectors.sum(0), squares + np.square(vectors).sum(0), count + len(vectors)
    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0.0))
    deviation[deviation < _LEAST] = 1.0
    scaled = [((np.frombuffer(row, _STORED).reshape(-1, size) - mean) / deviation).astype(_STORED).tobytes()
              for row in rows]  # fmt: skip
    return _replaced(table, "input", pa.array(scaled, pa.large_binary()))


class TokenFeatures:
    """A frozen model, and what it makes of a table."""

    def __init__(self, suite: TaskSuite, model: Any, target: str) -> None:
        # With twice the digits, features are the same whichever sentences come together in a block.
        self._module, self._target = model.build(suite).double().eval(), target

    def __call__(self, table: pa.Table) -> pa.Table:
        import torch

        ids, tags = (_matrix(table, name) for name in ("input", self._target))
        counted, found = tags != MISSING_CLASS, np.empty(len(table), object)
        lengths = ((ids != 0) * np.arange(1, ids.shape[1] + 1)).max(1, initial=1)
        order = np.argsort(lengths, kind="stable")  # sentences of a length together need the least padding
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
                for row, of_row in zip(rows, features, strict=True):
                    found[row] = of_row[counted[row, :longest]].tobytes()
                first += len(rows)
        packed = np.full_like(tags, MISSING_CLASS)
        there = np.arange(tags.shape[1]) < counted.sum(1, keepdims=True)
        packed[there] = tags[counted]
        table = _replaced(table, "input", pa.array(found.tolist(), pa.large_binary()))
        tagged = pa.FixedSizeListArray.from_arrays(pa.array(packed.ravel()), tags.shape[1])
        return _replaced(table, self._target, tagged)


def _matrix(table: pa.Table, name: str) -> np.ndarray:
    column = table[name].combine_chunks()
    found: np.ndarray = column.flatten().to_numpy().reshape(len(table), column.type.list_size)
    return found


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
