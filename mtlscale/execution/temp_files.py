"""Temporary files of this node's processes, and removal of those that killed processes have left."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"mtlscale-[a-z]+-(\d+)-.*")


def prefix(kind: str) -> str:
    """Return the beginning of the names of this process's temporary files of a kind."""
    return f"mtlscale-{kind}-{os.getpid()}-"


def clear() -> None:
    """Remove temporary files of processes that are gone."""
    import psutil

    alive = set(psutil.pids())
    for path in Path(tempfile.gettempdir()).glob("mtlscale-*"):
        name_match = _NAME.fullmatch(path.name)
        if name_match is None or int(name_match[1]) in alive:
            continue

        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # another user's
