"""CUDA kernels for values on edges, in Triton: products along edges and the softmax over a neighbourhood.

They walk `CSR` as `triton_kernels` does. What they write has a number an entry and head, and every number is written
by one program: nothing is added atomically, and the same input gives the same bits.
"""

# Triton's own functions cannot be annotated; the functions below them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops.csr import CSR
from gfgn.ops.cuda.kernels import _checked, _span

WIDEST = 128
"""Columns of a head that are read at once; a wider one is read in parts."""


@triton.jit(do_not_specialize=["rows", "segments"])
def _edge_dot(
    q, k, out, entry, ptr, idx, hub_rows, hub_ptr, seg_hub, rows, segments, columns, width, heads,
    HUBS: tl.constexpr, TILE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A program owns a row, or a segment of a hub, and `HEADS` heads, and takes `TILE` entries at a time."""
    v = tl.program_id(0).to(tl.int64)
    row, first, length, _ = _span(v, rows, segments, ptr, hub_rows, hub_ptr, seg_hub, HUBS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    for start in range(0, length, TILE):
        step = start + tl.arange(0, TILE)
        here = step < length
        j = tl.load(idx + first + step, mask=here, other=0).to(tl.int64)
        total = tl.zeros([TILE, HEADS], tl.float32)
        for part in tl.static_range(PARTS):
            place = part * WIDTH + tl.arange(0, WIDTH)
            column = head[:, None] * width + place[None, :]
            present = (head < heads)[:, None] & (place < width)[None, :]
            own = tl.load(q + row * columns + column, mask=present, other=0.0).to(tl.float32)
            mask = here[:, None, None] & present[None, :, :]
            other = tl.load(k + j[:, None, None] * columns + column[None, :, :], mask=mask, other=0.0).to(tl.float32)
            total += tl.sum(own[None, :, :] * other, 2)
        number = tl.load(entry + first + step, mask=here, other=0)
        at = number[:, None] * heads + head[None, :]
        tl.store(out + at, total, mask=here[:, None] & (head < heads)[None, :])


@triton.jit
def _tile(start, first, length, head, heads, TILE: tl.constexpr):
    """Where the values of `TILE` entries of a row are, from entry `start` of it on, and which of them exist."""
    step = start + tl.arange(0, TILE)
    at = (first + step)[:, None] * heads + head[None, :]
    return at, (step < length)[:, None] & (head < heads)[None, :]


@triton.jit
def _softmax(x, out, ptr, heads, TILE: tl.constexpr, HEADS: tl.constexpr):
    """A program owns a row and `HEADS` heads: once over its entries for the sum, once for the results."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    first = tl.load(ptr + row)
    length = (tl.load(ptr + row + 1) - first).to(tl.int32)
    # Each lane of the tile has a maximum of its own, by which its sum is scaled; they meet at the end. What is -inf so
    # far is scaled by 0, since the difference of two infinities is NaN.
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
    whole = tl.sum(total * tl.exp(top - base), 0, keep_dims=True)
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + at, tl.exp(value - base) / whole, mask=mask)


@triton.jit
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
    whole = tl.sum(total, 0, keep_dims=True)
    for start in range(0, length, TILE):
        at, mask = _tile(start, first, length, head, heads, TILE)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        a = tl.load(alpha + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + at, a * (g - whole), mask=mask)


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`⟨q_i, k[idx_e]⟩` for each entry of each row `i` and each head of `width` columns.

    Args:
        q, k: `[rows, heads * width]` and `[columns, heads * width]`.
        rows: the pattern.
        entry: `[E]`, int64, the row of the result for each entry of `rows`.
        width: the columns of a head.

    Returns:
        `[E, heads]`.
    """
    q, k = _checked(q, k)
    columns = q.shape[1]
    heads = columns // width
    out = torch.empty((entry.numel(), heads), dtype=q.dtype, device=q.device)
    if out.numel() == 0:
        return out
    part = min(WIDEST, triton.next_power_of_2(width))
    some = min(max(1, WIDEST // part), triton.next_power_of_2(heads))
    segments = rows.seg_hub.numel()
    count = rows.ptr.numel() - 1
    _edge_dot[(count + segments, triton.cdiv(heads, some))](
        q, k, out, entry, *rows, count, segments, columns, width, heads,
        HUBS=segments > 0, TILE=max(4, 512 // (some * part)), HEADS=some, WIDTH=part, PARTS=triton.cdiv(width, part),
        num_warps=1,
    )  # fmt: skip
    return out


def softmax(scores: Tensor, rows: CSR) -> Tensor:
    """`exp(x_e) / Σ_k exp(x_k)` over the entries of each row, for scores `[E, heads]` in the order of the entries."""
    (scores,) = _checked(scores)
    return _by_row(_softmax, (scores,), rows)


def softmax_backward(grad: Tensor, alpha: Tensor, rows: CSR) -> Tensor:
    """The gradient of `softmax`, whose result was `alpha`."""
    grad, alpha = _checked(grad, alpha)
    return _by_row(_softmax_backward, (grad, alpha), rows)


def _by_row(kernel, inputs: tuple[Tensor, ...], rows: CSR) -> Tensor:
    out = torch.empty_like(inputs[0])
    if out.numel() == 0:
        return out
    heads = out.shape[1]
    some = min(32, triton.next_power_of_2(heads))
    grid = (rows.ptr.numel() - 1, triton.cdiv(heads, some))
    kernel[grid](*inputs, out, rows.ptr, heads, TILE=max(8, 256 // some), HEADS=some, num_warps=1)
    return out
