"""Preparation in a process of its own, a task of Ray: the driver keeps neither its memory nor its load."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mtlscale.execution.monitoring import log

if TYPE_CHECKING:
    from mtlscale.data.format.manifest import SourceInfo
    from pipelines import Pipeline, PrepareContext

_ATTEMPTS = 2  # the process may be killed, as any of Ray's


def prepare_in_task(
    out: Path,
    pipeline: Pipeline,
    source: Path | None,
    info: SourceInfo,
    context: PrepareContext,
    with_shards: Callable[[PrepareContext], PrepareContext],
) -> bool:
    """Prepare into the existing folder `out`, on this node, and report the progress.

    Args:
        out: The folder.
        pipeline: The data set.
        source: Its raw files.
        info: Their description.
        context: The settings of the preparation.
        with_shards: Function that changes the settings for a set whose shards are written by other tasks.

    Returns:
        True once it is prepared; False if the process was killed again and again, and left nothing.

    Raises:
        UserError: For what the pipeline refuses.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from pipelines import PrepareContext, in_one_line

    # On the driver's node, which has the source. It asks for no CPU: those are for the tasks that it waits for.
    this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, num_returns="streaming", scheduling_strategy=this_node)(_prepare)
    located = None if source is None else source.absolute()
    before = set(out.iterdir())

    for _ in range(_ATTEMPTS):
        mute = replace(context, progress=PrepareContext.progress, plan=PrepareContext.plan)
        arguments = (out.absolute(), pipeline, located, info, mute, with_shards)
        try:
            with in_one_line():
                for ref in task.remote(*arguments):
                    listener, words = ray.get(ref)
                    getattr(context, listener)(*words)
            return True
        except ray.exceptions.WorkerCrashedError as error:
            log.warning("preparation lost", extra={"dataset": pipeline.name, "error": str(error).splitlines()[0]})
            for path in set(out.iterdir()) - before:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    return False


def _prepare(
    out: Path,
    pipeline: Pipeline,
    source: Path | None,
    info: SourceInfo,
    context: PrepareContext,
    with_shards: Callable[[PrepareContext], PrepareContext],
) -> Iterator[tuple[Literal["progress", "plan"], tuple[Any, ...]]]:
    """Prepare in a thread, and yield what each listener is to hear as it comes; runs in the task."""
    from pipelines import write_prepared

    messages: queue.Queue[tuple[Literal["progress", "plan"], tuple[Any, ...]] | None] = queue.Queue()
    errors: list[BaseException] = []
    telling = replace(
        context,
        progress=lambda *step: messages.put(("progress", step)),
        plan=lambda stages: messages.put(("plan", (stages,))),
    )

    def work() -> None:
        try:
            prepared = pipeline.prepare(source, telling)
            write_prepared(out, pipeline, info, prepared, with_shards(telling) if prepared.pieces else telling)
        except BaseException as error:
            errors.append(error)
        finally:
            messages.put(None)

    thread = threading.Thread(target=work, name="prepare")
    thread.start()
    while (step := messages.get()) is not None:
        yield step
    thread.join()
    if errors:
        raise errors[0]
