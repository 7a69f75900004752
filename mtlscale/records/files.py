"""Atomic writes: files that are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import tempfile
import uuid
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException | None) -> bool:
    """Return whether an error means that nothing more fits: a full disk, a quota, a limit of the process."""
    return isinstance(error, OSError) and error.errno in _FULL


def no_space(error: OSError, location: str) -> str:
    """Return one line on a full disk and its remedy.

    Args:
        error: The error of the write.
        location: The target of the write, if the error does not name it.
    """
    folder = str(Path(error.filename).parent) if isinstance(error.filename, str) else location
    reason = error.strerror or type(error).__name__
    return f"no space left below {folder} on {socket.gethostname()} ({reason}); free some, the same command resumes"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all: temporary neighbour, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")

    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o666 & ~_UMASK)  # only the owner may read files of mkstemp
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# A file that is being written is called `.NAME.` with a suffix of mkstemp or a uuid, or `.probe-` with a uuid.
_TEMPORARY = re.compile(r"\..+\.([a-z0-9_]{8}|[0-9a-f]{32})|\.probe-[0-9a-f]{32}")


def clear_temporaries(folder: Path, older: float = 0.0) -> None:
    """Remove the temporary files of killed processes that have not been touched for some time.

    Args:
        older: The time in seconds; 0 is for the only process that may write here.
    """
    temporaries = [path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name)]
    if not temporaries:
        return

    current_time = file_time(folder) if older else 0
    for path in temporaries:
        with contextlib.suppress(OSError):
            if not older or current_time - path.stat().st_mtime_ns > older * 1e9:
                path.unlink()


def file_time(folder: Path) -> int:
    """Return the current time of the folder's file system, in nanoseconds since 1970."""
    mark = folder / f".clock.{uuid.uuid4().hex}"
    try:
        mark.touch()
        return mark.stat().st_mtime_ns
    finally:
        mark.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_UMASK = _umask()  # read once: reading it means setting it, which threads would notice
