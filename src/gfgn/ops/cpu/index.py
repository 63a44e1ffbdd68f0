"""The edges of a graph sorted by target and by source, by three counting sorts.

Sorting by source and then, keeping that order, by target sorts by both; sorting the result by source transposes it.
"""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.numba_internals import as_pointers, inlined, kernel
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR, build_patterns

# `edges`: `[2, E]`. `by_source`, `by_target`: scratch, the kept edges in that order, each the number of the edge and the
# node at its other end in one integer (`LOW` bits). `starts`: scratch, `[nodes + 2]`. The next six are the result, with
# room for every edge. `size`: the number of entries, or −1 if an id is out of range. `first_loop`: see `is_kept`.
Edges = namedtuple(
    "Edges",
    "edges by_source by_target starts ptr idx reverse_ptr reverse_idx transpose edge_position size "
    "nodes count first_loop merge",
)
HALF = 32
LOW = (1 << HALF) - 1


@inlined
def is_kept(op: Any, e: int, source: int, target: int) -> bool:
    """Self-loops are dropped, but for the last edges."""
    return source != target or e >= op.first_loop


@inlined
def increase(counts: Any, index: int) -> Any:
    """Adds 1 and returns the number before it."""
    before = read(counts, index)
    write(before + 1, counts, index)
    return before


@inlined
def cumulate(op: Any, counts: Any) -> None:
    """Turns the number of entries of row `i`, at `i + 2`, into the start of row `i`, at `i + 1`.

    While the entries are written, that start moves on to its end, which is the start of the next row: then row `i`
    starts at index `i`.
    """
    for i in range(op.nodes):
        write(read(counts, i + 1) + read(counts, i + 2), counts, i + 2)


@inlined
def count_edges(op: Any) -> bool:
    """Counts the edges of every source and target; false if an id is out of range."""
    for e in range(op.count):
        source, target = read(op.edges, e), read(op.edges, op.count + e)
        if min(source, target) < 0 or max(source, target) >= op.nodes:
            return False
        if is_kept(op, e, source, target):
            increase(op.starts, source + 2)
            increase(op.ptr, target + 2)
    cumulate(op, op.starts)
    cumulate(op, op.ptr)
    return True


@inlined
def sort_by_source(op: Any) -> None:
    for e in range(op.count):
        source, target = read(op.edges, e), read(op.edges, op.count + e)
        if is_kept(op, e, source, target):
            write((e << HALF) | target, op.by_source, increase(op.starts, source + 1))
        else:
            write(-1, op.edge_position, e)


@inlined
def sort_by_target(op: Any) -> None:
    for source in range(op.nodes):
        for k in range(read(op.starts, source), read(op.starts, source + 1)):
            edge = read(op.by_source, k)
            write((edge & ~LOW) | source, op.by_target, increase(op.ptr, (edge & LOW) + 1))


@inlined
def merge_edges(op: Any) -> Any:
    """Writes the rows of the targets and the position of every edge, counts the entries of every source, and returns
    the number of entries."""
    size, low = 0, 0
    for target in range(op.nodes):
        high, last = read(op.ptr, target + 1), -1
        for k in range(low, high):
            edge = read(op.by_target, k)
            source = edge & LOW
            if source != last or not op.merge:
                write(source, op.idx, size)
                increase(op.reverse_ptr, source + 2)
                size, last = size + 1, source
            write(size - 1, op.edge_position, edge >> HALF)
        low = high
        write(size, op.ptr, target + 1)
    cumulate(op, op.reverse_ptr)
    return size


@inlined
def transpose(op: Any) -> None:
    for target in range(op.nodes):
        for k in range(read(op.ptr, target), read(op.ptr, target + 1)):
            at = increase(op.reverse_ptr, read(op.idx, k) + 1)
            write(target, op.reverse_idx, at)
            write(k, op.transpose, at)


@kernel
def sort_kernel(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    size = -1
    if count_edges(op):
        sort_by_source(op)
        sort_by_target(op)
        size = merge_edges(op)
        transpose(op)
    write(size, op.size, 0)


def sort_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> tuple[CSR, CSR, Tensor, Tensor]:
    """See `gfgn.ops.index.index_edges`."""
    count = edges.size(1)
    by_source, by_target, transpose, edge_position = (arrays.empty(count, dtype=torch.int64) for _ in range(4))
    idx, reverse_idx = (arrays.empty(count, dtype=torch.int32) for _ in range(2))
    starts, ptr, reverse_ptr = (torch.zeros(num_nodes + 2, dtype=torch.int64) for _ in range(3))
    size = torch.empty(1, dtype=torch.int64)
    tensors = edges.long(), by_source, by_target, starts, ptr, idx, reverse_ptr, reverse_idx, transpose, edge_position
    op = Edges._make((*map(arrays.flat, (*tensors, size)), num_nodes, count, count - num_loops, merge))
    threads.run(sort_kernel, torch.int64, op, None, 1)
    entries = int(size)
    if entries < 0:
        raise ValueError(f"edge_index must hold ids from 0 to {num_nodes - 1}")
    if entries < count:  # give back the memory of edges that were dropped or merged
        idx, reverse_idx, transpose = (x[:entries].clone() for x in (idx, reverse_idx, transpose))
    rows = num_nodes + 1
    return *build_patterns((ptr[:rows], idx), (reverse_ptr[:rows], reverse_idx)), transpose, edge_position
