"""Attention: weighted sums over neighbors and dot products along edges, one head at a time.

The rows are split into tasks of about as many entries each. One thread sums a row in the order of its entries, so the
bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu.numba_internals import as_pointers, inlined, kernel
from gfgn.ops.cpu.threads import for_each_task, run_tasks
from gfgn.ops.csr import CSR

SMALL = 1 << 18
"""Products below which one thread is faster."""

# `bounds`: `[tasks + 1]`, the first row of each task.
Attend = namedtuple("Attend", "alpha z ptr idx entry out bounds")
Dot = namedtuple("Dot", "q k ptr idx entry out bounds")

contracted = functools.partial(inlined, fastmath={"contract"})


@contracted
def attend_task(op: Any, task: int) -> None:
    heads = op.alpha.shape[1]
    width = op.z.shape[1] // heads
    for i in range(op.bounds[task], op.bounds[task + 1]):
        row = op.out[i]
        row[:] = 0
        for e in range(op.ptr[i], op.ptr[i + 1]):
            weight, source = op.alpha[op.entry[e]], op.z[op.idx[e]]
            for head in range(heads):
                factor, start = weight[head], head * width
                for c in range(start, start + width):
                    row[c] += factor * source[c]


@kernel
def attend_kernel(op: Any, work: Any) -> None:
    for_each_task(attend_task, op, as_pointers(work))


@contracted
def dot_task(op: Any, task: int) -> None:
    heads = op.out.shape[1]
    width = op.q.shape[1] // heads
    products = np.empty(width, op.q.dtype)
    for i in range(op.bounds[task], op.bounds[task + 1]):
        row = op.q[i]
        for e in range(op.ptr[i], op.ptr[i + 1]):
            source, target = op.k[op.idx[e]], op.out[op.entry[e]]
            for head in range(heads):
                start = head * width
                for c in range(width):
                    products[c] = row[start + c] * source[start + c]
                total = products[0]
                for c in range(1, width):
                    total += products[c]
                target[head] = total


@kernel
def dot_kernel(op: Any, work: Any) -> None:
    for_each_task(dot_task, op, as_pointers(work))


def attend(alpha: Tensor, z: Tensor, rows: CSR, entry: Tensor) -> Tensor:
    """`out_i = Σ_e α_e z_{idx(e)}` over the entries of each row, for each head."""
    out = z.new_empty(rows.ptr.numel() - 1, z.size(1))
    _run(attend_kernel, Attend, (alpha, z), rows, entry, out)
    return out


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`⟨q_i, k_{idx(e)}⟩` for each entry of each row and each head of `width` columns."""
    out = q.new_empty(entry.numel(), q.size(1) // width)
    _run(dot_kernel, Dot, (q, k), rows, entry, out)
    return out


def _run(function: Any, record: Any, inputs: tuple[Tensor, Tensor], rows: CSR, entry: Tensor, out: Tensor) -> None:
    half = out.dtype in (torch.bfloat16, torch.float16)
    result = out.float() if half else out
    operands = [(x.float() if half else x).detach().contiguous() for x in inputs]
    bounds = _task_bounds(rows, rows.idx.numel() * inputs[1].size(1))
    op = record._make(x.numpy() for x in (*operands, rows.ptr, rows.idx, entry, result, bounds))
    run_tasks(function, result.dtype, op, bounds.numel() - 1)
    if half:
        out.copy_(result)


def _task_bounds(rows: CSR, products: int) -> Tensor:
    """Splits the rows into tasks of about as many entries each, several per thread."""
    size, threads = rows.ptr.numel() - 1, torch.get_num_threads()
    if threads == 1 or products < SMALL:
        return torch.tensor([0, size])
    cuts = np.searchsorted(rows.ptr.numpy(), np.linspace(0, rows.idx.numel(), 4 * threads + 1)[1:-1])
    return torch.tensor([0, *np.unique(cuts).tolist(), size])
