"""The same functions on Arrow tables through Ray Data or in this process; the rows are the same either way."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import ray.data

Engine = Literal["ray", "local"]
TableFunction = Callable[[pa.Table], pa.Table]
Tell = Callable[[str, int, int], None]  # what is being done, rows done, rows in all


class Blocks(Protocol):
    """A table in blocks. Results are in no particular order and blocks of no particular size: sort before writing."""

    def map(self, function: TableFunction, stage: str) -> Blocks:
        """The function of each block, computed now. It must treat rows alike however they fall into blocks, be
        importable where it runs, and mark what is wrong with a row instead of raising."""
        ...

    def collect(self) -> pa.Table: ...


@dataclass(frozen=True)
class LocalBlocks:
    """Blocks in this process, one after the other."""

    tables: list[pa.Table]
    progress: Tell

    def map(self, function: TableFunction, stage: str) -> LocalBlocks:
        total, done, results = sum(map(len, self.tables)), 0, []
        for table in self.tables:
            results.append(function(table))
            done += len(table)
            self.progress(stage, done, total)
        return LocalBlocks(results, self.progress)

    def collect(self) -> pa.Table:
        return pa.concat_tables(self.tables).combine_chunks()


@dataclass(frozen=True)
class RayBlocks:
    """Blocks of a materialised Ray data set; whoever calls has initialised Ray."""

    dataset: ray.data.Dataset
    progress: Tell

    def map(self, function: TableFunction, stage: str) -> RayBlocks:
        ship_plugin(function)
        lazy = self.dataset.map_batches(function, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
        result = lazy.materialize()
        rows = result.count()
        self.progress(stage, rows, rows)
        return RayBlocks(result, self.progress)

    def collect(self) -> pa.Table:
        import ray

        return pa.concat_tables(ray.get(self.dataset.to_arrow_refs())).combine_chunks()


def blocks(tables: Iterable[pa.Table], engine: Engine, progress: Tell) -> Blocks:
    """These tables as blocks, where the engine can work on them."""
    if engine == "local":
        return LocalBlocks(list(tables), progress)
    return RayBlocks(dataset(list(tables)), progress)


def dataset(tables: list[pa.Table], *, ordered: bool = False) -> ray.data.Dataset:
    """A block each. ordered: results keep the order of the blocks."""
    import ray.data
    from ray.data.context import DataContext

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # the console; its log file keeps the plan of every step
            handler.setLevel(logging.ERROR)
    context = DataContext.get_current().copy()
    context.enable_progress_bars = False  # the bar is ours
    context.execution_options.preserve_order = ordered
    with DataContext.current(context):  # a data set keeps the context it was made in
        return ray.data.from_arrow(tables)


def ship_plugin(function: Any) -> None:
    """A user's plugin file is no module on the workers: its code travels with the function."""
    function = getattr(function, "func", function)  # of a partial
    if function.__module__.startswith("mtlscale_plugin_"):
        import ray.cloudpickle

        ray.cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
