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

_LIBRARIES = ("torch", "ray", "mlflow", "numpy", "scipy", "pyarrow", "torchmetrics", "torchvision")


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
    """Return in one line the accelerator or the processor, and the threads in use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory in MiB: allocated on the GPU, or resident of this process since it started."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
