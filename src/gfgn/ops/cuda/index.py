"""The edges of a graph sorted by target and by source on a GPU, in Triton around PyTorch's sort.

On most graphs launching kernels takes longer than running them. So there are few of them, they write into room for
every edge, and the host waits once for the sizes of the results and whether the input was valid. An undirected graph
is sorted once. For others the host waits a second time, after they were sorted by source.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops import index as plain
from gfgn.ops.csr import CSR, SEGMENT

BLOCK = 512
MOST = 0.9
"""The share of the edges below which the memory of those that were dropped or merged is given back."""
BAD_ID = "edge_index must hold ids from 0 to {}"
_SEGMENT = tl.constexpr(SEGMENT)
_BAD_ID, _BAD_WEIGHT, _ENTRIES, _DIRECTED, _HUBS, _DIFFERENT, _REVERSE_HUBS = (
    tl.constexpr(k) for k in (0, 1, 2, 3, 4, 6, 7)
)
"""Where a number is in `facts`: three conditions and the number of entries; the numbers of hubs and of their segments
by target; whether the order by source differs from that by target, and its numbers of hubs and segments."""


@triton.jit
def count_less(values, bound, size, steps):
    """How many of `size` ascending values are less than each bound; `steps` is the number of bits of `size`."""
    low = tl.zeros_like(bound).to(tl.int64)
    high = low + size
    for _ in range(steps):
        middle = (low + high) // 2
        searching = low < high
        less = tl.load(values + middle, mask=searching, other=0) < bound
        high = tl.where(searching & (less == 0), middle, high)
        low = tl.where(searching & less, middle + 1, low)
    return low


@triton.jit(do_not_specialize=["count", "nodes", "first_loop", "second", "step"])
def _make_keys(edges, weight, key, facts, count, nodes, first_loop, second, step, BLOCK: tl.constexpr):
    """`target * nodes + source`, or `nodes²` for a self-loop that is dropped."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = e < count
    source = tl.load(edges + e * step, mask=here, other=0).to(tl.int64)
    target = tl.load(edges + second + e * step, mask=here, other=0).to(tl.int64)
    bad = here & ((source < 0) | (target < 0) | (source >= nodes) | (target >= nodes))
    dropped = bad | ((source == target) & (e < first_loop))
    end = tl.zeros_like(source) + nodes
    tl.store(key + e, tl.where(dropped, end * end, target * nodes + source), mask=here)
    tl.store(facts + _BAD_ID, 1, mask=tl.max(bad.to(tl.int32), 0) > 0)
    if weight is not None:
        value = tl.load(weight + e, mask=here, other=0.0)
        bad = ((value >= 0) & (value < float("inf"))) == 0  # a NaN too
        tl.store(facts + _BAD_WEIGHT, 1, mask=tl.max(bad.to(tl.int32), 0) > 0)


@triton.jit(do_not_specialize=["count", "nodes"])
def _mark_entries(key, is_entry, count, nodes, MERGE: tl.constexpr, BLOCK: tl.constexpr):
    """1 where an edge in sorted order becomes an entry, 0 where it is dropped or merged into the one before it."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < count
    value = tl.load(key + k, mask=here, other=0).to(tl.int64)
    entry = value < (tl.zeros_like(value) + nodes) * nodes
    if MERGE:
        entry = entry & (value != tl.load(key + k - 1, mask=here & (k > 0), other=-1))
    tl.store(is_entry + k, entry.to(tl.int32), mask=here)


@triton.jit(do_not_specialize=["count", "nodes", "steps"])
def _write_rows(
    key, order, number, weight, ptr, idx, target, edge_position, out, count, nodes, steps,
    MERGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows of the targets, the position and the target of every entry, and the sums of the weights.

    `number` counts the entries up to each edge in sorted order."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < count
    value = tl.load(key + k, mask=here, other=0).to(tl.int64)
    end = (tl.zeros_like(value) + nodes) * nodes
    up_to = tl.load(number + k, mask=here, other=0).to(tl.int64)
    before = tl.load(number + k - 1, mask=here & (k > 0), other=0)
    edge = tl.load(order + k, mask=here, other=0)
    tl.store(edge_position + edge, tl.where(value < end, up_to - 1, -1), mask=here)

    entry = here & (up_to > before)
    row = value // nodes
    at = up_to - 1
    tl.store(idx + at, value - row * nodes, mask=entry)
    tl.store(target + at, row, mask=entry)
    if weight is not None:  # the sort was stable: repeated edges are added in the order given
        total = tl.zeros([BLOCK], weight.dtype.element_ty) + tl.load(weight + edge, mask=entry, other=0.0)
        if MERGE:
            active = entry
            other = k
            while tl.max(active.to(tl.int32), 0) > 0:
                other += 1
                active = active & (other < count)
                active = active & (tl.load(key + other, mask=active, other=-1) == value)
                edge = tl.load(order + other, mask=active, other=0)
                total += tl.load(weight + edge, mask=active, other=0.0)
        tl.store(out + at, total, mask=entry)

    smaller = count_less(key, k * nodes, tl.where(k <= nodes, count, 0), steps)
    start = tl.load(number + smaller - 1, mask=(k <= nodes) & (smaller > 0), other=0)
    tl.store(ptr + k, start, mask=k <= nodes)


@triton.jit
def _count_segments(length):
    return tl.where(length > _SEGMENT, (length + (_SEGMENT - 1)) // _SEGMENT, 0)


@triton.jit
def _count_hubs(facts, counts, length, blocks):
    """Counts the hubs and their segments in this block of rows and, at `facts`, in all of them."""
    segments = tl.sum(_count_segments(length), 0)
    hubs = tl.sum((length > _SEGMENT).to(tl.int64), 0)
    tl.store(counts + tl.program_id(0), hubs)
    tl.store(counts + blocks + tl.program_id(0), segments)
    tl.atomic_add(facts, hubs, mask=hubs > 0)  # integers: any order gives the same sum
    tl.atomic_add(facts + 1, segments, mask=hubs > 0)


@triton.jit(do_not_specialize=["count", "nodes", "steps", "blocks"])
def _find_opposites(
    number, ptr, idx, target, transpose, facts, counts, count, nodes, steps, blocks,
    MERGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Where the opposite of every entry is, which is `transpose` if all have one; repeated edges are not looked for."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    entries = tl.load(number + count - 1)
    here = k < entries
    directed = here
    if MERGE:
        row = tl.load(target + k, mask=here, other=0)
        column = tl.load(idx + k, mask=here, other=0).to(tl.int64)
        first = tl.load(ptr + column, mask=here, other=0)
        last = tl.load(ptr + column + 1, mask=here, other=0)
        at = first + count_less(idx + first, row, last - first, steps)
        tl.store(transpose + k, at, mask=here)
        directed = here & (tl.load(idx + at, mask=here & (at < last), other=-1) != row)
    tl.store(facts + _DIRECTED, 1, mask=tl.max(directed.to(tl.int32), 0) > 0)
    tl.store(facts + _ENTRIES, entries, mask=tl.program_id(0) == 0)
    length = tl.load(ptr + k + 1, mask=k < nodes, other=0) - tl.load(ptr + k, mask=k < nodes, other=0)
    _count_hubs(facts + _HUBS, counts, length, blocks)


@triton.jit(do_not_specialize=["entries", "nodes", "steps", "blocks"])
def _transpose_rows(
    source, transpose, ptr, idx, target, reverse_ptr, reverse_idx, facts, counts, entries, nodes, steps, blocks,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows of the sources, and whether they differ from those of the targets. `source` is sorted, `transpose` its
    order."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < entries
    other = tl.load(target + tl.load(transpose + k, mask=here, other=0), mask=here, other=0)
    tl.store(reverse_idx + k, other, mask=here)
    differs = other != tl.load(idx + k, mask=here, other=0)
    start = count_less(source, k, tl.where(k <= nodes, entries, 0), steps)
    stop = count_less(source, k + 1, tl.where(k < nodes, entries, 0), steps)
    tl.store(reverse_ptr + k, start, mask=k <= nodes)
    differs = differs | ((start != tl.load(ptr + k, mask=k <= nodes, other=0)) & (k <= nodes))
    tl.store(facts + _DIFFERENT, 1, mask=tl.max(differs.to(tl.int32), 0) > 0)
    _count_hubs(facts + _REVERSE_HUBS, counts, tl.where(k < nodes, stop - start, 0), blocks)


@triton.jit(do_not_specialize=["nodes", "blocks"])
def _list_hubs(ptr, counts, hub_rows, hub_ptr, seg_hub, nodes, blocks, BLOCK: tl.constexpr):
    """The hubs of a block of nodes; `counts` has the numbers of hubs and of segments of every block."""
    block = tl.program_id(0)
    hubs = tl.zeros([BLOCK], tl.int64)
    segments = tl.zeros([BLOCK], tl.int64)
    for start in range(0, block, BLOCK):
        k = start + tl.arange(0, BLOCK)
        hubs += tl.load(counts + k, mask=k < block, other=0)
        segments += tl.load(counts + blocks + k, mask=k < block, other=0)
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(ptr + row + 1, mask=row < nodes, other=0) - tl.load(ptr + row, mask=row < nodes, other=0)
    is_hub = length > _SEGMENT
    own = _count_segments(length)
    hub = tl.sum(hubs, 0) + tl.cumsum(is_hub.to(tl.int64), 0) - 1
    end = tl.sum(segments, 0) + tl.cumsum(own, 0)
    tl.store(hub_rows + hub, row, mask=is_hub)
    tl.store(hub_ptr + hub + 1, end, mask=is_hub)
    tl.store(hub_ptr, 0, mask=block == 0)
    for s in range(tl.max(own, 0)):
        tl.store(seg_hub + end - own + s, hub, mask=s < own)


class Indexed(NamedTuple):
    """The edges of a graph in both orders; see `gfgn.Graph`."""

    by_target: CSR
    by_source: CSR  # the same object as `by_target` if the graph is undirected
    transpose: Tensor
    edge_position: Tensor
    weight: Tensor | None


def index(edges: Tensor, num_nodes: int, merge: bool, num_loops: int, weight: Tensor | None) -> Indexed:
    """`gfgn.ops.index.index_edges`, and the weights of the entries: sums of the given float32 or float64 weights of
    repeated edges, in the order given. A bad id or weight is a `ValueError`."""
    count, device = edges.size(1), edges.device
    if not count:
        by_target, _, transpose, edge_position = plain.sort_edges(edges, num_nodes, merge, num_loops)
        return Indexed(by_target, by_target, transpose, edge_position, None if weight is None else weight.clone())
    if not num_nodes:
        raise ValueError(BAD_ID.format(-1))

    def empty(size: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    # A radix sort takes half the time in int32.
    key = empty(count, torch.int32 if num_nodes**2 < 2**31 else torch.int64)
    second, step = edges.stride()
    blocks = triton.cdiv(max(count, num_nodes + 1), BLOCK)
    edge_blocks = (triton.cdiv(count, BLOCK),)
    facts = torch.zeros(9, dtype=torch.int64, device=device)
    weight = None if weight is None else weight.contiguous()
    _make_keys[edge_blocks](
        edges, weight, key, facts, count, num_nodes, count - num_loops, second, step, BLOCK=BLOCK
    )  # fmt: skip
    key, order = torch.sort(key, stable=True)
    is_entry = empty(count, torch.int32)
    _mark_entries[edge_blocks](key, is_entry, count, num_nodes, MERGE=merge, BLOCK=BLOCK)
    number = torch.cumsum(is_entry, 0, dtype=torch.int32)

    ptr, edge_position, transpose = empty(num_nodes + 1), empty(count), empty(count)
    idx, target = empty(count, torch.int32), empty(count, torch.int32)
    total = None if weight is None else empty(count, weight.dtype)
    _write_rows[(blocks,)](
        key, order, number, weight, ptr, idx, target, edge_position, total, count, num_nodes, count.bit_length(),
        MERGE=merge, BLOCK=BLOCK,
    )  # fmt: skip
    del key, order
    counts = empty(2 * blocks)
    _find_opposites[(blocks,)](
        number, ptr, idx, target, transpose, facts, counts, count, num_nodes, min(count, num_nodes).bit_length(),
        blocks, MERGE=merge, BLOCK=BLOCK,
    )  # fmt: skip
    bad_id, bad_weight, entries, directed, hubs, segments, *_ = facts.tolist()  # waits for the GPU
    if bad_id:
        raise ValueError(BAD_ID.format(num_nodes - 1))
    if bad_weight:
        raise ValueError("edge_weight must be finite and not negative")
    idx = _first(idx, entries)
    by_target = by_source = _with_hubs(ptr, idx, hubs, segments, counts)
    if directed:
        by_source, transpose = _transpose(by_target, target, facts)
    else:
        transpose = _first(transpose, entries)
    return Indexed(by_target, by_source, transpose, edge_position, None if total is None else _first(total, entries))


def _first(x: Tensor, size: int) -> Tensor:
    if size == x.numel():
        return x
    return x[:size] if size >= MOST * x.numel() else x[:size].clone()


def _transpose(by_target: CSR, target: Tensor, facts: Tensor) -> tuple[CSR, Tensor]:
    """The rows of the sources, which are `by_target` itself if they are the same, and the order of its entries."""
    ptr, idx = by_target.ptr, by_target.idx
    nodes, entries = ptr.numel() - 1, idx.numel()
    source, transpose = torch.sort(idx, stable=True)  # sorted by target already
    reverse_ptr, reverse_idx = torch.empty_like(ptr), torch.empty_like(idx)
    blocks = triton.cdiv(max(entries, nodes + 1), BLOCK)
    counts = ptr.new_empty(2 * blocks)
    _transpose_rows[(blocks,)](
        source, transpose, ptr, idx, target, reverse_ptr, reverse_idx, facts, counts,
        entries, nodes, entries.bit_length(), blocks, BLOCK=BLOCK,
    )  # fmt: skip
    *_, different, hubs, segments = facts.tolist()  # waits for the GPU
    return _with_hubs(reverse_ptr, reverse_idx, hubs, segments, counts) if different else by_target, transpose


def sort_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> tuple[CSR, CSR, Tensor, Tensor]:
    """See `gfgn.ops.index.index_edges`."""
    by_target, by_source, transpose, edge_position, _ = index(edges, num_nodes, merge, num_loops, None)
    if by_source is by_target:  # an operator returns no tensor twice
        by_source = CSR(*(x.clone() for x in by_target))
    return by_target, by_source, transpose, edge_position


def _with_hubs(ptr: Tensor, idx: Tensor, hubs: int, segments: int, counts: Tensor) -> CSR:
    """The pattern with these numbers of hubs and segments; `counts` has them for every block of nodes."""
    if not hubs:
        return CSR(ptr, idx, ptr.new_empty(0), ptr.new_zeros(1), ptr.new_empty(0))
    rows = CSR(ptr, idx, ptr.new_empty(hubs), ptr.new_empty(hubs + 1), ptr.new_empty(segments))
    nodes, blocks = ptr.numel() - 1, counts.numel() // 2
    _list_hubs[(triton.cdiv(nodes, BLOCK),)](ptr, counts, *rows[2:], nodes, blocks, BLOCK=BLOCK)
    return rows
