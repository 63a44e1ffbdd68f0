"""From lists of edges to a `Graph` within a small multiple of the graph's own size.

Node numbers and places of edges stay 32-bit, and edges are merged as a SciPy matrix whose conversions are counting
sorts. `Graph.from_edge_index` does the same for any device and order of edges, and holds several copies of them on the
way.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.graph import Graph
from gfgn.ops.csr import CSR, compress

LARGE = 2**22
"""Edges from which on freed memory is given back at once."""


def return_free_memory() -> None:
    """Gives freed memory back to the system where the C library would keep it; on other systems than Linux, nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def undirected_graph(source: NDArray[Any], target: NDArray[Any], num_nodes: int, batch: Tensor | None = None) -> Graph:
    """The graph of the given edges and their opposites, each once; self-loops are dropped.

    Args:
        source: `[E]`, integers from 0 to `num_nodes` − 1.
        target: `[E]`, the same.
        num_nodes: Number of nodes.
        batch: `[N]`, the graph each node belongs to, where there are several; every one has a node.
    """
    return graph_of(symmetric(merged(source, target, None, num_nodes)), undirected=True, batch=batch)


def merged(
    source: NDArray[Any], target: NDArray[Any], weight: NDArray[np.float32] | None, num_nodes: int
) -> scipy.sparse.csr_array:
    """`A` with a row a target, every edge once and no self-loops; weights of repeated edges are added.

    Without weights the entries are ones of int8.
    """
    keep = source != target
    if not keep.all():
        source, target, weight = source[keep], target[keep], None if weight is None else weight[keep]
    del keep
    values = np.ones(source.size, dtype=np.int8) if weight is None else weight
    with np.errstate(over="ignore"):
        matrix = scipy.sparse.coo_array((values, (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    if weight is None:
        matrix.data[:] = 1  # the count of repetitions, which may have wrapped around
    return matrix


def symmetric(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """The larger of `A` and its transpose, entry by entry."""
    return scipy.sparse.csr_array(matrix.maximum(matrix.T))


def graph_of(matrix: scipy.sparse.csr_array, *, undirected: bool, batch: Tensor | None = None) -> Graph:
    """The `Graph` that `Graph.from_edge_index` would build from the entries.

    Args:
        matrix: `A` with a row a target, in order and without repetitions; int8 where it has no weights.
        undirected: Says that `A` is symmetric.
        batch: `[N]`, the graph each node belongs to.
    """
    weight = None if matrix.data.dtype == np.int8 else torch.from_numpy(matrix.data)
    by_target = _rows(matrix.indptr, matrix.indices)
    # int32 where the matrix has it: the largest thing here but for the graph itself.
    places = np.arange(matrix.nnz, dtype=matrix.indices.dtype)
    flipped = scipy.sparse.csr_array((places, matrix.indices, matrix.indptr), shape=matrix.shape).tocsc()
    del places
    by_source = by_target if undirected else _rows(flipped.indptr, flipped.indices)
    if by_source is not by_target and _same(by_source, by_target):
        by_source = by_target
    transpose = torch.from_numpy(flipped.data)
    large = matrix.nnz >= LARGE
    del flipped, matrix
    if large:
        return_free_memory()
    return graph_from_rows(by_target, by_source, transpose, weight, symmetric=undirected, batch=batch)


def graph_from_rows(
    by_target: CSR,
    by_source: CSR,
    transpose: Tensor,
    weight: Tensor | None = None,
    *,
    symmetric: bool,
    batch: Tensor | None = None,
) -> Graph:
    """The graph of edges that are in order already; the arguments are attributes of `Graph`.

    Args:
        symmetric: Says that every edge weighs what its opposite does, so that `norm` serves both orders.
    """
    entries = by_target.idx.numel()
    target = _row_of_each(by_target.ptr.diff())
    degree = _degree(by_target, target, weight)
    inverse = torch.where(degree > 0, degree, torch.inf).reciprocal()
    root = inverse.sqrt()
    norm = root.index_select(0, by_target.idx).mul_(root.index_select(0, target))
    row_norm = inverse.index_select(0, target)
    del target
    reverse_row_norm = inverse.index_select(0, by_source.idx)  # the targets, in the order of `by_source`
    symmetric = symmetric or (weight is None and by_source is by_target)
    if weight is not None:
        norm.mul_(weight)
        row_norm.mul_(weight)
        reverse_row_norm.mul_(weight if symmetric else weight.index_select(0, transpose))
    if entries >= LARGE:
        return_free_memory()
    return Graph(
        num_nodes=degree.numel(),
        num_graphs=1 if batch is None else int(batch.max()) + 1,
        by_target=by_target,
        by_source=by_source,
        norm=norm,
        row_norm=row_norm,
        reverse_norm=norm if symmetric else norm.index_select(0, transpose),
        reverse_row_norm=reverse_row_norm,
        weight=weight,
        degree=degree,
        transpose=transpose,
        edge_position=torch.arange(entries, dtype=transpose.dtype),
        batch=batch,
    )


def _same(first: CSR, second: CSR) -> bool:
    return torch.equal(first.ptr, second.ptr) and torch.equal(first.idx, second.idx)


def _degree(rows: CSR, target: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return rows.ptr.diff().to(torch.get_default_dtype())
    return weight.new_zeros(rows.ptr.numel() - 1).index_add_(0, target, weight)


def _rows(ptr: NDArray[Any], idx: NDArray[Any]) -> CSR:
    return rows_from_pointers(torch.from_numpy(ptr.astype(np.int64)), torch.from_numpy(idx))


def rows_from_pointers(ptr: Tensor, idx: Tensor) -> CSR:
    """`CSR` from compressed rows: where each begins, and the entries."""
    return compress(_row_of_each(ptr.diff()), idx, ptr.numel() - 1)


def _row_of_each(length: Tensor) -> Tensor:
    """`[E]`, int32: the row that each entry is in; `torch.repeat_interleave` takes longer, for 64 bits."""
    return torch.from_numpy(np.repeat(np.arange(length.numel(), dtype=np.int32), length.numpy()))
