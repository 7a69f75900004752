"""Functions mapped over Arrow tables, through Ray Data or in this process, with the same rows either way."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from pipelines._engine.ray_errors import in_one_line

if TYPE_CHECKING:
    import ray.data

_PLAN = re.compile(r"Execution plan of Dataset \S+: (.+)", re.DOTALL)

Engine = Literal["ray", "local"]
TableFunction = Callable[[pa.Table], pa.Table]


TellPlan = Callable[[str], None]  # listener to the plans that Ray Data executes: the stages of one, in a line


class Tell(Protocol):
    """Listener to a preparation: its stage, rows done, rows in all (0: unknown), bytes read, computed or written."""

    def __call__(self, stage: str, done: int, total: int, size: int = 0, /) -> None: ...


class Blocks(Protocol):
    """Table in blocks.

    Results come in no particular order and in blocks of no particular size: sort them before writing.
    """

    def map(self, function: TableFunction, stage: str) -> Blocks:
        """Apply a function to each block now and return the results as blocks.

        The function must treat rows alike however they fall into blocks, be importable where it runs, and mark a bad
        row instead of raising.

        Args:
            stage: The name of this step for the progress callback.
        """
        ...

    def collect(self) -> pa.Table: ...


@dataclass(frozen=True)
class LocalBlocks:
    """Blocks that this process works on one after the other."""

    tables: list[pa.Table]
    progress: Tell

    def map(self, function: TableFunction, stage: str) -> LocalBlocks:
        """Apply a function to each block in turn, reporting the rows done and the bytes computed."""
        total, rows_done, size, results = sum(map(len, self.tables)), 0, 0, []
        self.progress(stage, 0, total)
        for table in self.tables:
            results.append(function(table))
            rows_done += len(table)
            size += results[-1].nbytes
            self.progress(stage, rows_done, total, size)
        return LocalBlocks(results, self.progress)

    def collect(self) -> pa.Table:
        """Return all rows as one table."""
        return pa.concat_tables(self.tables).combine_chunks()


@dataclass(frozen=True)
class RayBlocks:
    """Blocks of a materialised Ray data set; the caller must have initialised Ray."""

    dataset: ray.data.Dataset
    progress: Tell
    plan: TellPlan

    def map(self, function: TableFunction, stage: str) -> RayBlocks:
        """Apply a function to each block on the cluster, reporting each result as it comes, and wait for all."""
        import ray.data

        ship_plugin(function)
        lazy = self.dataset.map_batches(function, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
        rows, count = self.dataset.count(), self.dataset.num_blocks()
        results: list[ray.ObjectRef[pa.Table]] = []
        size = 0
        self.progress(stage, 0, rows)

        with in_one_line(), plans_told(self.plan):
            for bundle in lazy.iter_internal_ref_bundles():
                results += bundle.block_refs
                size += bundle.size_bytes()
                self.progress(stage, min(rows, rows * len(results) // count), rows, size)  # blocks have as many rows

        with _quiet(ordered=False), in_one_line():
            return RayBlocks(ray.data.from_arrow_refs(results), self.progress, self.plan)

    def collect(self) -> pa.Table:
        """Return all rows as one table in this process."""
        import ray

        with in_one_line():
            return pa.concat_tables(ray.get(self.dataset.to_arrow_refs())).combine_chunks()


def blocks(tables: Iterable[pa.Table], engine: Engine, progress: Tell, plan: TellPlan) -> Blocks:
    """Return the tables as blocks that the engine can work on."""
    if engine == "local":
        return LocalBlocks(list(tables), progress)
    return RayBlocks(dataset(list(tables)), progress, plan)


def dataset(tables: list[pa.Table], *, ordered: bool = False) -> ray.data.Dataset:
    """Return a Ray data set with one block per table.

    Args:
        ordered: Whether results keep the order of the blocks.
    """
    import ray.data

    with _quiet(ordered), in_one_line():
        return ray.data.from_arrow(tables)


def items(objects: Sequence[Any]) -> ray.data.Dataset:
    """Return a Ray data set with one block per object, in a column `item`; results come as they are ready."""
    import ray.data

    with _quiet(ordered=False):
        return ray.data.from_items(list(objects), override_num_blocks=len(objects))


@contextmanager
def _quiet(ordered: bool) -> Iterator[None]:
    """Give data sets that are made here their context: no bars, no console, results in order or not."""
    import ray.data  # its loggers exist from here on
    from ray.data.context import DataContext

    # Ray's log file keeps the plan of every step, and the tracebacks of errors, which are raised anyway.
    for handler in logging.getLogger(ray.data.__name__).handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL)

    context = DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = ordered
    with DataContext.current(context):  # a data set keeps the context of its creation
        yield


@contextmanager
def plans_told(tell: TellPlan) -> Iterator[None]:
    """Tell the plan of each data set whose execution begins in this block, in the words of Ray Data's own log."""
    import ray.data

    handler = _PlanHandler(tell)
    logger = logging.getLogger(ray.data.__name__)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _PlanHandler(logging.Handler):
    """Handler that finds the plans among what Ray Data logs, since no public call returns the optimised plan."""

    def __init__(self, tell: TellPlan) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if (match := _PLAN.fullmatch(record.getMessage())) is not None:
            self._tell(match[1])


def ship_plugin(function: Any) -> None:
    """Register a user's plugin file for pickling by value, since workers cannot import it as a module."""
    function = getattr(function, "func", function)  # unwrap a partial
    if function.__module__.startswith("mtlscale_plugin_"):
        import ray.cloudpickle

        from mtlscale.config.registry.import_order import HELPERS

        helpers = [sys.modules[name] for name in tuple(sys.modules) if name.partition(".")[0] in HELPERS]
        for module in (sys.modules[function.__module__], *helpers):
            ray.cloudpickle.register_pickle_by_value(module)
