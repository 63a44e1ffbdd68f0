"""CUDA kernels of additive attention, in Triton: scores, softmax, dropout and weighted sum in one pass over the edges.

A program owns a row, or a segment of a hub, and a few heads. Its tiles are `[entries, heads, columns of a head]`, so
that what belongs to an edge and a head is computed once and multiplied with all columns of the head. The softmax is
computed on the way: sums are scaled down when a larger score is found.

Nothing is stored per edge. The backward pass recomputes the attention from `lse`, the logarithm of the sum of a row's
exponentials, in one pass over the edges by source, which gathers the gradients of the targets. The rest of the
gradient depends on sums over the neighbors of a target, not on single edges: see `_additive_rows`.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops.csr import CSR
from gfgn.ops.cuda.gather import both, checked, dropout_masks, hash_bits, span
from gfgn.ops.cuda.launch import Kernel, cdiv, kernel, next_power_of_2
from gfgn.ops.registration import replicas

FIXED = ("rows", "segments", "heads")  # depend on the number of replicas: must not be compiled in


@triton.jit
def _stack(x, LANES: tl.constexpr):
    """The sum of tiles of `LANES` entries that are stacked."""
    return tl.sum(tl.reshape(x, [x.shape[0] // LANES, LANES, x.shape[1], x.shape[2]]), 0)


@triton.jit
def _columns_of(head, heads, width: tl.constexpr, WIDTH: tl.constexpr):
    """The columns of some heads, `WIDTH` places for each, and which of them exist."""
    local = tl.arange(0, WIDTH)
    return head[:, None] * width + local[None, :], (head < heads)[:, None] & (local < width)[None, :]


@triton.jit
def _kept(keys, cut, scale, number, head, exists, of_replica):
    """The factors of dropout for entries with these numbers and the given heads: 0 for those that are dropped.

    They are those of `gfgn.ops.dropout` for values `[E, heads]`, one key per replica.
    """
    replica = head // of_replica
    key = tl.load(keys + replica, mask=exists, other=0).to(tl.uint32)
    least = tl.load(cut + replica, mask=exists, other=0).to(tl.uint32)
    factor = tl.load(scale + replica, mask=exists, other=0.0)
    value = number[:, None] * of_replica + (head - replica * of_replica)[None, :]
    return tl.where(hash_bits(value, key[None, :]) >= least[None, :], factor[None, :], 0.0)


@triton.jit
def _leaky(u, slope):
    return tl.where(u > 0, u, u * slope)


@triton.jit
def _finish(
    top, total, share, sum0, sum1, row, valid, head, column, present, out, plus, lse, of_plus, heads,
    width: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Stores the results of a row from its sums, of which `top` is the largest score; 0 for a row without entries."""
    exists = both(valid, head < heads)
    mask = both(valid, present)
    total = tl.where(total == 0, 1.0, total)
    inverse = 1.0 / total
    tl.store(out + row * (heads * width) + column, sum0 * inverse[:, None], mask=mask)
    if SAVE:
        tl.store(plus + row * (heads * width) + column, sum1 * inverse[:, None], mask=mask)
        tl.store(lse + row * heads + head, top + tl.log(total), mask=exists)
        tl.store(of_plus + row * heads + head, share * inverse, mask=exists)


@kernel(do_not_specialize=FIXED)
def _additive(
    z, scores, keys, cut, scale, out, plus, lse, of_plus, sums, facts,
    ptr, idx, hub_rows, hub_ptr, seg_hub, rows, segments, heads, of_replica, slope, width: tl.constexpr,
    HUBS: tl.constexpr, SAVE: tl.constexpr, DROP: tl.constexpr, LANES: tl.constexpr, UNROLL: tl.constexpr,
    HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`Σ_j α_ij z_j`, and with `SAVE` the same sum and the sum of `α_ij` over the positive scores alone."""
    v = tl.program_id(0).to(tl.int64)
    row, first, length, is_row = span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    exists = head < heads
    column, present = _columns_of(head, heads, width, WIDTH)
    own = tl.load(scores + row * 2 * heads + 2 * head + 1, mask=both(length > 0, exists), other=0.0).to(tl.float32)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([LANES * UNROLL, HEADS], tl.float32)
    share = tl.zeros([LANES * UNROLL, HEADS], tl.float32)
    sum0 = tl.zeros([LANES, HEADS, WIDTH], tl.float32)
    sum1 = tl.zeros([LANES, HEADS, WIDTH], tl.float32)
    for start in range(0, length, LANES * UNROLL):
        step = start + tl.arange(0, LANES * UNROLL)
        here = step < length
        e = first + step
        j = tl.load(idx + e, mask=here, other=0).to(tl.int64)
        mask = here[:, None, None] & present[None, :, :]
        x = tl.load(z + j[:, None, None] * (heads * width) + column[None, :, :], mask=mask, other=0.0).to(tl.float32)
        there = here[:, None] & exists[None, :]
        u = tl.load(scores + j[:, None] * 2 * heads + 2 * head[None, :], mask=there, other=0.0).to(tl.float32)
        u += own[None, :]
        score = tl.where(there, _leaky(u, slope), float("-inf"))
        # Where the largest score is still -inf, 0 takes its role, since the difference of two infinities is NaN.
        new = tl.maximum(top, tl.max(score, 0))
        base = tl.where(new == float("-inf"), 0.0, new)
        shrink = tl.exp(top - base)
        weight = tl.exp(score - base[None, :])
        top = new
        total = total * shrink[None, :] + weight
        if SAVE:
            share = share * shrink[None, :] + tl.where(u > 0, weight, 0.0)
        if DROP:
            weight *= _kept(keys, cut, scale, e, head, exists, of_replica)
        sum0 = sum0 * shrink[None, :, None] + _stack(weight[:, :, None] * x, LANES)
        if SAVE:
            sum1 = sum1 * shrink[None, :, None] + _stack(tl.where(u > 0, weight, 0.0)[:, :, None] * x, LANES)

    all0, all1, denominator, positive = tl.sum(sum0, 0), tl.sum(sum1, 0), tl.sum(total, 0), tl.sum(share, 0)
    if HUBS:  # of a segment: sums by columns, and three numbers per head
        mask = both(v < segments, present)
        plane = segments.to(tl.int64)
        tl.store(sums + v * (heads * width) + column, all0, mask=mask)
        at = v * heads + head
        mask_head = both(v < segments, exists)
        tl.store(facts + at, top, mask=mask_head)
        tl.store(facts + plane * heads + at, denominator, mask=mask_head)
        if SAVE:
            tl.store(sums + (plane + v) * (heads * width) + column, all1, mask=mask)
            tl.store(facts + 2 * plane * heads + at, positive, mask=mask_head)
    _finish(
        top, denominator, positive, all0, all1, row, is_row, head, column, present, out, plus, lse, of_plus,
        heads, width, SAVE,
    )  # fmt: skip


@kernel(do_not_specialize=("segments", "heads"))
def _join_additive(
    out, plus, lse, of_plus, sums, facts, hub_rows, hub_ptr, segments, heads, width: tl.constexpr,
    SAVE: tl.constexpr, TILE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the sums of a hub's segments, always in the same order, each scaled to the largest score of the row."""
    hub = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    exists = head < heads
    column, present = _columns_of(head, heads, width, WIDTH)
    begin = tl.load(hub_ptr + hub)
    count = (tl.load(hub_ptr + hub + 1) - begin).to(tl.int32)
    plane = segments.to(tl.int64)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    for start in range(0, count, TILE):
        step = start + tl.arange(0, TILE)
        there = (step < count)[:, None] & exists[None, :]
        at = (begin + step)[:, None] * heads + head[None, :]
        top = tl.maximum(top, tl.max(tl.load(facts + at, mask=there, other=float("-inf")), 0))
    base = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([TILE, HEADS], tl.float32)
    share = tl.zeros([TILE, HEADS], tl.float32)
    sum0 = tl.zeros([TILE, HEADS, WIDTH], tl.float32)
    sum1 = tl.zeros([TILE, HEADS, WIDTH], tl.float32)
    for start in range(0, count, TILE):
        step = start + tl.arange(0, TILE)
        there = (step < count)[:, None] & exists[None, :]
        at = (begin + step)[:, None] * heads + head[None, :]
        shrink = tl.exp(tl.load(facts + at, mask=there, other=float("-inf")) - base[None, :])
        total += shrink * tl.load(facts + plane * heads + at, mask=there, other=0.0)
        mask = (step < count)[:, None, None] & present[None, :, :]
        place = (begin + step)[:, None, None] * (heads * width) + column[None, :, :]
        sum0 += shrink[:, :, None] * tl.load(sums + place, mask=mask, other=0.0)
        if SAVE:
            share += shrink * tl.load(facts + 2 * plane * heads + at, mask=there, other=0.0)
            sum1 += shrink[:, :, None] * tl.load(sums + plane * (heads * width) + place, mask=mask, other=0.0)
    row = tl.load(hub_rows + hub)
    _finish(
        top, tl.sum(total, 0), tl.sum(share, 0), tl.sum(sum0, 0), tl.sum(sum1, 0), row, row >= 0, head, column, present,
        out, plus, lse, of_plus, heads, width, SAVE,
    )  # fmt: skip


@kernel(do_not_specialize=("rows", "heads"))
def _additive_rows(
    grad, out, plus, lse, of_plus, delta, grad_scores, rows, heads, slope, width: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What the gradient of a softmax subtracts, `δ_i = Σ_j α_ij ∂α_ij`, and the gradients of the targets' scores.

    With `∂α_ij = ⟨g_i, z_j⟩` and dropout inside the sums, `δ_i = ⟨g_i, out_i⟩`. The gradients of a row's scores,
    `α_ij (∂α_ij − δ_i)`, add up to 0, so that only the positive ones, whose slope is larger, remain:
    `(1 − slope) Σ_{j, u_ij > 0} α_ij (∂α_ij − δ_i)`.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, present = _columns_of(head, heads, width, WIDTH)
    at = row[:, None, None] * (heads * width) + column[None, :, :]
    mask = (row < rows)[:, None, None] & present[None, :, :]
    g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    inner = tl.sum(g * tl.load(out + at, mask=mask, other=0.0).to(tl.float32), 2)
    positive = tl.sum(g * tl.load(plus + at, mask=mask, other=0.0).to(tl.float32), 2)
    there = (row < rows)[:, None] & (head < heads)[None, :]
    at_head = row[:, None] * heads + head[None, :]
    tl.store(delta + at_head, inner, mask=there)
    share = tl.load(of_plus + at_head, mask=there, other=0.0)
    empty = tl.load(lse + at_head, mask=there, other=0.0) == float("-inf")
    slopes = tl.where(empty, 0.0, (1.0 - slope) * (positive - inner * share))
    tl.store(grad_scores + 2 * at_head + 1, slopes, mask=there)


@triton.jit
def _finish_gradients(
    sum0, of_score, row, valid, head, column, present, weight, grad_z, grad_scores, heads,
    width: tl.constexpr,
):  # fmt: skip
    """Stores the gradients of a row: that of `z` has a part from each of its two scores."""
    exists = both(valid, head < heads)
    mask = both(valid, present)
    at = grad_scores + row * 2 * heads + 2 * head
    tl.store(at, of_score, mask=exists)
    of_target = tl.load(at + 1, mask=exists, other=0.0).to(tl.float32)
    source = tl.load(weight + 2 * column, mask=present, other=0.0).to(tl.float32)
    target = tl.load(weight + 2 * column + 1, mask=present, other=0.0).to(tl.float32)
    value = sum0 + (of_score[:, None] * source + of_target[:, None] * target)
    tl.store(grad_z + row * (heads * width) + column, value, mask=mask)


@kernel(do_not_specialize=FIXED)
def _additive_backward(
    grad, z, scores, weight, lse, delta, keys, cut, scale, entry, grad_z, grad_scores, sums, facts,
    ptr, idx, hub_rows, hub_ptr, seg_hub, rows, segments, heads, of_replica, slope, width: tl.constexpr,
    HUBS: tl.constexpr, DROP: tl.constexpr, LANES: tl.constexpr, UNROLL: tl.constexpr,
    HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradients of `z` and of the sources' scores: a program owns a source, and gathers from its targets."""
    v = tl.program_id(0).to(tl.int64)
    row, first, length, is_row = span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    exists = head < heads
    column, present = _columns_of(head, heads, width, WIDTH)
    own = tl.load(scores + row * 2 * heads + 2 * head, mask=both(length > 0, exists), other=0.0).to(tl.float32)
    own_z = tl.load(z + row * (heads * width) + column, mask=both(length > 0, present), other=0.0).to(tl.float32)
    of_score = tl.zeros([LANES * UNROLL, HEADS], tl.float32)
    sum0 = tl.zeros([LANES, HEADS, WIDTH], tl.float32)
    for start in range(0, length, LANES * UNROLL):
        step = start + tl.arange(0, LANES * UNROLL)
        here = step < length
        e = first + step
        i = tl.load(idx + e, mask=here, other=0).to(tl.int64)
        mask = here[:, None, None] & present[None, :, :]
        g = tl.load(grad + i[:, None, None] * (heads * width) + column[None, :, :], mask=mask, other=0.0).to(tl.float32)
        there = here[:, None] & exists[None, :]
        at = i[:, None] * heads + head[None, :]
        u = tl.load(scores + 2 * at + 1, mask=there, other=0.0).to(tl.float32) + own[None, :]
        # Infinite where there is no entry: an attention of 0.
        alpha = tl.exp(_leaky(u, slope) - tl.load(lse + at, mask=there, other=float("inf")))
        of_alpha = tl.sum(g * own_z[None, :, :], 2)
        used = alpha
        if DROP:
            number = tl.load(entry + e, mask=here, other=0)
            kept = _kept(keys, cut, scale, number, head, exists, of_replica)
            of_alpha *= kept
            used = alpha * kept
        change = alpha * (of_alpha - tl.load(delta + at, mask=there, other=0.0))
        of_score += tl.where(u > 0, change, change * slope)
        sum0 += _stack(used[:, :, None] * g, LANES)

    all0, change_of_score = tl.sum(sum0, 0), tl.sum(of_score, 0)
    if HUBS:
        tl.store(sums + v * (heads * width) + column, all0, mask=both(v < segments, present))
        tl.store(facts + v * heads + head, change_of_score, mask=both(v < segments, exists))
    _finish_gradients(
        all0, change_of_score, row, is_row, head, column, present, weight, grad_z, grad_scores, heads, width,
    )  # fmt: skip


@kernel(do_not_specialize=("segments", "heads"))
def _join_additive_backward(
    weight, grad_z, grad_scores, sums, facts, hub_rows, hub_ptr, segments, heads, width: tl.constexpr,
    TILE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the sums of a hub's segments, always in the same order."""
    hub = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column, present = _columns_of(head, heads, width, WIDTH)
    begin = tl.load(hub_ptr + hub)
    count = (tl.load(hub_ptr + hub + 1) - begin).to(tl.int32)
    of_score = tl.zeros([TILE, HEADS], tl.float32)
    sum0 = tl.zeros([TILE, HEADS, WIDTH], tl.float32)
    for start in range(0, count, TILE):
        step = start + tl.arange(0, TILE)
        here = step < count
        at = (begin + step)[:, None] * heads + head[None, :]
        of_score += tl.load(facts + at, mask=here[:, None] & (head < heads)[None, :], other=0.0)
        place = (begin + step)[:, None, None] * (heads * width) + column[None, :, :]
        sum0 += tl.load(sums + place, mask=here[:, None, None] & present[None, :, :], other=0.0)
    row = tl.load(hub_rows + hub)
    _finish_gradients(
        tl.sum(sum0, 0), tl.sum(of_score, 0), row, row >= 0, head, column, present, weight, grad_z, grad_scores,
        heads, width,
    )  # fmt: skip


class Tile(NamedTuple):
    """The shape of one program: `lanes * unroll` entries at a time, and places for `heads` heads of `width` columns."""

    lanes: int
    unroll: int
    heads: int
    width: int
    warps: int = 1


def plan(of_replica: int, width: int, dtype: torch.dtype, rows: CSR) -> Tile:
    """The tile for the heads of one replica, by fixed rules. Narrow heads are read together, beyond one replica's; more
    entries at a time where rows are long."""
    full = 128 if dtype == torch.float32 else 256  # columns that a warp reads with 16 bytes per thread
    padded = next_power_of_2(width)
    heads = max(1, min(full, max(full // 4, padded * next_power_of_2(of_replica))) // padded)
    block = heads * padded
    if block > full:
        return Tile(1, max(1, 1024 // block), heads, padded, max(1, block // (2 * full)))
    lanes, is_long = full // block, rows.idx.numel() >= 16 * rows.ptr.numel()
    return Tile(lanes, 8 if full == 128 and (lanes == 1 or is_long) else 4, heads, padded)


class Call:
    """What the kernels of one call have in common: sizes, masks of dropout, and constants."""

    def __init__(self, z: Tensor, heads: int, keys: Tensor, rate: Tensor, rows: CSR) -> None:
        self.heads, self.rows, self.segments = heads, rows, rows.seg_hub.numel()
        self.of_replica, self.width = heads // (keys.numel() or replicas()), z.shape[1] // heads
        self.masks = dropout_masks(keys, rate) if keys.numel() else (None, None, None)
        self.tile = plan(self.of_replica, self.width, z.dtype, rows)
        self.blocks = cdiv(heads, self.tile.heads)
        self.block = self.tile.heads * self.tile.width
        self.shape = {"HEADS": self.tile.heads, "WIDTH": self.tile.width}

    def partial(self, count: int) -> Tensor | None:
        """Room for `count` numbers of every segment of a hub."""
        if not self.segments:
            return None
        return torch.empty(self.segments * count, dtype=torch.float32, device=self.rows.ptr.device)

    def walk(self, kernel: Kernel, *args: Tensor | None, slope: float, **constants: bool) -> None:
        """Launches a kernel that walks the edges."""
        lanes, unroll, *_, warps = self.tile
        nodes = self.rows.ptr.numel() - 1
        kernel[(nodes + self.segments, self.blocks)](
            *args, *self.rows, nodes, self.segments, self.heads, self.of_replica, slope,
            width=self.width, HUBS=self.segments > 0, **constants, DROP=self.masks[0] is not None,
            LANES=lanes, UNROLL=unroll, **self.shape, num_warps=warps,
        )  # fmt: skip

    def join(self, kernel: Kernel, *args: Tensor | int | None, **constants: bool) -> None:
        """Launches a kernel that adds the sums of segments, if there are any."""
        if self.segments:
            kernel[(self.rows.hub_rows.numel(), self.blocks)](
                *args, self.rows.hub_rows, self.rows.hub_ptr, self.segments, self.heads,
                width=self.width, **constants, TILE=max(1, 1024 // self.block), **self.shape, num_warps=4,
            )  # fmt: skip


def additive_forward(
    z: Tensor, scores: Tensor, keys: Tensor, rate: Tensor, rows: CSR, slope: float, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`out_i = Σ_j α_ij z_j` with `α_ij = softmax_j(LeakyReLU(u_ij))`, where `u_ij` of a head is the first of its two
    scores of `j` plus the second one of `i`; `scores` is `[N, heads·2]`. Without dropout, `keys` and `rate` are empty.

    With `save` also what the gradient needs, empty otherwise: the sum of `α_ij z_j` over `u_ij > 0`; per head, the
    logarithm of the sum of exponentials, and the sum of `α_ij` over `u_ij > 0`.
    """
    z, scores = checked(z, scores)
    (nodes, columns), heads = z.shape, scores.shape[1] // 2
    out = torch.empty_like(z)
    plus = torch.empty_like(z) if save else z.new_empty(0)
    size = (nodes, heads) if save else (0,)
    lse, of_plus = (torch.empty(size, dtype=torch.float32, device=z.device) for _ in range(2))
    if out.numel():
        call = Call(z, heads, keys, rate, rows)
        results = (out, plus, lse, of_plus, call.partial((1 + save) * columns), call.partial(3 * heads))
        call.walk(_additive, z, scores, *call.masks, *results, slope=slope, SAVE=save)
        call.join(_join_additive, *results, SAVE=save)
    return out, plus, lse, of_plus


def additive_backward(
    grad: Tensor, z: Tensor, scores: Tensor, out: Tensor, plus: Tensor, lse: Tensor, of_plus: Tensor, weight: Tensor,
    keys: Tensor, rate: Tensor, rows_t: CSR, entry: Tensor, slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of `additive_forward` for `z`, including that through `scores = z_k weight_k`, and for `scores`.

    `weight` is `[heads, d, 2]`; `rows_t` is by source, and `entry` numbers its entries as by target.
    """
    grad, z, scores, out, plus, weight = checked(grad, z, scores, out, plus, weight)
    (nodes, columns), heads = z.shape, scores.shape[1] // 2
    grad_z, grad_scores = torch.empty_like(z), torch.empty_like(scores)
    if z.numel():
        call, delta = Call(z, heads, keys, rate, rows_t), torch.empty_like(lse)
        rows = max(1, 2048 // call.block)
        _additive_rows[(cdiv(nodes, rows), call.blocks)](
            grad, out, plus, lse, of_plus, delta, grad_scores, nodes, heads, slope,
            width=call.width, ROWS=rows, **call.shape, num_warps=4,
        )  # fmt: skip
        results = (grad_z, grad_scores, call.partial(columns), call.partial(heads))
        call.walk(_additive_backward, grad, z, scores, weight, lse, delta, *call.masks, entry, *results, slope=slope)
        call.join(_join_additive_backward, weight, *results)
    return grad_z, grad_scores
