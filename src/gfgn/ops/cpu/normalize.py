"""The normalized weights of a graph's edges in both orders, without temporary tensors of one value per edge."""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import for_each_task
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR

# `inverse`, `root`: `1 / degree` and its root; the other arrays are attributes of `gfgn.Graph`. `symmetric`: every edge
# has the weight of its opposite, so that `norm` serves both orders.
Edges = namedtuple(
    "Edges",
    "ptr idx reverse_ptr reverse_idx weight transpose inverse root norm row_norm reverse_norm reverse_row_norm "
    "nodes weighted symmetric",
)
Rows = namedtuple("Rows", "ptr weight degree nodes")
ROWS = 2048
"""Rows in one task."""


@inlined
def normalize_by_target(op: Any, first: int, last: int) -> None:
    for i in range(first, last):
        root, inverse = read(op.root, i), read(op.inverse, i)
        for k in range(read(op.ptr, i), read(op.ptr, i + 1)):
            j = read(op.idx, k)
            norm, row_norm, reverse = root * read(op.root, j), inverse, read(op.inverse, j)
            if op.weighted:
                weight = read(op.weight, k)
                norm, row_norm, reverse = norm * weight, row_norm * weight, reverse * weight
            write(norm, op.norm, k)
            write(row_norm, op.row_norm, k)
            if op.symmetric:
                write(reverse, op.reverse_row_norm, k)


@inlined
def normalize_by_source(op: Any, first: int, last: int) -> None:
    for j in range(first, last):
        root = read(op.root, j)
        for k in range(read(op.reverse_ptr, j), read(op.reverse_ptr, j + 1)):
            i = read(op.reverse_idx, k)
            norm, row_norm = read(op.root, i) * root, read(op.inverse, i)
            if op.weighted:
                weight = read(op.weight, read(op.transpose, k))
                norm, row_norm = norm * weight, row_norm * weight
            write(norm, op.reverse_norm, k)
            write(row_norm, op.reverse_row_norm, k)


@inlined
def normalize_rows(op: Any, task: int) -> None:
    """One order after the other; if symmetric, both in one."""
    blocks = (op.nodes + ROWS - 1) // ROWS
    first = task % blocks * ROWS
    last = min(first + ROWS, op.nodes)
    if task < blocks:
        normalize_by_target(op, first, last)
    else:
        normalize_by_source(op, first, last)


@kernel
def normalize_kernel(arguments: Any, work: Any) -> None:
    for_each_task(normalize_rows, as_pointers(arguments), as_pointers(work))


@inlined
def add_weights(op: Any, task: int) -> None:
    for i in range(task * ROWS, min((task + 1) * ROWS, op.nodes)):
        degree = read(op.degree, i)  # 0 of the dtype; a sum in memory takes several times as long
        for k in range(read(op.ptr, i), read(op.ptr, i + 1)):
            degree = degree + read(op.weight, k)
        write(degree, op.degree, i)


@kernel
def degree_kernel(arguments: Any, work: Any) -> None:
    for_each_task(add_weights, as_pointers(arguments), as_pointers(work))


def normalize(
    by_target: CSR, by_source: CSR, transpose: Tensor, weight: Tensor | None, dtype: torch.dtype, symmetric: bool
) -> tuple[dict[str, Tensor], bool]:
    """`degree`, `norm`, `row_norm`, `reverse_norm` and `reverse_row_norm` of a graph, see `gfgn.Graph`; and whether a
    degree or its inverse is too large for the dtype."""
    nodes, count = by_target.ptr.numel() - 1, by_target.idx.numel()
    degree = by_target.ptr.diff().to(dtype) if weight is None else sum_rows(by_target.ptr, weight)
    inverse = torch.where(degree > 0, degree, torch.inf).reciprocal()
    root = inverse.sqrt()
    norm, row_norm, reverse_row_norm = (arrays.empty(count, dtype=dtype) for _ in range(3))
    reverse_norm = norm if symmetric else arrays.empty(count, dtype=dtype)
    given = root.new_empty(0) if weight is None else weight
    tensors = (*by_target[:2], *by_source[:2], given, transpose, inverse, root, norm, row_norm, reverse_norm)
    op = Edges._make((*map(arrays.flat, (*tensors, reverse_row_norm)), nodes, weight is not None, symmetric))
    threads.run_tasks(normalize_kernel, op, -(-nodes // ROWS) * (1 if symmetric else 2))
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    bad = weight is not None and bool((degree.isinf() | inverse.isinf()).any())
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}, bad


def sum_rows(ptr: Tensor, weight: Tensor) -> Tensor:
    """The sum of the weights of every row, added in order."""
    degree = weight.new_zeros(ptr.numel() - 1)
    op = Rows._make((*map(arrays.flat, (ptr, weight, degree)), len(degree)))
    threads.run_tasks(degree_kernel, op, -(-len(degree) // ROWS))
    return degree
