"""The edges of a graph sorted by target and by source, by three counting sorts on several threads.

Sorting by source and then, keeping that order, by target sorts by both; sorting the result by source transposes it.
Each sort counts, adds up and writes. Every thread counts and writes its own chunk of the edges; a stable sort has one
result, however many chunks there are. An undirected graph is its own transpose, which takes no third sort.
"""

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import Tasks, finish_task, next_task, wait_for_tasks
from gfgn.ops.cpu.vectors import read, write
from gfgn.ops.csr import CSR, SEGMENT
from gfgn.ops.index import BAD_ID, Indexed, first

# `edges`: source and target of edge `e` are at `e * step` and `second + e * step`; `given`: their weights, if
# `weighted`. `sources`, `targets`: scratch, for each chunk one number per node, first of edges, then where its next one
# goes. `by_source`, `by_target`: scratch, the kept edges in these orders, each the number of the edge and the node at
# its other end in one integer. `by_source` becomes `transpose`, as fresh memory is slow to write to. The next seven
# are the result, with room for every edge; the rows of the sources are written if they differ. `facts`: see `BAD`.
Edges = namedtuple(
    "Edges",
    "edges given sources targets by_source by_target ptr idx reverse_ptr reverse_idx edge_position weight facts "
    "nodes count chunks step second first_loop merge weighted",
)
BAD, ENTRIES, UNBALANCED, UNMATCHED, LONGEST, LONGEST_BY_SOURCE = range(6)
"""Where a number is in `facts`: whether an id is out of range; the number of entries; whether a node has not as many
sources as targets; whether an edge has no opposite; the length of the longest row of each order."""
HALF = 32
LOW = (1 << HALF) - 1
CHUNK = 1 << 15
"""The least number of edges for one more thread."""


@inlined
def run_phase(run_task: Any, op: Any, work: Any, phase: int, tasks: int) -> None:
    """Calls `run_task(op, task)` for the tasks of a phase that this thread gets, and waits for the other threads."""
    task = next_task(work, phase)
    while task < tasks:
        run_task(op, task)
        task = finish_task(work, phase)
    wait_for_tasks(work, phase, tasks)


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
def cumulate(op: Any, counts: Any, node: int, total: int) -> Any:
    """Turns the counts of a node in every chunk into where its entries of that chunk start; returns where they end."""
    for chunk in range(op.chunks):
        number = read(counts, chunk * op.nodes + node)
        write(total, counts, chunk * op.nodes + node)
        total += number
    return total


@inlined
def end_of(op: Any, counts: Any, node: int) -> Any:
    """Where a row of a finished sort ends, and the next one starts: the place of the last chunk has moved on to it."""
    return read(counts, (op.chunks - 1) * op.nodes + node) if node >= 0 else 0


@inlined
def first_row(op: Any, counts: Any, chunk: int) -> Any:
    """The first row of a chunk of whole rows, of about the same number of edges each."""
    place = end_of(op, counts, op.nodes - 1) * chunk // op.chunks
    low, high = 0, op.nodes
    while low < high:
        middle = (low + high) // 2
        if end_of(op, counts, middle) <= place and chunk > 0:
            low = middle + 1
        else:
            high = middle
    return low if chunk < op.chunks else op.nodes


@inlined
def count_sources(op: Any, chunk: int) -> None:
    base = chunk * op.nodes
    for e in range(op.count * chunk // op.chunks, op.count * (chunk + 1) // op.chunks):
        source, target = read(op.edges, e * op.step), read(op.edges, op.second + e * op.step)
        if min(source, target) < 0 or max(source, target) >= op.nodes:
            write(1, op.facts, BAD)
            break
        if is_kept(op, e, source, target):
            increase(op.sources, base + source)


@inlined
def place_sources(op: Any, _: int) -> None:
    total = 0
    for node in range(op.nodes):
        total = cumulate(op, op.sources, node, total)


@inlined
def sort_by_source(op: Any, chunk: int) -> None:
    base = chunk * op.nodes
    for e in range(op.count * chunk // op.chunks, op.count * (chunk + 1) // op.chunks):
        source, target = read(op.edges, e * op.step), read(op.edges, op.second + e * op.step)
        if is_kept(op, e, source, target):
            write((e << HALF) | target, op.by_source, increase(op.sources, base + source))
        else:
            write(-1, op.edge_position, e)


@inlined
def count_targets(op: Any, chunk: int) -> None:
    base = chunk * op.nodes
    first, last = first_row(op, op.sources, chunk), first_row(op, op.sources, chunk + 1)
    for k in range(end_of(op, op.sources, first - 1), end_of(op, op.sources, last - 1)):
        increase(op.targets, base + (read(op.by_source, k) & LOW))


@inlined
def place_targets(op: Any, _: int) -> None:
    total = 0
    for node in range(op.nodes):
        total = cumulate(op, op.targets, node, total)


@inlined
def sort_by_target(op: Any, chunk: int) -> None:
    base = chunk * op.nodes
    first, last = first_row(op, op.sources, chunk), first_row(op, op.sources, chunk + 1)
    low = end_of(op, op.sources, first - 1)
    for source in range(first, last):
        high = end_of(op, op.sources, source)
        for k in range(low, high):
            edge = read(op.by_source, k)
            write((edge & ~LOW) | source, op.by_target, increase(op.targets, base + (edge & LOW)))
        low = high


@inlined
def count_entries(op: Any, chunk: int) -> None:
    """Counts the entries of every target, at `ptr`, and of every source."""
    base = chunk * op.nodes
    for node in range(op.nodes):
        write(0, op.sources, base + node)
    first, last = first_row(op, op.targets, chunk), first_row(op, op.targets, chunk + 1)
    low = end_of(op, op.targets, first - 1)
    for target in range(first, last):
        high, before, length = end_of(op, op.targets, target), -1, 0
        for k in range(low, high):
            source = read(op.by_target, k) & LOW
            if source != before or not op.merge:
                increase(op.sources, base + source)
                length, before = length + 1, source
        write(length, op.ptr, target + 1)
        low = high


@inlined
def place_entries(op: Any, _: int) -> None:
    """Where the rows of both orders start."""
    by_target, by_source, unbalanced, longest, longest_by_source = 0, 0, 0, 0, 0
    for node in range(op.nodes):
        length, before = read(op.ptr, node + 1), by_source
        by_target += length
        by_source = cumulate(op, op.sources, node, by_source)
        write(by_target, op.ptr, node + 1)
        write(by_source, op.reverse_ptr, node + 1)
        longest, longest_by_source = max(longest, length), max(longest_by_source, by_source - before)
        if by_target != by_source:
            unbalanced = 1
    write(by_target, op.facts, ENTRIES)
    write(unbalanced, op.facts, UNBALANCED)
    write(longest, op.facts, LONGEST)
    write(longest_by_source, op.facts, LONGEST_BY_SOURCE)


@inlined
def merge_edges(op: Any, chunk: int) -> None:
    """Writes the rows of the targets, the position of every edge and the sums of the weights."""
    first, last = first_row(op, op.targets, chunk), first_row(op, op.targets, chunk + 1)
    low = end_of(op, op.targets, first - 1)
    for target in range(first, last):
        high, before, entry = end_of(op, op.targets, target), -1, read(op.ptr, target) - 1
        for k in range(low, high):
            edge = read(op.by_target, k)
            source = edge & LOW
            if source != before or not op.merge:
                entry, before = entry + 1, source
                write(source, op.idx, entry)
                if op.weighted:
                    write(read(op.given, edge >> HALF), op.weight, entry)
            elif op.weighted:  # in the order given, as the sorts are stable
                write(read(op.weight, entry) + read(op.given, edge >> HALF), op.weight, entry)
            write(entry, op.edge_position, edge >> HALF)
        low = high


@inlined
def match_opposites(op: Any, chunk: int) -> None:
    """Writes where the opposite of every entry must be, and whether one is not there."""
    base, unmatched = chunk * op.nodes, 0
    for target in range(first_row(op, op.targets, chunk), first_row(op, op.targets, chunk + 1)):
        for k in range(read(op.ptr, target), read(op.ptr, target + 1)):
            opposite = increase(op.sources, base + read(op.idx, k))
            write(opposite, op.by_source, k)
            if read(op.idx, opposite) != target:
                unmatched = 1
    if unmatched:
        write(1, op.facts, UNMATCHED)


@inlined
def unmatch(op: Any, chunk: int) -> None:
    """Undoes what `match_opposites` did to `sources`."""
    base = chunk * op.nodes
    first, last = first_row(op, op.targets, chunk), first_row(op, op.targets, chunk + 1)
    for k in range(read(op.ptr, first), read(op.ptr, last)):
        source = read(op.idx, k)
        write(read(op.sources, base + source) - 1, op.sources, base + source)


@inlined
def transpose(op: Any, chunk: int) -> None:
    base = chunk * op.nodes
    for target in range(first_row(op, op.targets, chunk), first_row(op, op.targets, chunk + 1)):
        for k in range(read(op.ptr, target), read(op.ptr, target + 1)):
            # One write of both numbers takes half the time of two, as each of them waits for the memory.
            write((k << HALF) | target, op.by_source, increase(op.sources, base + read(op.idx, k)))


@inlined
def write_transpose(op: Any, chunk: int) -> None:
    """Writes the rows of the sources."""
    size = read(op.facts, ENTRIES)
    for k in range(size * chunk // op.chunks, size * (chunk + 1) // op.chunks):
        entry = read(op.by_source, k)
        write(entry & LOW, op.reverse_idx, k)
        write(entry >> HALF, op.by_source, k)


PHASES = 13


@kernel
def sort_kernel(arguments: Any, tasks: Any) -> None:
    op, work = as_pointers(arguments), as_pointers(tasks)
    run_phase(count_sources, op, work, 0, op.chunks)
    if read(op.facts, BAD):
        return
    run_phase(place_sources, op, work, 1, 1)
    run_phase(sort_by_source, op, work, 2, op.chunks)
    run_phase(count_targets, op, work, 3, op.chunks)
    run_phase(place_targets, op, work, 4, 1)
    run_phase(sort_by_target, op, work, 5, op.chunks)
    run_phase(count_entries, op, work, 6, op.chunks)
    run_phase(place_entries, op, work, 7, 1)
    run_phase(merge_edges, op, work, 8, op.chunks)
    # All threads must take the same way: a fact is read only after the phase that writes it.
    directed = read(op.facts, UNBALANCED)
    if not directed:
        run_phase(match_opposites, op, work, 9, op.chunks)
        directed = read(op.facts, UNMATCHED)
        if directed:
            run_phase(unmatch, op, work, 10, op.chunks)
    if directed:
        run_phase(transpose, op, work, 11, op.chunks)
        run_phase(write_transpose, op, work, 12, op.chunks)


def index(edges: Tensor, num_nodes: int, merge: bool, num_loops: int, weight: Tensor | None) -> Indexed:
    """See `gfgn.ops.index.Indexed`."""
    count = edges.size(1)
    chunks = max(1, min(torch.get_num_threads(), count // max(2 * num_nodes, CHUNK)))
    counts = torch.zeros(2, chunks * num_nodes, dtype=torch.int32)
    scratch, transpose, edge_position = (arrays.empty(count, dtype=torch.int64) for _ in range(3))
    idx, reverse_idx = (arrays.empty(count, dtype=torch.int32) for _ in range(2))
    ptr, reverse_ptr = (torch.zeros(num_nodes + 1, dtype=torch.int64) for _ in range(2))
    given = torch.empty(0) if weight is None else weight
    total = arrays.empty(given.numel(), dtype=given.dtype)
    facts = torch.zeros(6, dtype=torch.int64)
    edges, second, step = _flat(edges)
    rows = ptr, idx, reverse_ptr, reverse_idx
    tensors = edges, given, *counts, transpose, scratch, *rows, edge_position, total, facts
    sizes = num_nodes, count, chunks, step, second, count - num_loops
    op = Edges._make((*map(arrays.flat, tensors), *sizes, merge, weight is not None))
    work = Tasks(np.zeros(1 + 2 * PHASES, dtype=np.int64), chunks)
    threads.run(sort_kernel, op, work, chunks)
    bad, entries, unbalanced, unmatched, longest, longest_by_source = facts.tolist()
    if bad:
        raise ValueError(BAD_ID.format(num_nodes - 1))
    by_target = by_source = _rows(ptr, first(idx, entries), longest)
    if unbalanced or unmatched:
        by_source = _rows(reverse_ptr, first(reverse_idx, entries), longest_by_source)
    weight = None if weight is None else first(total, entries)
    return Indexed(by_target, by_source, first(transpose, entries), edge_position, weight)


def _rows(ptr: Tensor, idx: Tensor, longest: int) -> CSR:
    if longest > SEGMENT:
        return CSR.from_pointers(ptr, idx)
    return CSR(ptr, idx, ptr.new_empty(0), ptr.new_zeros(1), ptr.new_empty(0))


def _flat(edges: Tensor) -> tuple[Tensor, int, int]:
    """The memory of the edges, and how many elements the targets and the next edge are away: no copy of a transpose."""
    if edges.size(1) == 0:
        return edges.reshape(0), 0, 1
    second, step = edges.stride()
    return edges.as_strided((1 + second + (edges.size(1) - 1) * step,), (1,)), second, step
