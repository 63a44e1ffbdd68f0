"""The edges of a graph sorted by target and by source on a GPU, in Triton around PyTorch's sort.

On most graphs launching kernels takes longer than running them. So there are few of them, they write into room for
every edge, and the host waits once for the sizes of the results and whether the input was valid; before that, where
keys need 64 bits, for whether they must be sorted as such. A graph is sorted once if it is undirected or its edges were
given in ascending order, else twice.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops import index as plain
from gfgn.ops.csr import CSR, SEGMENT
from gfgn.ops.index import BAD_ID, Indexed, first

BLOCK = 512
_SEGMENT = tl.constexpr(SEGMENT)
_BAD_ID, _BAD_WEIGHT, _UNSORTED, _ENTRIES, _ASYMMETRY, _DIRECTED, _HUBS, _REVERSE_HUBS = (
    tl.constexpr(k) for k in (0, 1, 2, 3, 4, 5, 6, 8)
)
_FACTS = 10
"""Where a number is in `facts`: whether an id or a weight is bad, and whether the edges are not in ascending order; the
number of entries; not 0 only if the graph is directed; whether an entry has no opposite; the numbers of hubs and of
their segments by target and by source."""


@triton.jit
def count_less(values, bound, size):
    """How many of `size` ascending values are less than each bound."""
    low = tl.zeros_like(bound).to(tl.int64)
    high = low + size
    longest = tl.max(high, 0)
    while longest > 0:
        longest = longest // 2
        middle = (low + high) // 2
        searching = low < high
        less = tl.load(values + middle, mask=searching, other=0) < bound
        high = tl.where(searching & (less == 0), middle, high)
        low = tl.where(searching & less, middle + 1, low)
    return low


@triton.jit(do_not_specialize=["count", "nodes", "first_loop", "second", "step"])
def _make_keys(edges, weight, key, short, facts, count, nodes, first_loop, second, step, BLOCK: tl.constexpr):
    """`target * nodes + source`, or `nodes²` for a self-loop that is dropped; `short`: `target`, or `nodes`."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = e < count
    source = tl.load(edges + e * step, mask=here, other=0).to(tl.int64)
    target = tl.load(edges + second + e * step, mask=here, other=0).to(tl.int64)
    bad = here & ((source < 0) | (target < 0) | (source >= nodes) | (target >= nodes))
    dropped = bad | ((source == target) & (e < first_loop))
    end = tl.zeros_like(source) + nodes
    tl.store(key + e, tl.where(dropped, end * end, target * nodes + source), mask=here)
    tl.store(facts + _BAD_ID, 1, mask=tl.max(bad.to(tl.int32), 0) > 0)
    if short is not None:
        tl.store(short + e, tl.where(dropped, end, target), mask=here)
    before = tl.load(edges + (e - 1) * step, mask=here & (e > 0), other=-1)
    before_target = tl.load(edges + second + (e - 1) * step, mask=here & (e > 0), other=-1)
    unsorted = here & ((source < before) | ((source == before) & (target <= before_target)))
    tl.store(facts + _UNSORTED, 1, mask=tl.max(unsorted.to(tl.int32), 0) > 0)
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


@triton.jit
def _hash(x, y):
    x = x * 0x9E3779B97F4A7C1 + y
    x = (x ^ (x >> 31)) * 0x3F58476D1CE4E5B9
    return x ^ (x >> 29)


@triton.jit(do_not_specialize=["count", "nodes"])
def _write_rows(
    key, order, number, weight, ptr, idx, target, reverse_length, edge_position, out, facts, count, nodes,
    MERGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows of the targets, the target of every entry, the lengths of the rows of the sources, the position of every
    edge, and the sums of the weights.

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
    source = value - row * nodes
    tl.store(idx + at, source, mask=entry)
    tl.store(target + at, row, mask=entry)
    tl.atomic_add(reverse_length + source, 1, mask=entry, sem="relaxed")  # integers: any order gives the same sum
    # The sum over an undirected graph is 0, as every edge and its opposite cancel.
    asymmetry = tl.sum(tl.where(entry, _hash(row, source) - _hash(source, row), 0), 0)
    tl.atomic_add(facts + _ASYMMETRY, asymmetry, sem="relaxed")
    tl.store(facts + _ENTRIES, tl.load(number + count - 1), mask=tl.program_id(0) == 0)
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

    smaller = count_less(key, k * nodes, tl.where(k <= nodes, count, 0))
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
    tl.atomic_add(facts, hubs, mask=hubs > 0)
    tl.atomic_add(facts + 1, segments, mask=hubs > 0)


@triton.jit(do_not_specialize=["count", "nodes", "blocks"])
def _find_opposites(
    ptr, idx, target, reverse_length, edge_position, transpose, facts, counts, count, nodes, blocks,
    MERGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Where the opposite of every entry is, which is `transpose` if all have one; not looked for if one cannot have it.
    Repeated edges are opposites in their order. And the hubs of both orders."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    entries = tl.load(facts + _ENTRIES)
    here = k < tl.where(tl.load(facts + _ASYMMETRY) == 0, entries, 0)
    # Then `transpose` is the position of the given edges.
    ascending = tl.where(tl.load(facts + _UNSORTED) == 0, entries, -1) == count
    row = tl.load(target + k, mask=here, other=0)
    column = tl.load(idx + k, mask=here, other=0)
    first = tl.load(ptr + column, mask=here, other=0)
    last = tl.load(ptr + column + 1, mask=here, other=0)
    at = first + count_less(idx + first, row, tl.where(ascending, 0, last - first))
    if not MERGE:  # as many repeated edges are before its opposite as before it
        own = tl.load(ptr + row, mask=here, other=0)
        at += k - own - count_less(idx + own, column, tl.where(here, k - own, 0))
    at = tl.where(ascending, tl.load(edge_position + k, mask=here, other=0), at)
    tl.store(transpose + k, at, mask=here)
    directed = here & (tl.load(idx + at, mask=here & (at >= first) & (at < last), other=-1) != row)
    tl.store(facts + _DIRECTED, 1, mask=tl.max(directed.to(tl.int32), 0) > 0)

    if tl.program_id(0) < blocks:
        length = tl.load(ptr + k + 1, mask=k < nodes, other=0) - tl.load(ptr + k, mask=k < nodes, other=0)
        _count_hubs(facts + _HUBS, counts, length, blocks)
        _count_hubs(
            facts + _REVERSE_HUBS, counts + 2 * blocks, tl.load(reverse_length + k, mask=k < nodes, other=0), blocks
        )


@triton.jit(do_not_specialize=["entries"])
def _transpose_rows(transpose, target, reverse_idx, entries, BLOCK: tl.constexpr):
    """The rows of the sources; `transpose` is the order of the entries."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < entries
    entry = tl.load(transpose + k, mask=here, other=0)
    tl.store(reverse_idx + k, tl.load(target + entry, mask=here, other=0), mask=here)


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


def index(edges: Tensor, num_nodes: int, merge: bool, num_loops: int, weight: Tensor | None) -> Indexed:
    """See `gfgn.ops.index.Indexed`."""
    count, device = edges.size(1), edges.device
    if not count:
        by_target, _, transpose, edge_position = plain.sort_edges(edges, num_nodes, merge, num_loops)
        return Indexed(by_target, by_target, transpose, edge_position, None if weight is None else weight.clone())
    if not num_nodes:
        raise ValueError(BAD_ID.format(-1))

    def empty(size: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    # A radix sort takes half the time in int32. For edges in ascending order, as PyG's often are, targets are enough.
    wide = num_nodes**2 >= 2**31
    key, short = empty(count, torch.int64 if wide else torch.int32), empty(count, torch.int32) if wide else None
    second, step = edges.stride()
    blocks, node_blocks = triton.cdiv(count, BLOCK), triton.cdiv(num_nodes, BLOCK)
    zeros = torch.zeros(_FACTS + num_nodes + 1, dtype=torch.int64, device=device)
    facts, reverse_length = zeros[:_FACTS], zeros[_FACTS + 1 :]
    weight = None if weight is None else weight.contiguous()
    _make_keys[(blocks,)](
        edges, weight, key, short, facts, count, num_nodes, count - num_loops, second, step, BLOCK=BLOCK
    )  # fmt: skip
    if short is None or facts[_UNSORTED.value]:  # waits for the GPU
        key, order = torch.sort(key, stable=True)
    else:
        order = torch.sort(short, stable=True).indices
        key = key[order]
    is_entry = empty(count, torch.int32)
    _mark_entries[(blocks,)](key, is_entry, count, num_nodes, MERGE=merge, BLOCK=BLOCK)
    number = torch.cumsum(is_entry, 0, dtype=torch.int32)

    ptr, edge_position, transpose = empty(num_nodes + 1), empty(count), empty(count)
    idx, target = empty(count, torch.int32), empty(count, torch.int32)
    total = None if weight is None else empty(count, weight.dtype)
    _write_rows[(triton.cdiv(max(count, num_nodes + 1), BLOCK),)](
        key, order, number, weight, ptr, idx, target, reverse_length, edge_position, total, facts, count, num_nodes,
        MERGE=merge, BLOCK=BLOCK,
    )  # fmt: skip
    del key, short, order
    counts = empty(4 * node_blocks).view(2, -1)
    _find_opposites[(max(blocks, node_blocks),)](
        ptr, idx, target, reverse_length, edge_position, transpose, facts, counts, count, num_nodes, node_blocks,
        MERGE=merge, BLOCK=BLOCK,
    )  # fmt: skip
    bad_id, bad_weight, unsorted, entries, asymmetry, unmatched, *hubs = facts.tolist()  # waits for the GPU
    if bad_id:
        raise ValueError(BAD_ID.format(num_nodes - 1))
    if bad_weight:
        raise ValueError("edge_weight must be finite and not negative")
    directed = asymmetry or unmatched
    idx = first(idx, entries)
    if directed and not unsorted and entries == count:
        transpose, reverse_idx = edge_position.clone(), edges[1].to(torch.int32, copy=True)
    elif directed:
        transpose, reverse_idx = _transpose(idx, target)
    by_target = by_source = _with_hubs(ptr, idx, counts[0], *hubs[:2])
    if directed:
        by_source = _with_hubs(torch.cumsum(zeros[_FACTS:], 0), reverse_idx, counts[1], *hubs[2:])
    total = None if total is None else first(total, entries)
    return Indexed(by_target, by_source, first(transpose, entries), edge_position, total)


def _transpose(idx: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The entries by source: their order and their targets."""
    transpose = torch.sort(idx, stable=True).indices  # sorted by target already
    reverse_idx, entries = torch.empty_like(idx), idx.numel()
    _transpose_rows[(triton.cdiv(entries, BLOCK),)](transpose, target, reverse_idx, entries, BLOCK=BLOCK)
    return transpose, reverse_idx


def _with_hubs(ptr: Tensor, idx: Tensor, counts: Tensor, hubs: int, segments: int) -> CSR:
    """The pattern with these numbers of hubs and segments; `counts` has them for every block of nodes."""
    if not hubs:
        return CSR(ptr, idx, ptr.new_empty(0), ptr.new_zeros(1), ptr.new_empty(0))
    rows = CSR(ptr, idx, ptr.new_empty(hubs), ptr.new_empty(hubs + 1), ptr.new_empty(segments))
    nodes, blocks = ptr.numel() - 1, counts.numel() // 2
    _list_hubs[(blocks,)](ptr, counts, *rows[2:], nodes, blocks, BLOCK=BLOCK)
    return rows
