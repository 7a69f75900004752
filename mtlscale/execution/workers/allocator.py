"""The C allocator of a worker process."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # the option numbers of glibc's malloc.h
_KEEP_BYTES = 2**31 - 1  # bytes; the largest number mallopt takes


def keep_freed_memory() -> bool:
    """Keep freed memory in the process for the next training step instead of returning it to the system.

    A training step frees and allocates the same large tensors again and again. By default glibc maps each of them anew,
    so that the kernel clears every page in every step: two thirds of the time of batched TOMATO trials on School. A
    process that keeps its memory stays at its peak, which is what the next step needs. Other C libraries are left as
    they are.

    Returns:
        True if the C library allowed it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False

    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, _KEEP_BYTES) and mallopt(_TOP_PAD, 64 << 20))
