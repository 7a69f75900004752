"""Features of texts by a frozen pretrained model, computed once, so that runs train on vectors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import TaskSuite, build, named_files
from pipelines.contract import PrepareContext

FEATURES_FROM_BYTES = 1e6  # of source, from which Ray takes less time than this process alone
_AT_ONCE = 64  # texts in a batch
_MODELS: dict[tuple[str, str, str], Any] = {}  # the last model of this process, which serves many blocks of texts


def with_features(
    encoded: pa.Table, suite: TaskSuite, folder: Path, pooling: str, context: PrepareContext
) -> tuple[pa.Table, int]:
    """Return rows with features in place of the token ids in `input`, and the number of features."""
    size = _module(folder, pooling, suite).features
    function = partial(_featured, suite=suite, folder=folder, pooling=pooling)
    featured = context.blocks(encoded).map(function, "features").collect()
    _MODELS.clear()
    return featured, size


def _module(folder: Path, pooling: str, suite: TaskSuite) -> Any:
    key = (named_files.with_content_hash(str(folder))["sha256"], pooling, str(suite.extras))
    if key not in _MODELS:
        _MODELS.clear()
        # In double precision, features do not depend on the texts that share a block.
        encoder = build("encoders", "pretrained", {"checkpoint": str(folder), "pooling": pooling})
        _MODELS[key] = encoder.build(suite).double()
    return _MODELS[key]


def _featured(table: pa.Table, suite: TaskSuite, folder: Path, pooling: str) -> pa.Table:
    import torch

    module = _module(folder, pooling, suite)
    column = table["input"].combine_chunks()
    ids = column.flatten().to_numpy().reshape(len(table), -1)
    values = np.empty((len(table), module.features), np.float32)

    order = np.argsort((ids != 0).sum(1), kind="stable")  # texts of similar length need the least padding
    with torch.no_grad():
        for start in range(0, len(order), _AT_ONCE):
            rows = order[start : start + _AT_ONCE]
            values[rows] = module(torch.from_numpy(ids[rows])).float().numpy()

    features = pa.FixedSizeListArray.from_arrays(values.ravel(), module.features)
    return table.set_column(table.column_names.index("input"), "input", features)
