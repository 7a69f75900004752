"""Slowdown of a busy machine, by its load and by how long Ray took to start; start timeouts grow with it."""

from __future__ import annotations

import os

_MOST = 10.0  # times as long, at most
_USUAL_START_SECONDS = 10.0  # of a local Ray on a machine that has nothing else to do

_ray_start_seconds = 0.0  # of the local Ray of this process


def note_ray_start(seconds: float) -> None:
    """Note how long Ray took to start, or how long it was waited for in vain."""
    global _ray_start_seconds
    _ray_start_seconds = seconds


def slowdown() -> float:
    """Return how many times as long a start may take here as on an idle machine: 1 to 10."""
    return min(_MOST, max(1.0, load() / cores(), _ray_start_seconds / _USUAL_START_SECONDS))


def in_words() -> str:
    """Return what the slowdown was seen by, such as "load 12 on 2 cores, Ray took 40 s to start"."""
    text = f"load {load():.0f} on {cores()} cores"
    return (
        text if _ray_start_seconds <= _USUAL_START_SECONDS else f"{text}, Ray took {_ray_start_seconds:.0f} s to start"
    )


def load() -> float:
    """Return the load average of the last minute, 0 where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
