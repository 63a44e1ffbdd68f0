"""The edges of a graph sorted by target and by source, by three counting sorts.

Sorting by source and then, keeping that order, by target sorts by both; sorting the result by source transposes it.
"""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR, build_patterns

# `edges`: source and target of edge `e` are at `e * step` and `second + e * step`. `starts`, `ends`, `left`: scratch of
# `cumulate`, for the sources, the targets, and the sources of the merged edges. `by_target`: scratch, the kept edges in
# that order, each the number of the edge and the node at its other end in one integer. The next six are the result,
# with room for every edge; `transpose` is scratch too, as fresh memory is slow to write to. `size`: the number of
# entries, or −1 if an id is out of range.
Edges = namedtuple(
    "Edges",
    "edges starts ends left by_target ptr idx reverse_ptr reverse_idx transpose edge_position size "
    "nodes count step second first_loop merge",
)
HALF = 32
LOW = (1 << HALF) - 1
MOST = 0.9
"""The share of the edges below which the memory of those that were dropped or merged is given back."""


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
        source, target = read(op.edges, e * op.step), read(op.edges, op.second + e * op.step)
        if min(source, target) < 0 or max(source, target) >= op.nodes:
            return False
        if is_kept(op, e, source, target):
            increase(op.starts, source + 2)
            increase(op.ends, target + 2)
    for i in range(op.nodes + 2):
        write(read(op.starts, i), op.left, i)
    cumulate(op, op.starts)
    cumulate(op, op.ends)
    return True


@inlined
def sort_by_source(op: Any) -> None:
    for e in range(op.count):
        source, target = read(op.edges, e * op.step), read(op.edges, op.second + e * op.step)
        if is_kept(op, e, source, target):
            write((e << HALF) | target, op.transpose, increase(op.starts, source + 1))
        else:
            write(-1, op.edge_position, e)


@inlined
def sort_by_target(op: Any) -> None:
    for source in range(op.nodes):
        for k in range(read(op.starts, source), read(op.starts, source + 1)):
            edge = read(op.transpose, k)
            write((edge & ~LOW) | source, op.by_target, increase(op.ends, (edge & LOW) + 1))


@inlined
def merge_edges(op: Any) -> Any:
    """Writes the rows of the targets and the position of every edge, and returns the number of entries."""
    size, low = 0, 0
    for target in range(op.nodes):
        high, last = read(op.ends, target + 1), -1
        for k in range(low, high):
            edge = read(op.by_target, k)
            source = edge & LOW
            if source != last or not op.merge:
                write(source, op.idx, size)
                size, last = size + 1, source
            else:
                write(read(op.left, source + 2) - 1, op.left, source + 2)
            write(size - 1, op.edge_position, edge >> HALF)
        low = high
        write(size, op.ptr, target + 1)
    return size


@inlined
def transpose(op: Any, size: int) -> None:
    """Writes the rows of the sources."""
    cumulate(op, op.left)
    for target in range(op.nodes):
        for k in range(read(op.ptr, target), read(op.ptr, target + 1)):
            # One write of both numbers takes half the time of two, as each of them waits for the memory.
            write((k << HALF) | target, op.transpose, increase(op.left, read(op.idx, k) + 1))
    for k in range(size):
        entry = read(op.transpose, k)
        write(entry & LOW, op.reverse_idx, k)
        write(entry >> HALF, op.transpose, k)
    for source in range(op.nodes + 1):
        write(read(op.left, source), op.reverse_ptr, source)


@kernel
def sort_kernel(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    size = -1
    if count_edges(op):
        sort_by_source(op)
        sort_by_target(op)
        size = merge_edges(op)
        transpose(op, size)
    write(size, op.size, 0)


def sort_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> tuple[CSR, CSR, Tensor, Tensor]:
    """See `gfgn.ops.index.index_edges`."""
    count = edges.size(1)
    counts = [torch.zeros(num_nodes + 2, dtype=torch.int32) for _ in range(3)]
    scratch, transpose, edge_position = (arrays.empty(count, dtype=torch.int64) for _ in range(3))
    idx, reverse_idx = (arrays.empty(count, dtype=torch.int32) for _ in range(2))
    ptr, reverse_ptr = (torch.zeros(num_nodes + 1, dtype=torch.int64) for _ in range(2))
    size = torch.empty(1, dtype=torch.int64)
    edges, second, step = _flat(edges)
    tensors = edges, *counts, scratch, ptr, idx, reverse_ptr, reverse_idx, transpose, edge_position, size
    op = Edges._make((*map(arrays.flat, tensors), num_nodes, count, step, second, count - num_loops, merge))
    threads.run(sort_kernel, edges.dtype, op, None, 1)
    entries = int(size)
    if entries < 0:
        raise ValueError(f"edge_index must hold ids from 0 to {num_nodes - 1}")
    idx, reverse_idx, transpose = idx[:entries], reverse_idx[:entries], transpose[:entries]
    if entries < MOST * count:
        idx, reverse_idx, transpose = idx.clone(), reverse_idx.clone(), transpose.clone()
    by_target, by_source = build_patterns((ptr, idx), (reverse_ptr, reverse_idx))
    return by_target, by_source, transpose, edge_position


def _flat(edges: Tensor) -> tuple[Tensor, int, int]:
    """The memory of the edges, and how many elements the targets and the next edge are away: no copy of a transpose."""
    if edges.size(1) == 0:
        return edges.reshape(0), 0, 1
    second, step = edges.stride()
    return edges.as_strided((1 + second + (edges.size(1) - 1) * step,), (1,)), second, step
