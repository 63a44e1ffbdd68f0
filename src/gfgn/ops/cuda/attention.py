"""CUDA kernels of attention, in Triton: weighted sums, products along edges and the softmax over a neighborhood.

They walk a `CSR` as `gather` does. Each result is written by one program: there are no atomics, and the same input
gives the same bits.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops.csr import CSR
from gfgn.ops.cuda.gather import aligned, checked, empty_result, launch, span
from gfgn.ops.cuda.launch import cdiv, kernel, next_power_of_2
from gfgn.ops.registration import replicas

TILE = 16  # entries of a row that the softmax processes at a time
WIDEST = 128  # columns of a head that are read at once; a wider head is read in parts


@kernel(do_not_specialize=("rows", "segments", "columns", "heads"))
def _edge_dot(
    q, k, out, entry, ptr, idx, hub_rows, hub_ptr, seg_hub, rows, segments, columns, width, heads,
    HUBS: tl.constexpr, TILE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """A program owns a row, or a segment of a hub, and `HEADS` heads, and processes `TILE` entries at a time."""
    columns = aligned(columns, ALIGNED)
    v = tl.program_id(0).to(tl.int64)
    row, first, length, _ = span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    for start in range(0, length, TILE):
        step = start + tl.arange(0, TILE)
        here = step < length
        j = tl.load(idx + first + step, mask=here, other=0).to(tl.int64)
        total = tl.zeros([TILE, HEADS], tl.float32)
        for part in tl.static_range(PARTS):
            local = part * WIDTH + tl.arange(0, WIDTH)
            column = head[:, None] * width + local[None, :]
            present = (head < heads)[:, None] & (local < width)[None, :]
            own = tl.load(q + row * columns + column, mask=present, other=0.0).to(tl.float32)
            mask = here[:, None, None] & present[None, :, :]
            other = tl.load(k + j[:, None, None] * columns + column[None, :, :], mask=mask, other=0.0).to(tl.float32)
            total += tl.sum(own[None, :, :] * other, 2)
        number = tl.load(entry + first + step, mask=here, other=0)
        at = number[:, None] * heads + head[None, :]
        tl.store(out + at, total, mask=here[:, None] & (head < heads)[None, :])


@triton.jit
def _tile(start, first, length, head, heads, TILE: tl.constexpr):
    """Offsets of the values of `TILE` entries of a row, starting at its entry `start`, and which of them exist."""
    step = start + tl.arange(0, TILE)
    at = (first + step)[:, None] * heads + head[None, :]
    return at, (step < length)[:, None] & (head < heads)[None, :]


@triton.jit
def _halve(x):
    """Adds the second half of the rows to the first."""
    return tl.sum(tl.reshape(x, [2, x.shape[0] // 2, x.shape[1]]), 0)


@triton.jit
def _sum_of_tile(x):
    """The sum over `TILE` rows, of two numbers at a time, in whichever thread they are."""
    return _halve(_halve(_halve(_halve(x))))


@kernel(do_not_specialize=("heads",))
def _softmax(x, out, ptr, heads, TILE: tl.constexpr, HEADS: tl.constexpr):
    """A program owns a row and `HEADS` heads: one pass over the entries for the sum, one for the results."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    first = tl.load(ptr + row)
    length = (tl.load(ptr + row + 1) - first).to(tl.int32)
    # Each lane of the tile has its own maximum, by which its sum is scaled; they are combined at the end. Where a
    # maximum is still -inf, 0 takes its role, since the difference of two infinities is NaN.
    top = tl.full([TILE, HEADS], float("-inf"), tl.float32)
    total = tl.zeros([TILE, HEADS], tl.float32)
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        value = tl.load(x + at, mask=mask, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, value)
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - base) + tl.exp(value - base)
        top = new
    best = tl.max(top, 0, keep_dims=True)
    base = tl.where(best == float("-inf"), 0.0, best)
    denominator = _sum_of_tile(total * tl.exp(top - base))
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + at, tl.exp(value - base) / denominator, mask=mask)


@kernel(do_not_specialize=("heads",))
def _softmax_backward(grad, alpha, out, ptr, heads, TILE: tl.constexpr, HEADS: tl.constexpr):
    """`α_e (g_e - Σ_k α_k g_k)` over the entries of a row."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    first = tl.load(ptr + row)
    length = (tl.load(ptr + row + 1) - first).to(tl.int32)
    total = tl.zeros([TILE, HEADS], tl.float32)
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        total += g * tl.load(alpha + at, mask=mask, other=0.0).to(tl.float32)
    mean = _sum_of_tile(total)
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        a = tl.load(alpha + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + at, a * (g - mean), mask=mask)


def attend(alpha: Tensor, x: Tensor, rows: CSR, entry: Tensor) -> Tensor:
    """`out_i = Σ_e α[entry_e] x[idx_e]` over the entries of row `i`: `alpha` is `[E, heads]`, `x` `[N, heads * d]`."""
    alpha, x = checked(alpha, x)
    out, heads = empty_result(x, rows), alpha.shape[1]
    width = x.shape[1] // heads
    launch("attend", rows, (out,), (x,), (), (alpha,), gate_stride=heads, entry=entry, width=width)
    return out


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`out[entry_e] = ⟨q_i, k[idx_e]⟩`, `[E, heads]`, for the entries of every row `i` and heads of `width` columns."""
    q, k = checked(q, k)
    columns = q.shape[1]
    heads = columns // width
    out = torch.empty((entry.numel(), heads), dtype=q.dtype, device=q.device)
    if out.numel() == 0:
        return out
    part = min(WIDEST, next_power_of_2(width))
    of_replica = heads // replicas()
    group = min(max(1, WIDEST // part), next_power_of_2(of_replica))
    segments = rows.seg_hub.numel()
    count = rows.ptr.numel() - 1
    _edge_dot[(count + segments, cdiv(heads, group))](
        q, k, out, entry, *rows, count, segments, columns, width, heads,
        HUBS=segments > 0, TILE=max(4, 512 // (group * part)), HEADS=group, WIDTH=part, PARTS=cdiv(width, part),
        ALIGNED=of_replica * width % 16 == 0, num_warps=1,
    )  # fmt: skip
    return out


def softmax(scores: Tensor, rows: CSR) -> Tensor:
    """`exp(x_e) / Σ_k exp(x_k)` over the entries of each row, for scores `[E, heads]` in the order of the entries."""
    (scores,) = checked(scores)
    return _by_row(_softmax, (scores,), rows)


def softmax_backward(grad: Tensor, alpha: Tensor, rows: CSR) -> Tensor:
    """The gradient of `softmax`, whose result was `alpha`."""
    grad, alpha = checked(grad, alpha)
    return _by_row(_softmax_backward, (grad, alpha), rows)


def _by_row(kernel, inputs: tuple[Tensor, ...], rows: CSR) -> Tensor:
    out = torch.empty_like(inputs[0])
    if out.numel() == 0:
        return out
    heads = out.shape[1]
    # The tile is the same for any number of heads, and no multiplication is fused with an addition: among many heads a
    # head has the bits that it has alone, although other threads compute it.
    group = min(32, next_power_of_2(heads))
    grid = (rows.ptr.numel() - 1, cdiv(heads, group))
    kernel[grid](*inputs, out, rows.ptr, heads, TILE=TILE, HEADS=group, num_warps=1, enable_fp_fusion=False)
    return out
