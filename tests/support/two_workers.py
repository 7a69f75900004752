"""Two real processes joined by gloo on loopback, or more, for tests of "workers don't matter".

They stay as a task leaves them: one that changes a module has to change it back.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import forked
import torch

from mtlscale.config import load_plugin
from mtlscale.data import Workers

_TESTS = Path(__file__).parents[1]
PLUGINS = sorted(
    path
    for folder in (_TESTS / "plugins", _TESTS.parent / "docs" / "examples")
    for path in folder.glob("*.py")
    if path.name != "write_files.py"  # a program that others of them read the files of
)


def two_workers(task: Callable[[Any, Workers], Any], jobs: list[Any], *, count: int = 2) -> list[list[Any]]:
    """What each of two processes, or of so many, finds for every job: `[rank][job]`, as `task(job, workers)` gave
    it."""
    group = _GROUPS.get(count) or _GROUPS.setdefault(count, _Group(count))
    try:
        return group.found(task, jobs)
    except BaseException:  # one worker may now wait for another for ever
        del _GROUPS[count]
        group.end()
        raise


class _Group:
    """They take seconds to start, and so wait for the next task until this process ends."""

    def __init__(self, count: int) -> None:
        context = forked.context()
        self.folder = tempfile.TemporaryDirectory()
        self.ends: list[Connection] = []
        self.processes = []
        for rank in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(rank, count, theirs, self.folder.name), daemon=True)
            process.start()
            theirs.close()
            self.ends.append(mine)
            self.processes.append(process)

    def found(self, task: Callable[[Any, Workers], Any], jobs: list[Any]) -> list[list[Any]]:
        for end in self.ends:
            end.send_bytes(pickle.dumps((task, jobs)))  # `send` would share tensors' memory instead
        answers: dict[int, list[Any]] = {}
        while len(answers) < len(self.ends):
            for end in wait([end for rank, end in enumerate(self.ends) if rank not in answers]):
                rank = self.ends.index(end)  # type: ignore[arg-type]
                answers[rank], error = self.ends[rank].recv()
                if error:
                    raise RuntimeError(f"worker {rank}: {error}")
        return [answers[rank] for rank in range(len(self.ends))]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.folder.cleanup()


_GROUPS: dict[int, _Group] = {}


def _worker(rank: int, count: int, end: Connection, folder: str) -> None:
    for plugin in PLUGINS:
        load_plugin(plugin)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    while True:
        end.send_bytes(pickle.dumps(_answer(end, Workers(rank, count))))


def _answer(end: Connection, workers: Workers) -> tuple[list[Any], str]:
    """What was found, and what went wrong."""
    found: list[Any] = []
    where = "what to do"
    try:
        task, jobs = end.recv()
        for number, job in enumerate(jobs):
            where = f"job {number}: {getattr(job, 'method', job)}"
            found.append(task(job, workers))
    except EOFError:
        # No teardown: gloo's threads, torn down while the other still talks, abort the interpreter now and then.
        os._exit(0)
    except Exception:
        return [], f"{where}\n{traceback.format_exc()}"
    return found, ""
