"""From lists of edges to a `Graph` within a small multiple of the graph's own size.

Node numbers and places of edges stay 32-bit, edges are merged as a SciPy matrix whose conversions are counting sorts,
and 64-bit indices, which PyTorch wants, are made of a few rows at a time. `Graph.from_edge_index` does the same for
any device and order of edges, and holds several copies of them on the way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.graph import Graph
from gfgn.ops.rows import Rows, compress

ROWS = 2**14
"""Rows of the adjacency that are weighed at once."""


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
    del flipped, matrix
    return_free_memory()
    return graph_from_rows(by_target, by_source, transpose, weight, symmetric=undirected, batch=batch)


def graph_from_rows(
    by_target: Rows,
    by_source: Rows,
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
    num_nodes, entries = by_target.ptr.numel() - 1, by_target.idx.numel()
    norm, share, degree = _weights(by_target, weight, num_nodes)
    return_free_memory()
    symmetric = symmetric or (weight is None and by_source is by_target)
    return Graph(
        num_nodes=num_nodes,
        num_graphs=1 if batch is None else int(batch.max()) + 1,
        by_target=by_target,
        by_source=by_source,
        norm=norm,
        share=share,
        reverse_norm=norm if symmetric else norm.index_select(0, transpose),
        reverse_share=share.index_select(0, transpose),
        weight=weight,
        degree=degree,
        transpose=transpose,
        slot=torch.arange(entries, dtype=transpose.dtype),
        batch=batch,
    )


def _same(first: Rows, second: Rows) -> bool:
    return torch.equal(first.ptr, second.ptr) and torch.equal(first.idx, second.idx)


def _weights(rows: Rows, weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """`norm`, `share` and `degree` of `Graph`, some rows at a time."""
    dtype = torch.get_default_dtype() if weight is None else weight.dtype
    length = rows.ptr.diff()

    def spans() -> Iterator[tuple[slice, Tensor]]:
        """The entries of some rows, and their targets."""
        for low in range(0, num_nodes, ROWS):
            high = min(low + ROWS, num_nodes)
            targets = torch.repeat_interleave(torch.arange(low, high), length[low:high])
            yield slice(*rows.ptr[[low, high]].tolist()), targets

    degree = length.to(dtype)
    if weight is not None:
        degree.zero_()
        for entries, target in spans():
            degree.index_add_(0, target, weight[entries])
    inverse = torch.where(degree > 0, degree, torch.inf).reciprocal()
    root = inverse.sqrt()
    norm, share = (torch.empty(rows.idx.numel(), dtype=dtype) for _ in range(2))
    for entries, target in spans():
        norm[entries] = root[target] * root[rows.idx[entries]]
        share[entries] = inverse[target]
    if weight is not None:
        norm.mul_(weight)
        share.mul_(weight)
    return norm, share, degree


def _rows(ptr: NDArray[Any], idx: NDArray[Any]) -> Rows:
    return rows_from_pointers(torch.from_numpy(ptr.astype(np.int64)), torch.from_numpy(idx))


def rows_from_pointers(ptr: Tensor, idx: Tensor) -> Rows:
    """`Rows` from compressed rows: where each begins, and the entries."""
    length = ptr.diff()
    row = torch.repeat_interleave(torch.arange(length.numel()), length, output_size=idx.numel())
    return compress(row, idx, length.numel())
