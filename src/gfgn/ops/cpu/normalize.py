"""The normalized weights of a graph's edges in both orders, without temporary tensors of one value per edge."""

from collections import namedtuple
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.numba_internals import as_pointers, inlined, kernel
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR

# The fields up to `transpose` are attributes of `gfgn.Graph`. `inverse`, `root`: scratch, `1 / degree` and its root.
# `symmetric`: every edge has the weight of its opposite, so that `norm` serves both orders.
Edges = namedtuple(
    "Edges",
    "ptr idx reverse_ptr reverse_idx weight transpose inverse root degree norm row_norm reverse_norm reverse_row_norm "
    "nodes weighted symmetric",
)
Sum = namedtuple("Sum", "index values out count")


@inlined
def divide_degrees(op: Any) -> None:
    for i in range(op.nodes):
        low, high = read(op.ptr, i), read(op.ptr, i + 1)
        write(high - low, op.degree, i)
        if op.weighted:
            write(0, op.degree, i)
            for k in range(low, high):
                write(read(op.degree, i) + read(op.weight, k), op.degree, i)
        write(0, op.inverse, i)
        if read(op.degree, i) > 0:
            write(read(op.inverse, i) + 1, op.inverse, i)  # 1 in the dtype of the weights
            write(read(op.inverse, i) / read(op.degree, i), op.inverse, i)
        write(sqrt(read(op.inverse, i)), op.root, i)


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
    divide_degrees(op)
    normalize_by_target(op)
    normalize_by_source(op)


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
    """See `gfgn.graph`."""
    nodes, count = by_target.ptr.numel() - 1, by_target.idx.numel()
    inverse, root, degree = (arrays.empty(nodes, dtype=dtype) for _ in range(3))
    norm, row_norm, reverse_row_norm = (arrays.empty(count, dtype=dtype) for _ in range(3))
    reverse_norm = norm if symmetric else arrays.empty(count, dtype=dtype)
    given = torch.empty(0, dtype=dtype) if weight is None else weight
    tensors = (*by_target[:2], *by_source[:2], given, transpose, inverse, root, degree, norm, row_norm, reverse_norm)
    op = Edges._make((*map(arrays.flat, (*tensors, reverse_row_norm)), nodes, weight is not None, symmetric))
    threads.run(normalize_kernel, dtype, op, None, 1)
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}


def sum_weights(weight: Tensor, index: Tensor, size: int) -> Tensor:
    """Adds each value to the element of the result with its index, in the order given; leaves out negative indices."""
    out = torch.zeros(size, dtype=weight.dtype)
    op = Sum._make((*map(arrays.flat, (index, weight, out)), weight.numel()))
    threads.run(sum_kernel, weight.dtype, op, None, 1)
    return out
