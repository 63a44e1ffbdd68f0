"""Limits on what a file may cost, so that a small file cannot take all memory; every error states its limit."""

from __future__ import annotations

from gfgn.data.messages import DataError

MAX_COLUMNS = 2**15  # of a table; each is examined by itself
MAX_FEATURES = 2**20
FREE = 2**30  # bytes of memory that any file may take
RATIO = 256  # bytes of memory that a file may take for each of its own


def check_count(label: str, noun: str, count: int, limit: int, cure: str = "") -> None:
    if count > limit:
        raise DataError(f"{label} has {count:,} {noun}, expected at most {limit:,}{cure}")


def most_memory(size: int) -> int:
    """The bytes of memory that files of `size` bytes may take."""
    return max(FREE, RATIO * size)


def check_memory(label: str, needed: int, size: int) -> None:
    """Refuses content of `needed` bytes in files of `size` bytes beyond what honest compression gives."""
    limit = most_memory(size)
    if needed > limit:
        what = f"unpacks to {needed / 2**30:,.1f} GiB from {size:,} bytes"
        raise DataError(f"{label} {what}, expected at most {limit / 2**30:,.1f} GiB (1 GiB, or {RATIO} times its size)")
