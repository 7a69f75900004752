"""Processes of their own that do not import everything again, for tests that kill them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest
import torch.multiprocessing

# One process imports these, once, and runs nothing else: what takes seconds, above all torch.
IMPORTED = ["mtlscale.training.engine.loop", "mtlscale.metrics.tasks", "pytest"]


def context() -> ForkServerContext:
    """Give what makes such processes."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:  # else it finds the packages that are installed
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.forkserver.ensure_running()
    return found


def call(task: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Run `task(0, *arguments)` in a process to its end, as `torch.multiprocessing.spawn` does."""
    context()
    torch.multiprocessing.start_processes(task, arguments, start_method="forkserver")
