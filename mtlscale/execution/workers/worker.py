"""Set-up of a process that runs are trained in: its threads, its memory, its device and the user's own components."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from mtlscale.config import Run, load_plugin, without_secrets
from mtlscale.config.registry.helpers import helper_files
from mtlscale.execution import temp_files
from mtlscale.execution.planning.reader_report import processes_per_node
from mtlscale.execution.workers.jobs import Options
from mtlscale.records import RunRecord

# The path of its file where the driver runs, and the texts of the file and of its helpers by their names there.
Plugin = tuple[str, dict[str, str]]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # the option numbers of glibc's malloc.h
_KEEP_BYTES = 2**31 - 1  # bytes; the largest number mallopt takes


def sources(plugins: Iterable[str]) -> list[Plugin]:
    """Return plugins as they travel to workers, whose machines may not have the files."""
    travelling: list[Plugin] = []
    for plugin in plugins:
        path = Path(plugin)
        files = {path.name: path, **helper_files(path, path.read_bytes())}
        travelling.append((plugin, {name: file.read_text(encoding="utf-8") for name, file in files.items()}))
    return travelling


def setup(threads: int, plugins: Sequence[Plugin]) -> None:
    """Set up a worker process, once: threads, the allocator, and the user's own components."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(max(1, threads))
    for name, texts in plugins:
        path = Path(name)
        present = {file: path.parent / file for file in texts if (path.parent / file).is_file()}
        if {file: at.read_text(encoding="utf-8") for file, at in present.items()} != texts:
            path = Path(tempfile.mkdtemp(prefix=temp_files.prefix("plugin"))) / path.name
            for file, text in texts.items():
                (path.parent / file).parent.mkdir(parents=True, exist_ok=True)
                (path.parent / file).write_text(text, encoding="utf-8")
        load_plugin(path)


def keep_freed_memory() -> bool:
    """Keep freed memory in the process for the next training step instead of returning it to the system.

    A training step frees and allocates the same large tensors again and again. By default glibc maps each of them anew,
    so that the kernel clears every page in every step: two thirds of the time of batched TOMATO trials on School. A
    process that keeps its memory stays at its peak, which is what the next step needs. Other C libraries are left as
    they are.

    Returns:
        True if the C library allowed it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False

    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _KEEP_BYTES) and mallopt(_TOP_PAD, 64 << 20))


def device() -> str:
    """Return the device that Ray gave this worker: its GPU, or the CPU."""
    import torch

    return "cuda" if torch.cuda.is_available() and os.environ.get("CUDA_VISIBLE_DEVICES", "all") != "" else "cpu"


def processes_here(options: Options) -> int:
    """Return how many processes of an experiment this node may hold at once."""
    import torch

    return processes_per_node(options.resources, torch.cuda.device_count() if options.use_gpu else None)


def failed(run: Run, error: str) -> RunRecord:
    """Return the record of a run that could not be finished."""
    return RunRecord(
        run_id=run.run_id,
        experiment=run.experiment,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        status="failed",
        error=without_secrets(error),
        spec=run.spec,
        fingerprint=run.fingerprint,
        higher_is_better={},
        main_metrics={},
        trial=run.trial,
    )
