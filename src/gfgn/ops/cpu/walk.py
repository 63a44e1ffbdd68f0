"""The walk over the rows of a sparse pattern that all sums over neighbors share.

Columns are cut into narrow blocks. For each block

1. *pack* copies what the entries will gather, `fields` vectors per node, into a table that fits the cache;
2. *gather* sums the entries of a row, or of a segment of a hub, with all its sums in registers;
3. *finish* turns the sums of a row into the output. The sums of a hub's segments are added in order before it.

An operator is three functions `pack(op, walk, tile, node, packed)`, `gather(op, walk, tile, row, low, high, sums, at)`
and `finish(op, walk, tile, row, at)`, where `packed` is the offset of the node's vectors in the table and `at` that of
the row's sums in `sums` or `walk.row_sums`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, threads
from gfgn.ops.cpu.compiler import inlined
from gfgn.ops.cpu.threads import finish_task, next_task, wait_for_tasks
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import atomic_add, load, prefetch, prefetch_each, read, store
from gfgn.ops.csr import CSR, SEGMENT

TABLE_BYTES = 4 << 20
"""Blocks are packed together up to this size: fewer waits for other threads, yet a table that stays in the cache."""
SINGLE_THREAD_TABLE_BYTES = 1 << 19
"""The same for a single thread, which waits for no other: the size of its own cache."""
PREFETCH_DISTANCE = 16
"""How many entries before its use a node's part of the table is prefetched."""
BLOCKS_AHEAD = 2
"""How many blocks before its use a row is prefetched."""
CHUNK = 4096
"""Entries in one task, about ten microseconds of work; a row counts as `ROW_COST` additional entries."""
ROW_COST = 4
NODES = 512
"""Nodes packed in one task."""
SEGMENTS = CHUNK // SEGMENT
"""Segments of hubs in one task."""
SMALL = 4 * CHUNK
"""Entries × blocks up to which waking another thread costs more than it saves."""


class Walk(NamedTuple):
    """A pattern, how its columns are cut into blocks, and the scratch memory of one call."""

    ptr: Any
    idx: Any
    hub_rows: Any
    hub_ptr: Any
    seg_hub: Any
    table: Any
    """`[group, nodes, fields, width]`: what entries gather."""
    row_sums: Any
    """`[threads, sums, width]`: the sums of each thread's current row."""
    segment_sums: Any
    """`[group, segments, sums, width]`: the sums of the segments of hubs."""
    counters: Any
    """See `gfgn.ops.cpu.threads.Tasks`; each group of blocks has three phases."""
    rows: int
    entries: int
    hubs: int
    segments: int
    nodes: int
    part: int
    """Columns of a replica; a block never straddles two replicas."""
    columns: int
    width: int
    """Columns in a block, a multiple of `LANES`."""
    blocks: int
    group: int
    """Blocks packed together."""
    packed: bool
    """Whether the table has to be packed; else it is given."""
    fields: int
    sums: int


class Tile(NamedTuple):
    """A block of columns."""

    block: int
    column: int
    """Its first column."""
    active: int
    """The number of its columns: `width`, or fewer in the last block of a replica."""
    table: int
    """The offset of its table."""


@inlined
def tile_of(walk: Any, first: int, position: int) -> Any:
    per_part = (walk.part + walk.width - 1) // walk.width
    block = first + position
    inside = (block % per_part) * walk.width
    column = (block // per_part) * walk.part + inside
    table = position * walk.nodes * walk.fields * walk.width
    return Tile(block, column, min(walk.width, walk.part - inside), table)


@inlined
def prefetched_offset(walk: Any, tile: Any, e: int, fields: int) -> Any:
    """The offset in the table of what entry `e` gathers; prefetches what a later entry will."""
    later = tile.table + read(walk.idx, min(e + PREFETCH_DISTANCE, walk.entries - 1)) * (fields * LANES)
    for k in range(fields):
        prefetch(walk.table, later + k * LANES)
    return tile.table + read(walk.idx, e) * (fields * LANES)


@inlined
def prefetch_rows(walk: Any, arrays: Any, offset: int) -> None:
    """Requests the same row of the arrays at `offset` as a later block will need it."""
    prefetch_each(arrays, offset + BLOCKS_AHEAD * walk.width)


@inlined
def first_row(walk: Any, target: int) -> int:
    """The first row before which there are `target` entries or more, where each row counts as `ROW_COST` more."""
    low, high = 0, walk.rows
    while low < high:
        middle = (low + high) // 2
        if read(walk.ptr, middle) + ROW_COST * middle < target:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def pack_task(pack: Any, op: Any, walk: Any, tile: Any, task: int) -> None:
    size = walk.fields * walk.width
    for node in range(task * NODES, min(walk.nodes, (task + 1) * NODES)):
        pack(op, walk, tile, node, tile.table + node * size)


@inlined
def segment_task(gather: Any, op: Any, walk: Any, tile: Any, position: int, task: int) -> None:
    for segment in range(task * SEGMENTS, min(walk.segments, (task + 1) * SEGMENTS)):
        hub = read(walk.seg_hub, segment)
        row = read(walk.hub_rows, hub)
        low = read(walk.ptr, row) + (segment - read(walk.hub_ptr, hub)) * SEGMENT
        high = min(low + SEGMENT, read(walk.ptr, row + 1))
        at = (position * walk.segments + segment) * walk.sums * walk.width
        gather(op, walk, tile, row, low, high, walk.segment_sums, at)


@inlined
def row_task(gather: Any, finish: Any, op: Any, walk: Any, tile: Any, at: int, task: int) -> None:
    for row in range(first_row(walk, task * CHUNK), first_row(walk, (task + 1) * CHUNK)):
        low, high = read(walk.ptr, row), read(walk.ptr, row + 1)
        if high - low <= SEGMENT:
            gather(op, walk, tile, row, low, high, walk.row_sums, at)
            finish(op, walk, tile, row, at)


@inlined
def hub_task(finish: Any, op: Any, walk: Any, tile: Any, position: int, at: int, hub: int) -> None:
    size = walk.sums * walk.width
    low, high = read(walk.hub_ptr, hub), read(walk.hub_ptr, hub + 1)
    for k in range(0, size, LANES):
        total = load(walk.segment_sums, (position * walk.segments + low) * size + k)
        for segment in range(low + 1, high):
            total = total + load(walk.segment_sums, (position * walk.segments + segment) * size + k)
        store(total, walk.row_sums, at + k)
    finish(op, walk, tile, read(walk.hub_rows, hub), at)


@inlined
def run_walk(pack: Any, gather: Any, finish: Any, op: Any, walk: Any) -> None:
    """One thread's part of the walk."""
    at = atomic_add(walk.counters, 0, 1) * walk.sums * walk.width
    packs = (walk.nodes + NODES - 1) // NODES if walk.packed else 0
    segments = (walk.segments + SEGMENTS - 1) // SEGMENTS
    gathers = segments + (walk.entries + ROW_COST * walk.rows) // CHUNK + 1
    phase = 0
    for first in range(0, walk.blocks, walk.group):
        group = min(walk.group, walk.blocks - first)
        task = next_task(walk, phase)
        while task < group * packs:
            pack_task(pack, op, walk, tile_of(walk, first, task // packs), task % packs)
            task = finish_task(walk, phase)
        wait_for_tasks(walk, phase, group * packs)

        task = next_task(walk, phase + 1)
        while task < group * gathers:
            position, part = task // gathers, task % gathers
            tile = tile_of(walk, first, position)
            if part < segments:
                segment_task(gather, op, walk, tile, position, part)
            else:
                row_task(gather, finish, op, walk, tile, at, part - segments)
            task = finish_task(walk, phase + 1)
        wait_for_tasks(walk, phase + 1, group * gathers)

        task = next_task(walk, phase + 2)
        while task < group * walk.hubs:
            position = task // walk.hubs
            hub_task(finish, op, walk, tile_of(walk, first, position), position, at, task % walk.hubs)
            task = finish_task(walk, phase + 2)
        wait_for_tasks(walk, phase + 2, group * walk.hubs)
        phase += 3


def plan_walk(
    rows: CSR, x: Tensor, fields: int, sums: int, part: int = 0, width: int = LANES, table: Tensor | None = None
) -> Walk:
    """Plans a walk over `rows` that gathers from the rows of `x`, and allocates its scratch memory.

    `table` has what entries gather, `[blocks, nodes, fields, width]`, where nothing has to be packed.
    """
    dtype = arrays.compute_dtype(x)
    nodes, columns = x.shape
    part = part or max(1, columns)
    blocks = columns // part * -(-part // width)
    node_bytes = fields * width * dtype.itemsize
    num_threads = torch.get_num_threads()
    table_bytes = TABLE_BYTES if num_threads > 1 else SINGLE_THREAD_TABLE_BYTES
    group = max(1, min(blocks, table_bytes // max(1, nodes * node_bytes)) if table is None else blocks)
    segments = rows.seg_hub.numel()
    scratch = (
        arrays.empty(group, nodes, fields, width, dtype=dtype) if table is None else table,
        arrays.empty(num_threads, sums, width, dtype=dtype),
        arrays.empty(group, segments, sums, width, dtype=dtype),
        torch.zeros(1 + 6 * -(-blocks // group), dtype=torch.int64),
    )
    sizes = (rows.ptr.numel() - 1, rows.idx.numel(), rows.hub_rows.numel(), segments, nodes, part, columns)
    blocking = (width, blocks, group, table is None, fields, sums)
    return Walk._make((*map(arrays.flat, (*rows, *scratch)), *sizes, *blocking))


def run_kernel(function: Any, op: Any, walk: Walk) -> None:
    """Runs the kernel of an operator along a walk, on one thread where there is little to do."""
    large = (walk.entries + ROW_COST * walk.rows) * walk.blocks > SMALL
    threads.run(function, op, walk, walk.row_sums.numel() // (walk.sums * walk.width) if large else 1)
