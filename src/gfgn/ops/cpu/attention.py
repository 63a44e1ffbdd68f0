"""CPU kernels of attention, in Numba: weighted sums over neighbours and dot products along edges, a head at a time.

Rows are dealt to threads in chunks. A row's sum is taken by one thread in the order of its entries, so bits do not
depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numba import njit
from torch import Tensor

from gfgn.ops.csr import CSR

F = TypeVar("F", bound=Callable[..., Any])
SMALL = 1 << 18
"""Products below which one thread is the better choice."""


def kernel(function: F) -> F:
    """Compiled on its first call, kept on disk, run without the interpreter lock."""
    return cast(F, njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")(function))


@kernel
def attend_kernel(alpha: Any, z: Any, ptr: Any, idx: Any, entry: Any, out: Any, first: int, last: int) -> None:
    heads = alpha.shape[1]
    width = z.shape[1] // heads
    for i in range(first, last):
        row = out[i]
        row[:] = 0
        for e in range(ptr[i], ptr[i + 1]):
            weight, source = alpha[entry[e]], z[idx[e]]
            for head in range(heads):
                factor, start = weight[head], head * width
                for c in range(start, start + width):
                    row[c] += factor * source[c]


@kernel
def dot_kernel(q: Any, k: Any, ptr: Any, idx: Any, entry: Any, out: Any, first: int, last: int) -> None:
    heads = out.shape[1]
    width = q.shape[1] // heads
    products = np.empty(width, q.dtype)
    for i in range(first, last):
        row = q[i]
        for e in range(ptr[i], ptr[i + 1]):
            source, target = k[idx[e]], out[entry[e]]
            for head in range(heads):
                start = head * width
                for c in range(width):
                    products[c] = row[start + c] * source[start + c]
                total = products[0]
                for c in range(1, width):
                    total += products[c]
                target[head] = total


def attend(alpha: Tensor, z: Tensor, rows: CSR, entry: Tensor) -> Tensor:
    """`out_i = Σ_e α_e z_{idx(e)}` over the entries of each row, a head at a time."""
    out = z.new_empty(rows.ptr.numel() - 1, z.size(1))
    _run(attend_kernel, (alpha.contiguous(), z.contiguous()), rows, entry, out)
    return out


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`⟨q_i, k_{idx(e)}⟩` for each entry of each row and each head of `width` columns."""
    out = q.new_empty(entry.numel(), q.size(1) // width)
    _run(dot_kernel, (q.contiguous(), k.contiguous()), rows, entry, out)
    return out


def _run(function: Callable[..., None], inputs: tuple[Tensor, Tensor], rows: CSR, entry: Tensor, out: Tensor) -> None:
    half = out.dtype in (torch.bfloat16, torch.float16)
    result = out.float() if half else out
    tensors = [value.detach().float() if half else value.detach() for value in inputs]
    arrays = [value.numpy() for value in (*tensors, rows.ptr, rows.idx, entry, result)]
    size = rows.ptr.numel() - 1
    threads = torch.get_num_threads()
    if threads == 1 or rows.idx.numel() * inputs[1].size(1) < SMALL:
        function(*arrays, 0, size)
    else:
        # Chunks of about as many entries each, several a thread.
        cuts = np.searchsorted(arrays[2], np.linspace(0, rows.idx.numel(), 4 * threads + 1)[1:-1])
        bounds = [0, *np.unique(cuts).tolist(), size]
        jobs = [_pool(threads).submit(function, *arrays, *pair) for pair in pairwise(bounds)]
        for job in jobs:
            job.result()
    if half:
        out.copy_(result)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="gfgn-attention")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child process has none of its parent's threads
