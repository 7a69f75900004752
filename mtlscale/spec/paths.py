"""Paths that somebody has typed."""

from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that is too long for one is none."""
    try:
        return path.is_file()
    except OSError:
        return False
