"""The frozen cases' data as prepared sets on disk, for readers that map files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from torch import Tensor

from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.format.manifest import SPECIAL_WORDS
from mtlscale.data.readers.prepared import SourceInfo
from pipelines import Pipeline, Prepared, write_prepared


class InMemory(Pipeline):
    """Tables that a test has made."""

    name = "in_memory"


def write(data: PreparedData, folder: Path) -> PreparedData:
    """Write data that lie in memory as a prepared set, and read it back."""
    tables, shapes = {}, {}
    for split, streams in data.splits.items():
        tables[split] = {}
        for stream, samples in streams.items():
            columns = {"id": pa.array([f"{split}/{stream}/{row:04d}" for row in range(len(samples))], pa.string())}
            columns["input"] = _column(samples.inputs)
            for task, target in samples.targets.items():
                columns[f"target.{task}"] = _column(target)
                if target.ndim > 1:
                    shapes[task] = tuple(target.shape[1:])
            tables[split][stream] = pa.table(columns)
    words = data.suite.vocabulary_size
    vocabulary = None if words is None else [*SPECIAL_WORDS, *(f"w{n}" for n in range(words - len(SPECIAL_WORDS)))]
    folder.mkdir(parents=True)
    info = SourceInfo(description="rows of this test", fingerprint="0")
    write_prepared(folder, InMemory(), info, Prepared(data.suite, tables, shapes, vocabulary))
    return load_prepared(folder)


def _column(values: Tensor) -> pa.Array:
    array = values.numpy()
    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), int(np.prod(array.shape[1:])))
