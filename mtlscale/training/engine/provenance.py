"""Provenance of a result: versions, revision, hardware, memory."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import resource
import subprocess
import sys
from pathlib import Path

import torch

from mtlscale.version import __version__

_LIBRARIES = ("torch", "ray", "mlflow", "numpy", "scipy", "pyarrow", "torchvision")


@functools.cache
def versions() -> dict[str, str]:
    """Return the installed versions of what results may depend on, without importing it."""
    result = {"python": platform.python_version(), "mtlscale": __version__}
    for name in _LIBRARIES:
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


@functools.cache
def revision() -> str:
    """Return the Git revision of this checkout, with "+" for uncommitted changes; "" outside a checkout."""
    folder = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        process = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
        return process.stdout.strip() if process.returncode == 0 else ""

    try:
        if not git("ls-files", "--error-unmatch", "__init__.py"):
            return ""
        head = git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def hardware(device: torch.device) -> str:
    """Return in one line the accelerator, or the processor, torch's instruction set on it, and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads, instructions = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    return f"{processor()}, {instructions}, {platform.machine()} CPU, {threads} thread{'s' * (threads > 1)}"


@functools.cache
def processor() -> str:
    """Return the processor's name, as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor").replace("/", "-")


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory in MiB: allocated on the GPU, or resident of this process since it started."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
