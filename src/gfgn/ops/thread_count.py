"""`num_threads`: the number of threads of PyTorch's operations, for one thread and one block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Sets the number of threads of PyTorch's operations for the calling thread; other threads keep theirs."""
    before = torch.get_num_threads()
    _set(count)
    try:
        yield
    finally:
        _set(before)


def _set(count: int) -> None:
    """`torch.set_num_threads` also sets the number of threads that start later: a thread of that kind sets it back."""
    if count == torch.get_num_threads():
        return
    read, changed = threading.Event(), threading.Event()

    def keep() -> None:
        default = torch.get_num_threads()
        read.set()
        changed.wait()
        torch.set_num_threads(default)

    with _lock:
        keeper = threading.Thread(target=keep, name="gfgn-num-threads", daemon=True)
        keeper.start()
        try:
            read.wait()
            torch.set_num_threads(count)
        finally:
            changed.set()
            keeper.join()
