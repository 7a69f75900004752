"""Checks of paths that a user has typed."""

from pathlib import Path


def is_folder(path: Path) -> bool:
    """Return whether a folder exists; False also for a name that is too long for the file system."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether a file exists; False also for a name that is too long for the file system."""
    try:
        return path.is_file()
    except OSError:
        return False
