"""Freed memory that is kept for the next epoch.

An epoch on the CPU asks for the same large blocks as the one before. glibc hands many of them back to the system as
soon as they are freed, and is then given fresh pages that have to be cleared: up to a fifth of the time of an epoch.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
KEEPING = {TRIM_THRESHOLD: -1, TOP_PAD: 1 << 27, MMAP_THRESHOLD: 1 << 30}
"""Nothing is given back, neither the end of a heap nor a whole one, and only the largest blocks are mapped."""
USUAL = {TRIM_THRESHOLD: 1 << 26, TOP_PAD: 1 << 17, MMAP_THRESHOLD: 1 << 25}
"""What glibc itself arrives at in a process that has freed large blocks."""

_users = 0
_lock = threading.Lock()


@contextmanager
def kept_memory(device: str) -> Iterator[None]:
    """Inside, glibc keeps what is freed; after the last such block it goes back to the system. Of no effect elsewhere
    than on the CPU, or with another C library."""
    library = _glibc() if device == "cpu" else None
    if library is None:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def _count(library: Any, change: int) -> None:
    """One block more, or one less."""
    global _users
    with _lock:
        before, _users = _users, _users + change
        if before and _users:
            return
        for option, value in (KEEPING if _users else USUAL).items():
            library.mallopt(option, value)
        if not _users:
            library.malloc_trim(0)


def _glibc() -> Any:
    """The C library if it is glibc, else `None`."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
