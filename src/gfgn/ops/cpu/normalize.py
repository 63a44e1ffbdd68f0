"""The normalized weights of a graph's edges in both orders, without temporary tensors of one value per edge."""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
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
Sum = namedtuple("Sum", "index values out count")


@inlined
def normalize_by_target(op: Any) -> None:
    for i in range(op.nodes):
        root, inverse = read(op.root, i), read(op.inverse, i)
        for k in range(read(op.ptr, i), read(op.ptr, i + 1)):
            norm, row_norm = root * read(op.root, read(op.idx, k)), inverse
            if op.weighted:
                norm, row_norm = norm * read(op.weight, k), row_norm * read(op.weight, k)
            write(norm, op.norm, k)
            write(row_norm, op.row_norm, k)


@inlined
def normalize_by_source(op: Any) -> None:
    for j in range(op.nodes):
        root = read(op.root, j)
        for k in range(read(op.reverse_ptr, j), read(op.reverse_ptr, j + 1)):
            i = read(op.reverse_idx, k)
            norm, row_norm = read(op.root, i) * root, read(op.inverse, i)
            if op.weighted:
                weight = read(op.weight, k if op.symmetric else read(op.transpose, k))
                norm, row_norm = norm * weight, row_norm * weight
            if not op.symmetric:
                write(norm, op.reverse_norm, k)
            write(row_norm, op.reverse_row_norm, k)


@kernel
def normalize_kernel(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    normalize_by_target(op)
    normalize_by_source(op)


@kernel
def degree_kernel(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    for i in range(op.nodes):
        for k in range(read(op.ptr, i), read(op.ptr, i + 1)):
            write(read(op.degree, i) + read(op.weight, k), op.degree, i)


@kernel
def sum_kernel(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    for k in range(op.count):
        index = read(op.index, k)
        if index >= 0:
            write(read(op.out, index) + read(op.values, k), op.out, index)


def normalize(
    by_target: CSR, by_source: CSR, transpose: Tensor, weight: Tensor | None, dtype: torch.dtype, symmetric: bool
) -> dict[str, Tensor]:
    """`degree`, `norm`, `row_norm`, `reverse_norm` and `reverse_row_norm` of a graph; see `gfgn.Graph`."""
    nodes, count = by_target.ptr.numel() - 1, by_target.idx.numel()
    degree = by_target.ptr.diff().to(dtype) if weight is None else sum_rows(by_target.ptr, weight)
    inverse = torch.where(degree > 0, degree, torch.inf).reciprocal()
    root = inverse.sqrt()
    norm, row_norm, reverse_row_norm = (arrays.empty(count, dtype=dtype) for _ in range(3))
    reverse_norm = norm if symmetric else arrays.empty(count, dtype=dtype)
    given = root.new_empty(0) if weight is None else weight
    tensors = (*by_target[:2], *by_source[:2], given, transpose, inverse, root, norm, row_norm, reverse_norm)
    op = Edges._make((*map(arrays.flat, (*tensors, reverse_row_norm)), nodes, weight is not None, symmetric))
    threads.run(normalize_kernel, dtype, op, None, 1)
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}


def sum_rows(ptr: Tensor, weight: Tensor) -> Tensor:
    """The sum of the weights of every row, added in order."""
    degree = weight.new_zeros(ptr.numel() - 1)
    threads.run(
        degree_kernel, weight.dtype, Rows._make((*map(arrays.flat, (ptr, weight, degree)), len(degree))), None, 1
    )
    return degree


def sum_weights(weight: Tensor, index: Tensor, size: int) -> Tensor:
    """Adds each value to the element of the result with its index, in the order given; leaves out negative indices."""
    out = torch.zeros(size, dtype=weight.dtype)
    op = Sum._make((*map(arrays.flat, (index, weight, out)), weight.numel()))
    threads.run(sum_kernel, weight.dtype, op, None, 1)
    return out
