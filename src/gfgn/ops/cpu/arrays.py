"""Tensors as kernels take them, and memory for their results."""

from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HUGE_PAGE_BYTES = 4 << 20
"""Size from which NumPy requests huge pages."""


def empty(*shape: int, dtype: torch.dtype) -> Tensor:
    """Uninitialized memory that starts on a cache line; large blocks come from NumPy, which requests huge pages."""
    size = prod(shape) * dtype.itemsize
    if size < HUGE_PAGE_BYTES:
        return torch.empty(shape, dtype=dtype)
    buffer = np.empty(size + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    return torch.from_numpy(buffer[start : start + size]).view(dtype).view(shape)


def flat(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The elements in one block of memory, as `dtype`; copied only where necessary."""
    if dtype is not None and x.dtype != dtype:
        x = x.to(dtype)
    return x.contiguous()


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which kernels compute: float64 for float64, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def stored_dtype(x: Tensor) -> torch.dtype:
    """The dtype that kernels which load bfloat16 as float32 read and write: bfloat16 as it is, else `compute_dtype`."""
    return torch.bfloat16 if x.dtype == torch.bfloat16 else compute_dtype(x)


def dropout_arrays(
    keys: Tensor, rate: Tensor, dtype: torch.dtype
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], Tensor]:
    """Keys, thresholds and scales of `R` replicas that drop values by their hash; see `gfgn.ops.keys.keep`.

    A value is kept where its hash with the low 32 bits of the key is at least `⌊rate 2³²⌋`, and divided by `1 − rate`.
    """
    rate = rate.double()
    threshold = (rate * 2.0**32).floor().to(torch.int64)
    scale = flat(1.0 / (1.0 - rate), dtype)
    bits, limit = (flat(x, torch.int64).numpy().astype(np.uint32) for x in (keys, threshold))
    return bits, limit, scale
