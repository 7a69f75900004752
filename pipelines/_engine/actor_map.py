"""Map with an object that is expensive to build, such as a model, over blocks of a table.

It runs on Ray Data's actors, each of which builds the object once, or on threads of this process. Results come in the
order of the blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import pyarrow as pa

from pipelines._engine.blocks import Engine, TellPlan, dataset, plans_told, ship_plugin
from pipelines._engine.map_jobs import cores
from pipelines._engine.ray_errors import in_one_line


class ActorFunction(Protocol):
    """Callable that is built once from its arguments and called by several threads.

    Its results must not depend on the caller.
    """

    def __init__(self, *arguments: Any) -> None: ...

    def __call__(self, table: pa.Table) -> pa.Table: ...


def actor_map(
    function: type[ActorFunction],
    arguments: tuple[Any, ...],
    tables: Sequence[pa.Table],
    engine: Engine,
    max_actors: int | None,
    plan: TellPlan,
) -> Generator[pa.Table]:
    """Yield the results of the function object on each table, in the order of the tables.

    Args:
        arguments: The arguments that build it.
        engine: Where it runs.
        max_actors: Number of actors or threads at most; None: one for every core.
        plan: Listener to the plan that Ray Data executes.
    """
    if engine == "local":
        yield from _threads(function(*arguments), tables, max_actors or cores())
    else:
        yield from _actors(function, arguments, tables, max_actors, plan)


def _threads(function: ActorFunction, tables: Sequence[pa.Table], count: int) -> Generator[pa.Table]:
    pool = ThreadPoolExecutor(count, thread_name_prefix="held")
    pending: deque[Future[pa.Table]] = deque()
    try:
        for table in tables:
            pending.append(pool.submit(function, table))
            if len(pending) > count:  # one block waits while the others are computed
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _actors(
    function: type[ActorFunction],
    arguments: tuple[Any, ...],
    tables: Sequence[pa.Table],
    max_actors: int | None,
    plan: TellPlan,
) -> Generator[pa.Table]:
    """Yield results from as many actors as there are cores or blocks; one of them is enough to begin with."""
    import ray
    import ray.data

    ship_plugin(function)

    count = max(1, min(max_actors or int(ray.cluster_resources().get("CPU", 1)), len(tables)))
    lazy = dataset(list(tables), ordered=True).map_batches(
        function,
        fn_constructor_args=arguments,
        batch_format="pyarrow",
        batch_size=None,
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=count, initial_size=count),
        num_cpus=1,
    )

    with in_one_line(), plans_told(plan):
        yield from lazy.iter_batches(batch_format="pyarrow", batch_size=None)
