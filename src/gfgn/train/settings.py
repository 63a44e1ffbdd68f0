"""Device, threads, precision and memory: settings that hold for a block and are restored after it."""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.nn.registry import HIDDEN
from gfgn.ops.thread_count import num_threads as num_threads
from gfgn.train.config import TrainConfig

ONE_THREAD_VALUES = 2**23  # values of an edge-wise tensor below which one thread is faster than several

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
KEEP = {TRIM_THRESHOLD: -1, TOP_PAD: 1 << 27, MMAP_THRESHOLD: 1 << 30}
# What glibc's dynamic thresholds are in a process that has freed large blocks.
LARGEST_DYNAMIC = {TRIM_THRESHOLD: 1 << 26, TOP_PAD: 1 << 17, MMAP_THRESHOLD: 1 << 25}

_gpu = threading.RLock()  # nested: a callback of a call may train, too
_lock = threading.Lock()
_active = 0  # blocks of keep_freed_memory


def choose_device(name: str = "auto") -> str:
    """Returns the device: `"cpu"`, `"cuda"`, `"cuda:1"`, …, `"mps"` or `"auto"`, CUDA if available, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = "cuda" if available["cuda"] else "cpu"
    kind, colon, index = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not available.get(kind, False) or (colon and not (index.isdecimal() and int(index) < count)):
        known = ", ".join(device for device, present in available.items() if present)
        raise ValueError(f"device must be auto or one that this machine has ({known}), got {name!r}")
    return "cuda:0" if name == "cuda" else name  # the form that `tensor.device` has


def edge_values(data: NodeDataset, replicas: int) -> int:
    """Number of values of a tensor with one hidden vector per node and edge for each replica."""
    return (data.graph.num_edges + data.num_nodes) * HIDDEN * replicas


def threads_for(data: NodeDataset, replicas: int = 1) -> AbstractContextManager[None]:
    """Sets one thread for small graphs, whose operations are too short to divide: on a busy machine, threads that wait
    for each other make them many times slower."""
    small = edge_values(data, replicas) < ONE_THREAD_VALUES
    return num_threads(1 if small else torch.get_num_threads())


@contextmanager
def precision(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Sets the precision of float32 matrix products on a GPU, where threads of the process train one after the other.

    They share that setting, the stream and the memory that is freed in its order.
    """
    if device.type != "cuda":
        yield
        return
    with _gpu:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Makes glibc keep freed memory inside the block, so that the next epoch does not page it in again.

    It changes malloc for the whole process, and so is for programs, not for libraries. Training on the CPU then takes
    up to a fifth less processor time, most for the graph level, and more memory between epochs. Blocks can be nested;
    after the last one, free memory goes back to the system, and the thresholds are those that glibc itself reaches in
    a process that has freed large blocks. Has no effect with other C libraries.
    """
    library = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
    _change_memory(library, 1)
    try:
        yield
    finally:
        _change_memory(library, -1)


def _change_memory(library: Any, change: int) -> None:
    """Counts active blocks; the first and the last one set the thresholds."""
    global _active
    with _lock:
        before, _active = _active, _active + change
        if library is None or (before and _active):
            return
        for option, value in (KEEP if _active else LARGEST_DYNAMIC).items():
            library.mallopt(option, value)
        if not _active:
            library.malloc_trim(0)
