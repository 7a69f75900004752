"""Files that are there whole or not at all."""

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
    """Whether it is what a write meets where nothing more fits: a full disk, a quota, a limit of the process."""
    return isinstance(error, OSError) and error.errno in _FULL


def no_space(error: OSError, place: str) -> str:
    """A full disk and its mend in one line. place: what was written to, where the error does not name it."""
    where = str(Path(error.filename).parent) if isinstance(error.filename, str) else place
    why = error.strerror or type(error).__name__
    return f"no space left below {where} on {socket.gethostname()} ({why}); free some, the same command resumes"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary neighbour, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o666 & ~_UMASK)  # mkstemp's files are the owner's alone
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# What is being written has a name of its own: `.NAME.` and what mkstemp or a uuid adds; `.probe-` and a uuid.
_TEMPORARY = re.compile(r"\..+\.([a-z0-9_]{8}|[0-9a-f]{32}(\.gone)?)|\.probe-[0-9a-f]{32}")


def clear_temporaries(folder: Path, older: float = 0.0) -> None:
    """Remove what killed processes were writing here and nobody has touched for so many seconds.

    0 is for whoever alone may write here.
    """
    found = [path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name)]
    if not found:
        return
    now = file_time(folder) if older else 0
    for path in found:
        with contextlib.suppress(OSError):
            if not older or now - path.stat().st_mtime_ns > older * 1e9:
                path.unlink()


def file_time(folder: Path) -> int:
    """What the folder's file system takes the time for, in nanoseconds since 1970."""
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
