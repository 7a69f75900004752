"""Texts to the features of a frozen pretrained model, once, so that runs train on vectors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.spec import TaskSuite, build, files
from pipelines._base import Work

_AT_ONCE = 64  # texts
_HELD: dict[tuple[str, str, str], Any] = {}  # the last model of this process, which takes many blocks of texts


def with_features(encoded: pa.Table, suite: TaskSuite, folder: Path, pooling: str, work: Work) -> tuple[pa.Table, int]:
    """Rows whose `input` are token ids of the suite -> the same with features instead, and how many these are."""
    size = _module(folder, pooling, suite).features
    function = partial(_featured, suite=suite, folder=folder, pooling=pooling)
    found = work.blocks(encoded).map(function, "features").collect()
    _HELD.clear()
    return found, size


def _module(folder: Path, pooling: str, suite: TaskSuite) -> Any:
    key = (files.known(str(folder))["sha256"], pooling, str(suite.extras))
    if key not in _HELD:
        _HELD.clear()
        # With twice the digits, features are the same whichever texts come together in a block.
        encoder = build("encoders", "pretrained", {"checkpoint": str(folder), "pooling": pooling})
        _HELD[key] = encoder.build(suite).double()
    return _HELD[key]


def _featured(table: pa.Table, suite: TaskSuite, folder: Path, pooling: str) -> pa.Table:
    import torch

    module = _module(folder, pooling, suite)
    column = table["input"].combine_chunks()
    ids = column.flatten().to_numpy().reshape(len(table), -1)
    found = np.empty((len(table), module.features), np.float32)
    order = np.argsort((ids != 0).sum(1), kind="stable")  # texts of a length together need the least padding
    with torch.no_grad():
        for start in range(0, len(order), _AT_ONCE):
            rows = order[start : start + _AT_ONCE]
            found[rows] = module(torch.from_numpy(ids[rows])).float().numpy()
    features = pa.FixedSizeListArray.from_arrays(found.ravel(), module.features)
    return table.set_column(table.column_names.index("input"), "input", features)
