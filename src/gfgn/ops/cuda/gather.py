"""CUDA kernels that gather over the rows of a `CSR`, in Triton: the kernel behind every sum over neighbors.

One kernel, `_gather`, serves all operators; `launch` runs it. A program owns one row and a block of columns, walks the
row's entries one tile at a time, and keeps its sums in float32 registers: no `[E, D]` tensor exists. The block of
columns is the slow index of the grid: programs that run at the same time gather from one narrow slab of the node
tensors, which fits the L2 cache, so that memory is read fewer times than there are entries.

A row of more than `SEGMENT` entries has one extra program per segment, whose sums go to a float32 buffer and are added
in order by `_join`. There are no atomics: the same input gives the same bits. On a machine without a GPU,
`TRITON_INTERPRET=1` runs the same code on CPU tensors.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import os
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops.csr import CSR, SEGMENT
from gfgn.ops.cuda.launch import cdiv, kernel, next_power_of_2
from gfgn.ops.registration import replicas

_SEGMENT = tl.constexpr(SEGMENT)


# The kernels are bound by instructions as much as by memory, and the sigmoid is a good part of them: four instructions
# instead of Triton's dozen, which also handle denormal numbers; those do not matter here.
_PTX = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET", "0") != "1")


@triton.jit
def sigmoid(x):
    # exp2 overflows to inf for a very negative x, which gives the right 0; NaN stays NaN.
    if _PTX:
        s = tl.inline_asm_elementwise(
            "{ .reg .f32 t; mul.ftz.f32 t, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; "
            "add.ftz.f32 t, t, 0f3F800000; rcp.approx.ftz.f32 $0, t; }",
            "=r,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        s = 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))
    return s


@triton.jit
def hash_bits(entry, key):
    """A 32-bit hash of an entry's number and a key: the random bits of dropout. See `gfgn.ops.keys`."""
    h = entry.to(tl.uint32) ^ key
    h ^= (entry >> 32).to(tl.uint32) * 0x9E3779B1
    h ^= h >> 16
    h *= 0x7FEB352D
    h ^= h >> 15
    h *= 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def both(one, other):
    # In the interpreter, a scalar & a boolean tensor is an integer tensor; the comparison makes it boolean again.
    return (one & other) != 0


@triton.jit
def _columns(width, group_blocks, GROUPED: tl.constexpr, BLOCK_D: tl.constexpr):
    """The columns of this program, which of them exist, and their group (a replica, or 0)."""
    if GROUPED:
        group = tl.program_id(1) // group_blocks
        local = (tl.program_id(1) % group_blocks) * BLOCK_D + tl.arange(0, BLOCK_D)
    else:
        group = 0
        local = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    return group * width + local, local < width, group


@triton.jit
def span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS: tl.constexpr):
    """Row, first entry and number of entries of work item `v`, and whether it is an ordinary row. Work items are the
    segments of the hubs, first because they take longest, and then all rows; the row of a hub is empty."""
    if HUBS:
        is_segment = v < segments
        hub = tl.load(seg_hub + v, mask=is_segment, other=0)
        row = tl.load(hub_rows + hub, mask=is_segment, other=v - segments)
        skip = (v - tl.load(hub_ptr + hub, mask=is_segment, other=v)) * _SEGMENT
    else:
        row = v
        skip = 0
    first = tl.load(ptr + row, mask=row < rows, other=0) + skip
    length = tl.load(ptr + row + 1, mask=row < rows, other=0) - first
    is_row = row < rows
    if HUBS:
        is_row = is_row & (v >= segments) & (length <= _SEGMENT)
        length = tl.where(is_segment, tl.minimum(length, _SEGMENT), tl.where(is_row, length, 0))
    return row, first, length.to(tl.int32), is_row


@triton.jit
def _finish(
    sum0, sum1, sum2, row, valid, column, present,
    y0, y1, y2, y3, y4, lam, scale, out0, out1, out2,
    columns, width, gate_stride, OP: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Combines the sums of a row with the row's own values and stores the results."""
    at = row * columns + column[None, :]
    mask = both(valid, present[None, :])
    if OP == "pair_forward":
        weight = tl.load(lam + column, mask=present, other=0.0)[None, :]
        first = tl.load(y1 + at, mask=mask, other=0.0).to(tl.float32) + weight * sum0
        if SAVE:
            tl.store(out1 + at, sum1, mask=mask)
            tl.store(out2 + at, sum2, mask=mask)
    elif OP == "pair_backward":
        weight = tl.load(lam + column, mask=present, other=0.0)[None, :]
        grad = tl.load(y2 + at, mask=mask, other=0.0).to(tl.float32)
        first = weight * grad * tl.load(y3 + at, mask=mask, other=0.0).to(tl.float32)
        q = tl.load(y4 + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out1 + at, weight * sum0, mask=mask)
        tl.store(out2 + at, grad * (1.0 - weight * q) + weight * sum1, mask=mask)
    elif OP == "gated_forward" or OP == "gated_backward":
        own = tl.load(y0 + at, mask=mask, other=0.0).to(tl.float32)
        gate_at = row * gate_stride + column[None, :]
        gate = tl.load(y1 + gate_at, mask=mask, other=0.0).to(tl.float32)
        if OP == "gated_forward":
            second = sum0 - own
            first = own + gate * second
        else:
            second = own * tl.load(y2 + at, mask=mask, other=0.0).to(tl.float32)
            first = own * (1.0 - gate) + sum0
        if SAVE:
            tl.store(out1 + at, second, mask=mask)
    elif OP == "spmm_pair":
        first = sum0
        tl.store(out1 + at, sum1 * tl.load(y0 + row, mask=valid, other=0.0).to(tl.float32), mask=mask)
    elif OP == "sparse_linear":
        first = sum0 * tl.load(scale + column // width, mask=present, other=0.0)[None, :]
    else:
        first = sum0
    tl.store(out0 + at, first, mask=mask)


@triton.jit
def _stack(x, UNROLL: tl.constexpr):
    """The sum of `UNROLL` stacked tiles."""
    return tl.sum(tl.reshape(x, [UNROLL, x.shape[0] // UNROLL, x.shape[1]]), 0)


@triton.jit
def aligned(stride, ALIGNED: tl.constexpr):
    """The distance of two rows, with the promise that it is a multiple of 16 if `ALIGNED`.

    Written as a product, from which the compiler sees it: `tl.multiple_of` of an argument is lost with the call.
    """
    return stride // 16 * 16 if ALIGNED else stride


# Triton would compile `columns` and `gate_stride` in by whether they are multiples of 16, which depends on the number
# of replicas; instructions, and with them rounding, must depend on the columns of one replica alone: `ALIGNED`.
@kernel(do_not_specialize=("rows", "segments", "plane", "group_blocks", "columns", "gate_stride", "group_width"))
def _gather(
    x0, x1, x2, y0, y1, y2, y3, y4, w0, w1, lam, key, threshold, scale, entry, out0, out1, out2, partial,
    ptr, idx, hub_rows, hub_ptr, seg_hub, rows, segments, plane, columns, width, gate_stride, group_width, group_blocks,
    OP: tl.constexpr, SAVE: tl.constexpr, SUMS: tl.constexpr, HUBS: tl.constexpr, BY_COLUMN: tl.constexpr,
    LANES: tl.constexpr, UNROLL: tl.constexpr, BLOCK_D: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Sums over the entries of a row or of a segment of a hub, `LANES * UNROLL` entries at a time.

    x: gathered by column index; y: the row's own values; w: one value per entry, in `attend` one per entry and head. A
    tile is `[LANES, BLOCK_D]`; the loads of `UNROLL` tiles are in flight together. The `LANES` sums of a row are added
    once, at the end.
    """
    PAIR: tl.constexpr = OP == "pair_forward" or OP == "pair_backward"
    columns = aligned(columns, ALIGNED)
    group_width = aligned(group_width, ALIGNED)
    if OP == "gated_forward" or OP == "gated_backward":
        gate_stride = aligned(gate_stride, ALIGNED)
    column, present, group = _columns(group_width, group_blocks, OP == "sparse_linear", BLOCK_D)
    step = tl.arange(0, UNROLL * LANES)
    v = tl.program_id(0).to(tl.int64)
    row, first, length, is_row = span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS)

    if PAIR:
        own_at = row * columns + column[None, :]
        own_mask = both(length > 0, present[None, :])
        own0 = tl.load(y0 + own_at, mask=own_mask, other=0.0).to(tl.float32)
        own1 = tl.load(y1 + own_at, mask=own_mask, other=0.0).to(tl.float32)
    if OP == "sparse_linear":
        if BY_COLUMN:
            replica = column[None, :] // width
            keys = tl.load(key + replica, mask=present[None, :], other=0).to(tl.uint32)
            cut = tl.load(threshold + replica, mask=present[None, :], other=0).to(tl.uint32)
        else:
            keys = tl.load(key + group).to(tl.uint32)
            cut = tl.load(threshold + group).to(tl.uint32)

    sum0 = tl.zeros([LANES, BLOCK_D], tl.float32)
    sum1 = tl.zeros([LANES, BLOCK_D], tl.float32)
    sum2 = tl.zeros([LANES, BLOCK_D], tl.float32)
    for start in range(0, length, LANES * UNROLL):
        here = start + step < length
        e = first + (start + step)
        j = tl.load(idx + e, mask=here, other=0).to(tl.int64)
        at = j[:, None] * columns + column[None, :]
        mask = here[:, None] & present[None, :]
        if OP == "sparse_linear":  # dropped values are not read
            number = e
            if entry is not None:
                number = tl.load(entry + e, mask=here, other=0)
            # Hashed before the broadcast over columns where possible: a thread then hashes only its own entries.
            kept = hash_bits(number[:, None], keys) >= cut if BY_COLUMN else (hash_bits(number, keys) >= cut)[:, None]
            mask = both(mask, kept)
        g0 = tl.load(x0 + at, mask=mask, other=0.0).to(tl.float32)
        if OP == "attend":
            number = tl.load(entry + e, mask=here, other=0)
            v0 = tl.load(w0 + number[:, None] * gate_stride + (column // width)[None, :], mask=mask, other=0.0)
            v0 = v0.to(tl.float32)
        elif w0 is not None:
            v0 = tl.load(w0 + e, mask=here, other=0.0).to(tl.float32)[:, None]
        if OP == "pair_forward":
            g1 = tl.load(x1 + at, mask=mask, other=0.0).to(tl.float32)
            v1 = tl.load(w1 + e, mask=here, other=0.0)[:, None]
            s = sigmoid(own0 + g0)
            st = s * (v0 * g1 - v1 * own1)
            sum0 += _stack(st, UNROLL)
            if SAVE:
                sum1 += _stack(st - st * s, UNROLL)
                sum2 += _stack(s * v1, UNROLL)
        elif OP == "pair_backward":
            g1 = tl.load(x1 + at, mask=mask, other=0.0).to(tl.float32)
            g2 = tl.load(x2 + at, mask=mask, other=0.0).to(tl.float32)
            v1 = tl.load(w1 + e, mask=here, other=0.0)[:, None]
            s = sigmoid(own0 + g0)
            sg = s * g1
            sum0 += _stack((sg - sg * s) * (v0 * own1 - v1 * g2), UNROLL)
            sum1 += _stack(v0 * sg, UNROLL)
        elif OP == "spmm_pair":
            sum0 += _stack(v0 * g0, UNROLL)
            sum1 += _stack(g0, UNROLL)
        elif OP == "spmm_pair_backward":
            g1 = tl.load(x1 + at, mask=mask, other=0.0).to(tl.float32)
            v1 = tl.load(x2 + j, mask=here, other=0.0).to(tl.float32)[:, None]
            sum0 += _stack(v0 * g0 + v1 * g1, UNROLL)
        elif OP == "gated_backward":
            gate_at = j[:, None] * gate_stride + column[None, :]
            gate = tl.load(x1 + gate_at, mask=mask, other=0.0).to(tl.float32)
            sum0 += _stack(v0 * (g0 * gate), UNROLL)
        elif w0 is not None:
            sum0 += _stack(v0 * g0, UNROLL)
        else:
            sum0 += _stack(g0, UNROLL)

    if LANES > 1:
        sum0 = tl.sum(sum0, 0, keep_dims=True)
        sum1 = tl.sum(sum1, 0, keep_dims=True)
        sum2 = tl.sum(sum2, 0, keep_dims=True)
    if PAIR:
        # A row without entries must not turn a NaN of its own into sums.
        sum0 = tl.where(length > 0, sum0, 0.0)
        sum1 = tl.where(length > 0, sum1, 0.0)
        sum2 = tl.where(length > 0, sum2, 0.0)
    if HUBS:
        at = v * columns + column[None, :]
        mask = both(v < segments, present[None, :])
        tl.store(partial + at, sum0, mask=mask)
        if SUMS > 1:
            tl.store(partial + plane + at, sum1, mask=mask)
        if SUMS > 2:
            tl.store(partial + 2 * plane + at, sum2, mask=mask)
    _finish(
        sum0, sum1, sum2, row, is_row, column, present, y0, y1, y2, y3, y4, lam, scale, out0, out1, out2,
        columns, width, gate_stride, OP, SAVE,
    )  # fmt: skip


@kernel(do_not_specialize=("plane", "columns", "gate_stride"))
def _join(
    partial, y0, y1, y2, y3, y4, lam, scale, out0, out1, out2, hub_rows, hub_ptr, plane, columns, width, gate_stride,
    OP: tl.constexpr, SAVE: tl.constexpr, SUMS: tl.constexpr, TILE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Adds the sums of a hub's segments, always in the same order, and finishes its row."""
    hub = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    present = column < columns
    begin = tl.load(hub_ptr + hub)
    count = (tl.load(hub_ptr + hub + 1) - begin).to(tl.int32)
    sum0 = tl.zeros([TILE, BLOCK_D], tl.float32)
    sum1 = tl.zeros([TILE, BLOCK_D], tl.float32)
    sum2 = tl.zeros([TILE, BLOCK_D], tl.float32)
    for start in range(0, count, TILE):
        step = start + tl.arange(0, TILE)
        at = (begin + step)[:, None] * columns + column[None, :]
        mask = (step < count)[:, None] & present[None, :]
        sum0 += tl.load(partial + at, mask=mask, other=0.0)
        if SUMS > 1:
            sum1 += tl.load(partial + plane + at, mask=mask, other=0.0)
        if SUMS > 2:
            sum2 += tl.load(partial + 2 * plane + at, mask=mask, other=0.0)
    row = tl.load(hub_rows + hub)
    _finish(
        tl.sum(sum0, 0, keep_dims=True), tl.sum(sum1, 0, keep_dims=True), tl.sum(sum2, 0, keep_dims=True),
        row, row >= 0, column, present, y0, y1, y2, y3, y4, lam, scale, out0, out1, out2,
        columns, width, gate_stride, OP, SAVE,
    )  # fmt: skip


class Tile(NamedTuple):
    """The shape of one program of `_gather`."""

    lanes: int
    unroll: int
    block: int
    warps: int = 1


def plan(op: str, rows: CSR, dtype: torch.dtype, columns: int) -> Tile:
    """The tile for an operator, by fixed rules: choosing by timing would make runs differ.

    Measured on an H200: one warp processes one row: several rows per warp were up to 1.3
    times faster on even degrees, but up to 2 times slower on the skewed degrees of real graphs. A warp reads `full`
    columns with 16 bytes per thread, or divides its threads among the entries of a row. Cache hints made no difference.
    """
    full = 128 if dtype == torch.float32 else 256
    pair = op.startswith("pair_")
    # Half the width on many nodes: the slab of columns that is being gathered then stays in the L2 cache.
    widest = full // 2 if pair and rows.ptr.numel() > 65_536 else full
    block = max(full // 4, min(widest, next_power_of_2(columns)))
    lanes = full // block
    if pair:  # many tensors in registers: more tiles in flight would cost too much occupancy
        unroll = 1 if dtype != torch.float32 and lanes > 1 else 2
    elif op == "sparse_linear" and rows.idx.numel() >= 64 * rows.ptr.numel():  # long rows, and dropout skips loads
        unroll = 32 // lanes
    else:
        unroll = 8 if lanes == 1 and not op.endswith("_backward") else 4
    return Tile(lanes, unroll, block)


def dropout_masks(keys: Tensor, rate: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What decides dropout, one value per replica: keys, the least hash that is kept, and the factor of what is."""
    return keys, (rate * 2.0**32).floor().to(torch.int64), (1.0 / (1.0 - rate)).to(torch.float32)


def _pad(tensors: tuple[Tensor | None, ...], count: int) -> tuple[Tensor | None, ...]:
    return tensors + (None,) * (count - len(tensors))


def launch(
    op: str,
    rows: CSR,
    outs: tuple[Tensor, ...],
    gathered: tuple[Tensor, ...],
    own: tuple[Tensor, ...] = (),
    values: tuple[Tensor | None, ...] = (),
    *,
    sums: int = 1,
    save: bool = True,
    lam: Tensor | None = None,
    gate_stride: int = 0,
    dropout: tuple[Tensor, Tensor, Tensor] | None = None,
    entry: Tensor | None = None,
    width: int = 0,
) -> None:
    """Runs one operator on all rows. `width`: the columns of one replica, for dropout, or of one head."""
    if outs[0].numel() == 0:
        return
    count, columns = outs[0].shape
    of_replica = columns // replicas() if dropout is None else width
    tile = plan(op, rows, outs[0].dtype, of_replica)
    segments, hubs = rows.seg_hub.numel(), rows.hub_rows.numel()
    plane = segments * columns
    partial = torch.empty(sums * plane, dtype=torch.float32, device=outs[0].device) if hubs else None
    # A block inside one replica computes one hash per entry; with replicas narrower than half a block, one per element.
    by_column = dropout is not None and 2 * width <= tile.block
    group_width = width if dropout is not None and not by_column else columns
    group_blocks = cdiv(group_width, tile.block)
    blocks = columns // group_width * group_blocks
    key, threshold, scale = dropout or (None, None, None)
    shape = (plane, columns, width, gate_stride)
    _gather[(count + segments, blocks)](
        *_pad(gathered, 3), *_pad(own, 5), *_pad(values, 2), lam, key, threshold, scale, entry, *_pad(outs, 3), partial,
        *rows, count, segments, *shape, group_width, group_blocks,
        OP=op, SAVE=save, SUMS=sums, HUBS=hubs > 0, BY_COLUMN=by_column,
        LANES=tile.lanes, UNROLL=tile.unroll, BLOCK_D=tile.block, ALIGNED=of_replica % 16 == 0, num_warps=tile.warps,
    )  # fmt: skip
    if hubs:
        _join[(hubs, cdiv(columns, 32))](
            partial, *_pad(own, 5), lam, scale, *_pad(outs, 3), rows.hub_rows, rows.hub_ptr, *shape,
            OP=op, SAVE=save, SUMS=sums, TILE=16, BLOCK_D=32, num_warps=1,
        )  # fmt: skip


def checked(*tensors: Tensor) -> list[Tensor]:
    for tensor in tensors:
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"the Triton kernels need float32, bfloat16 or float16, got {tensor.dtype}")
    return [tensor.contiguous() for tensor in tensors]


def empty_result(x: Tensor, rows: CSR) -> Tensor:
    return torch.empty((rows.ptr.numel() - 1, x.shape[1]), dtype=x.dtype, device=x.device)


def spmm(x: Tensor, rows: CSR, values: Tensor | None) -> Tensor:
    """`out_i = Σ_e values_e x[idx_e]` over the entries of row `i`; without `values`, a plain sum."""
    (x,) = checked(x)
    out = empty_result(x, rows)
    launch("spmm", rows, (out,), (x,), (), (values,))
    return out


def spmm_pair(x: Tensor, rows: CSR, values: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """`Σ_e values_e x[idx_e]` and `inverse_i Σ_e x[idx_e]` from one gather."""
    (x,) = checked(x)
    outs = empty_result(x, rows), empty_result(x, rows)
    launch("spmm_pair", rows, outs, (x,), (inverse,), (values,), sums=2)
    return outs


def spmm_pair_backward(g_weighted: Tensor, g_mean: Tensor, rows_t: CSR, values_t: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of `spmm_pair` for `x`: `Σ_e values_e g_weighted[idx_e] + (inverse g_mean)[idx_e]`."""
    g_weighted, g_mean = checked(g_weighted, g_mean)
    out = empty_result(g_weighted, rows_t)
    launch("spmm_pair_backward", rows_t, (out,), (g_weighted, g_mean, inverse), (), (values_t,))
    return out


def sparse_linear(
    weight: Tensor, rows: CSR, values: Tensor, keys: Tensor, rate: Tensor, entry: Tensor | None, out_columns: int
) -> Tensor:
    """A sparse matrix times `[F, R * out_columns]`, with dropout on the sparse values: replica `r` owns `out_columns`
    consecutive columns. `entry` numbers the entries as in the matrix that is not transposed; `None` for `0 … E - 1`."""
    (weight,) = checked(weight)
    if weight.shape[1] != keys.numel() * out_columns:
        raise ValueError(f"weight has {weight.shape[1]} columns, expected {keys.numel()} replicas of {out_columns}")
    out = empty_result(weight, rows)
    dropout = dropout_masks(keys, rate)
    launch("sparse_linear", rows, (out,), (weight,), (), (values,), dropout=dropout, entry=entry, width=out_columns)
    return out
