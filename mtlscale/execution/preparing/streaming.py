"""Stream of data through Ray Data: tasks read windows of shards ahead of the workers of a run that train on them.

One task reads an item of the epoch's plan and leaves a block for each worker, in order. Every block is one row, so that
all blocks count alike and Ray's splitter, which gives the next one to the worker with the fewest rows so far, deals
them out in turn; the worker checks that it got its own.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from mtlscale.data.readers.shards import Shards
    from mtlscale.data.readers.stream import StreamChunk
    from mtlscale.data.sampling.stream_order import EpochPlan, RowIndices

# Logical CPUs of a reading task. Workers may have all CPUs of a cluster, and would wait for their data for ever.
READING_CPUS = 0.0
READERS = 2  # tasks that read at once, for each worker


class RayPieces:
    """Source of pieces for the reader `stream`: tasks of the cluster that this process belongs to.

    `url` is where the tasks find the shards, if their node has not got them.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        # The splits of the last epoch: they end with the first worker's copy, and that worker may be done early.
        self._splits: list[Any] = []

    def __call__(self, shards: Mapping[str, Shards], plan: EpochPlan, rank: int) -> Generator[StreamChunk, None, None]:
        """Return this worker's pieces of an epoch; all workers of a run call it at once."""
        shards = {stream: replace(files, url=self._url) for stream, files in shards.items()}
        if plan.world == 1:
            return _received(shards, _dataset(shards, plan).iterator())
        import torch

        box: list[Any] = [None]
        if rank == 0:
            box = [_dataset(shards, plan).streaming_split(plan.world, equal=False)]
        torch.distributed.broadcast_object_list(box)
        self._splits = box[0]
        return _received(shards, self._splits[rank])


def _dataset(shards: Mapping[str, Shards], plan: EpochPlan) -> Any:
    """Return the blocks of all items, in order, which are read once somebody asks for them."""
    import ray.data
    from ray.data import TaskPoolStrategy
    from ray.data.context import DataContext

    _quiet()

    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.use_datasource_v2 = False
    context.execution_options.preserve_order = True
    context.target_max_block_size = 1  # bytes: what a task yields is a block, never a part of one

    def read(items: pa.Table) -> Iterator[pa.Table]:
        return _read_pieces(shards, plan, items["item"].to_pylist())

    with DataContext.current(context):
        # No source that Ray would read by tasks of its own: those want CPUs.
        numbers = ray.data.from_items(list(range(len(plan))), override_num_blocks=max(1, len(plan)))
        return numbers.map_batches(
            read,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=READING_CPUS,
            compute=TaskPoolStrategy(size=min(len(plan), READERS * plan.world)),
        )


def _read_pieces(shards: Mapping[str, Shards], plan: EpochPlan, numbers: list[int]) -> Iterator[pa.Table]:
    """Yield the pieces of items, each a table of one row; runs in a task."""
    import pyarrow as pa

    for number in numbers:
        item = plan[number]
        columns = shards[item.stream].read(np.concatenate(item.parts))
        first = 0
        for rank, rows in enumerate(item.parts):
            columns_of_rank = {name: values[first : first + len(rows)] for name, values in columns.items()}
            first += len(rows)
            tags = {"number": [number], "rank": [rank], "stream": [item.stream], "rows": _bytes(rows)}
            yield pa.table({**tags, **{f"column.{name}": _bytes(values) for name, values in columns_of_rank.items()}})


def _received(shards: Mapping[str, Shards], iterator: Any) -> Generator[StreamChunk, None, None]:
    from mtlscale.data.readers.stream import StreamChunk

    for table in _tables(iterator):
        tags = table.select(["number", "rank", "stream"]).to_pylist()
        if len(tags) != 1:
            raise RuntimeError(f"a block of {len(tags)} pieces arrived instead of one")
        (tag,) = tags
        rows: RowIndices = _array(table["rows"], np.dtype(np.int64))
        columns = {
            column.name: _array(table[f"column.{column.name}"], column.dtype).reshape(len(rows), *column.shape)
            for column in shards[tag["stream"]].columns
        }
        yield StreamChunk(tag["number"], tag["rank"], tag["stream"], rows, columns)


def _tables(iterator: Any) -> Iterator[pa.Table]:
    """Yield the blocks; of a task that cannot read, raise its own error and not Ray's with all of its traceback."""
    try:
        yield from iterator.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)
    except Exception as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, OSError) and cause.strerror:
            raise OSError(cause.errno, cause.strerror) from error  # Ray Data has added words of its own
        raise


def _bytes(values: np.ndarray[Any, Any]) -> pa.Array:
    """Return an array's bytes as a column of one row, without a copy."""
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(values))
    ends = pa.py_buffer(np.array([0, data.size], np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, ends, data])


def _array(column: pa.ChunkedArray, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers of a column of bytes again, without a copy."""
    return np.frombuffer(column.chunk(0)[0].as_buffer(), dtype)


def _quiet() -> None:
    for name in ("ray.data", "ray.data._internal.execution.streaming_executor"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler):  # the console; its log file keeps plans and tracebacks
                handler.setLevel(logging.CRITICAL)
