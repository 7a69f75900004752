"""Start of a program that has no network and can write into one folder alone, where the system allows it.

This file is run as a program by its path and imports nothing but the standard library: a process with threads cannot
leave its user namespace.

    python sandbox.py FOLDER PROGRAM ARGUMENT...
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

REFUSED = "not-sandboxed.txt"  # in the folder: why the system gave no sandbox

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x10000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_MOUNT_SETATTR = 442  # the system call's number on all processors
_WORKING_FOLDER, _WHOLE_TREE, _READ_ONLY = -100, 0x8000, 1
_SET_FLAGS, _IS_UP = 0x8914, 1  # of a network interface
_NOBODY = 65534


def enter(folder: Path) -> None:
    """Leave the network, and make all files read-only but those in a folder.

    Capabilities in the new namespaces end with the next `exec`, for the process is nobody's in them: what runs then
    cannot undo it.

    Raises:
        OSError: If the system does not allow it.
    """
    if sys.platform != "linux":
        raise OSError(f"{sys.platform} has no namespaces")
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _check(libc.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_NETWORK), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user or _NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group or _NOBODY} {group} 1")

    path = os.fsencode(folder.absolute())
    _check(libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None), "mount")
    _check(libc.mount(path, path, None, _BIND | _RECURSIVE, None), "mount")
    for place, added, removed in ((b"/", _READ_ONLY, 0), (path, 0, _READ_ONLY)):
        attributes = struct.pack("QQQQ", added, removed, 0, 0)
        arguments = (_MOUNT_SETATTR, _WORKING_FOLDER, place, _WHOLE_TREE, attributes, len(attributes))
        _check(libc.syscall(*arguments), "mount_setattr")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # the loopback interface alone
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _IS_UP))


def _check(outcome: int, call: str) -> None:
    if outcome != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def main() -> None:
    """Enter the sandbox, or note why there is none; then become the program."""
    folder, *program = sys.argv[1:]
    try:
        enter(Path(folder))
    except (OSError, AttributeError) as error:  # a C library without the calls
        Path(folder, REFUSED).write_text(getattr(error, "strerror", None) or str(error))
    os.chdir(folder)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
