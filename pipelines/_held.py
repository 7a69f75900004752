"""A function that is dear to make, as a model is, of blocks of a table: on Ray Data's actors, each of which makes it
once, or on threads of this process; results in the order of the blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import pyarrow as pa

from pipelines._blocks import Engine, dataset, ship_plugin
from pipelines._tasks import cores


class Holder(Protocol):
    """What is made once, by its arguments, and called by several threads. Its results do not depend on who calls."""

    def __init__(self, *arguments: Any) -> None: ...

    def __call__(self, table: pa.Table) -> pa.Table: ...


def held(
    function: type[Holder], arguments: tuple[Any, ...], tables: Sequence[pa.Table], engine: Engine, most: int | None
) -> Generator[pa.Table]:
    """The results. most: actors, or threads; None: one for every core."""
    if engine == "local":
        yield from _threads(function(*arguments), tables, most or cores())
    else:
        yield from _actors(function, arguments, tables, most)


def _threads(function: Holder, tables: Sequence[pa.Table], count: int) -> Generator[pa.Table]:
    pool = ThreadPoolExecutor(count, thread_name_prefix="held")
    at_work: deque[Future[pa.Table]] = deque()
    try:
        for table in tables:
            at_work.append(pool.submit(function, table))
            if len(at_work) > count:  # one is waiting while the others are worked on
                yield at_work.popleft().result()
        while at_work:
            yield at_work.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _actors(
    function: type[Holder], arguments: tuple[Any, ...], tables: Sequence[pa.Table], most: int | None
) -> Generator[pa.Table]:
    """As many as there are cores, or blocks; one of them is enough to begin with."""
    import ray
    import ray.data

    ship_plugin(function)
    count = max(1, min(most or int(ray.cluster_resources().get("CPU", 1)), len(tables)))
    lazy = dataset(list(tables), ordered=True).map_batches(
        function,
        fn_constructor_args=arguments,
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=count, initial_size=count),
        num_cpus=1,
    )
    yield from lazy.iter_batches(batch_format="pyarrow", batch_size=None)
