"""Process-wide settings of PyTorch that training changes while it runs and restores afterwards.

Other threads of the process see the changed values during the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gfgn.data.dataset import Dataset
from gfgn.nn.registry import HIDDEN
from gfgn.train.config import TrainConfig

SMALL = 2**23
"""Values of an edge-wise tensor below which one thread is faster than several."""


@contextmanager
def fitting_threads(data: Dataset, replicas: int = 1) -> Iterator[None]:
    """Sets one thread for small graphs (`torch.set_num_threads`), whose operations are too short to divide: on a busy
    machine, threads that wait for each other make them many times slower."""
    small = (data.graph.num_edges + data.num_nodes) * HIDDEN * replicas < SMALL
    with num_threads(1 if small else torch.get_num_threads()):
        yield


@contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Sets the number of threads of PyTorch's operations, also for threads that start meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def precision(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Sets the precision of float32 matrix products on a GPU (`torch.set_float32_matmul_precision`)."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
