"""Attention: weighted sums over neighbors and dot products along edges, one head at a time.

The rows are split into tasks of about as many entries each. One thread sums a row in the order of its entries, so the
bits do not depend on the number of threads.
"""

import functools
from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu import arrays
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import for_each_task, run_tasks
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR

SMALL = 1 << 18
"""Products below which one thread is faster."""

# `entry`: the row of `alpha`, or of `out`, of each entry; `bounds`: `[tasks + 1]`, the first row of each task.
Attend = namedtuple("Attend", "alpha z ptr idx entry out bounds heads width")
Dot = namedtuple("Dot", "q k ptr idx entry out bounds heads width")


@functools.partial(inlined, fastmath={"contract"})
def attend_task(op: Any, task: int) -> None:
    columns = op.heads * op.width
    for i in range(read(op.bounds, task), read(op.bounds, task + 1)):
        for c in range(i * columns, (i + 1) * columns):
            write(0, op.out, c)
        for e in range(read(op.ptr, i), read(op.ptr, i + 1)):
            alpha = read(op.entry, e) * op.heads
            for head in range(op.heads):
                factor = read(op.alpha, alpha + head)
                source, target = read(op.idx, e) * columns + head * op.width, i * columns + head * op.width
                for c in range(op.width):
                    write(read(op.out, target + c) + factor * read(op.z, source + c), op.out, target + c)


@kernel
def attend_kernel(op: Any, work: Any) -> None:
    for_each_task(attend_task, as_pointers(op), as_pointers(work))


@inlined
def four_dots(op: Any, q: int, k0: int, k1: int, k2: int, k3: int) -> Any:
    """The dot products of one head of `q` with four of `k`: four independent sums hide the latency of an addition."""
    x = read(op.q, q)
    t0, t1, t2, t3 = x * read(op.k, k0), x * read(op.k, k1), x * read(op.k, k2), x * read(op.k, k3)
    for c in range(1, op.width):
        x = read(op.q, q + c)
        t0 += x * read(op.k, k0 + c)
        t1 += x * read(op.k, k1 + c)
        t2 += x * read(op.k, k2 + c)
        t3 += x * read(op.k, k3 + c)
    return t0, t1, t2, t3


@inlined
def dot_task(op: Any, task: int) -> None:
    columns = op.heads * op.width
    for i in range(read(op.bounds, task), read(op.bounds, task + 1)):
        last = read(op.ptr, i + 1) - 1
        for e0 in range(read(op.ptr, i), last + 1, 4):
            e1, e2, e3 = min(e0 + 1, last), min(e0 + 2, last), min(e0 + 3, last)  # past the end, the last is repeated
            k0, k1 = read(op.idx, e0) * columns, read(op.idx, e1) * columns
            k2, k3 = read(op.idx, e2) * columns, read(op.idx, e3) * columns
            for head in range(op.heads):
                first = head * op.width
                dots = four_dots(op, i * columns + first, k0 + first, k1 + first, k2 + first, k3 + first)
                write(dots[0], op.out, read(op.entry, e0) * op.heads + head)
                write(dots[1], op.out, read(op.entry, e1) * op.heads + head)
                write(dots[2], op.out, read(op.entry, e2) * op.heads + head)
                write(dots[3], op.out, read(op.entry, e3) * op.heads + head)


@kernel
def dot_kernel(op: Any, work: Any) -> None:
    for_each_task(dot_task, as_pointers(op), as_pointers(work))


def attend(alpha: Tensor, z: Tensor, rows: CSR, entry: Tensor) -> Tensor:
    """`out_i = Σ_e α_e z_{idx(e)}` over the entries of each row, for each head."""
    heads = alpha.size(1)
    return _run(attend_kernel, Attend, (alpha, z), rows, entry, (rows.ptr.numel() - 1, z.size(1)), heads)


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`⟨q_i, k_{idx(e)}⟩` for each entry of each row and each head of `width` columns."""
    heads = q.size(1) // width
    return _run(dot_kernel, Dot, (q, k), rows, entry, (entry.numel(), heads), heads)


def _run(
    function: Any,
    record: Any,
    inputs: tuple[Tensor, Tensor],
    rows: CSR,
    entry: Tensor,
    shape: tuple[int, int],
    heads: int,
) -> Tensor:
    x = inputs[1]
    dtype = arrays.compute_dtype(x)
    out = arrays.empty(*shape, dtype=dtype)
    bounds = _task_bounds(rows, rows.idx.numel() * x.size(1))
    pattern = map(arrays.flat, (rows.ptr, rows.idx, entry, out, bounds))
    op = record._make((*(arrays.flat(t, dtype) for t in inputs), *pattern, heads, x.size(1) // heads))
    run_tasks(function, op, bounds.numel() - 1)
    return out.to(x.dtype)


def _task_bounds(rows: CSR, products: int) -> Tensor:
    """Splits the rows into tasks of about as many entries each, several per thread."""
    size, threads = rows.ptr.numel() - 1, torch.get_num_threads()
    if threads == 1 or products < SMALL:
        return torch.tensor([0, size])
    cuts = np.searchsorted(rows.ptr.numpy(), np.linspace(0, rows.idx.numel(), 4 * threads + 1)[1:-1])
    return torch.tensor([0, *np.unique(cuts).tolist(), size])
