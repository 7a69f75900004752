"""Limits of memory that a process runs under: those of its control groups, and of its address space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes about 2^63 for no limit


@dataclass(frozen=True)
class CgroupMemory:
    """The memory limit of a control group that this process is in."""

    limit: int
    free: int  # bytes that may still be used; page cache that nobody has used of late counts as free


@dataclass(frozen=True)
class _Names:
    """The files of a version of control groups."""

    limit: str
    used: str
    cache: str  # key in memory.stat


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Names("memory.max", "memory.current", "inactive_file")


def cgroup_memory(root: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> CgroupMemory | None:
    """Return the limit of the control group that leaves the least memory; None if there is no limit.

    Args:
        root: Where control groups are mounted.
        own: The file that lists those of this process.
    """
    limits = [memory for folder, names in _groups(root, own) if (memory := _memory(folder, names)) is not None]
    return min(limits, key=lambda memory: memory.free, default=None)


def kills(root: Path = _CGROUPS, own: Path = _OWN_CGROUPS) -> int:
    """Return how many processes of this process's control group the kernel has killed for memory."""
    for folder, names in _groups(root, own):
        for file in ("memory.events", "memory.oom_control"):
            count = _value(folder / file, "oom_kill")
            if count is not None and (folder / names.limit).exists():
                return count
    return 0


def address_space(status: Path = Path("/proc/self/statm")) -> tuple[int, int] | None:
    """Return the limit of this process's address space (`ulimit -v`) and what is free of it; None if there is none."""
    try:
        import resource
    except ImportError:  # no such limits on this system
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int(status.read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        used = 0
    return limit, max(0, limit - used)


def _groups(root: Path, own: Path) -> Iterator[tuple[Path, _Names]]:
    """Yield the folders of this process's control groups for memory, each before those that it lies in."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            mount, names = root / "memory", _V1
        elif controllers == "":
            mount, names = root, _V2
        else:
            continue

        folder = mount / path.lstrip("/")
        if not folder.is_dir():  # a container may see the host's path, and its own group at the root
            folder = mount
        while folder.is_dir():
            yield folder, names
            if folder == mount or mount not in folder.parents:
                break
            folder = folder.parent


def _memory(folder: Path, names: _Names) -> CgroupMemory | None:
    try:
        limit = int((folder / names.limit).read_text())
        used = int((folder / names.used).read_text())
    except (OSError, ValueError):  # the root has no limit, and "max" is none
        return None
    if limit >= _UNLIMITED:
        return None
    cache = _value(folder / "memory.stat", names.cache) or 0
    return CgroupMemory(limit, max(0, limit - max(0, used - cache)))


def _value(file: Path, key: str) -> int | None:
    """Return the number behind a key in a file of keys and numbers."""
    try:
        for line in file.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == key:
                return int(number)
    except (OSError, ValueError):
        pass
    return None
