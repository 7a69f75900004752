"""What processes keep in the temporary folder of their node, and what those that were killed have left there."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"mtlscale-[a-z]+-(\d+)-.*")


def prefix(kind: str) -> str:
    """How the names of this process's temporary files of a kind begin."""
    return f"mtlscale-{kind}-{os.getpid()}-"


def clear() -> None:
    """Remove what belongs to processes that are gone."""
    import psutil

    alive = set(psutil.pids())
    for path in Path(tempfile.gettempdir()).glob("mtlscale-*"):
        found = _NAME.fullmatch(path.name)
        if found is None or int(found[1]) in alive:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # another user's
