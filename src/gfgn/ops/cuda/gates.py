"""CUDA kernels of the gated sums, in Triton: pair level, graph level and neighbor level, forward and backward."""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops import heads as plain
from gfgn.ops.csr import CSR
from gfgn.ops.cuda.gather import checked, launch, sigmoid
from gfgn.ops.cuda.launch import cdiv, kernel, next_power_of_2
from gfgn.ops.cuda.products import partial_sums, row_sums
from gfgn.ops.registration import replicas

# --- pair level ---


def pair_forward(
    a: Tensor, b: Tensor, z: Tensor, lam: Tensor, norm: Tensor, row_norm: Tensor, rows: CSR, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j s t` with `s = σ(a_i + b_j)` and `t = norm_ij z_j - row_norm_ij z_i`; with `save` also
    `p = Σ_j s (1 - s) t` and `q = Σ_j s row_norm_ij`, which are empty otherwise. All are `[N, D]`."""
    a, b, z = checked(a, b, z)
    out = torch.empty_like(z)
    p, q = (torch.empty_like(z) if save else z.new_empty(0) for _ in range(2))
    outs = (out, p, q) if save else (out,)
    launch("pair_forward", rows, outs, (b, z), (a, z), (norm, row_norm), sums=3 if save else 1, save=save, lam=lam)
    return out, p, q


def pair_backward(
    grad: Tensor, a: Tensor, b: Tensor, z: Tensor, p: Tensor, q: Tensor, lam: Tensor,
    norm_t: Tensor, row_norm_t: Tensor, rows_t: CSR, reuse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `pair_forward` for `a`, `b` and `z`; `rows_t` is by source, as are `norm_t` and `row_norm_t`.
    With `reuse` they overwrite `p`, `b` and `q`: each of their rows is read only by the program that writes it."""
    grad, a, b, z, p, q = checked(grad, a, b, z, p, q)
    outs = (p, b, q) if reuse else (torch.empty_like(a), torch.empty_like(b), torch.empty_like(z))
    own = (b, z, grad, p, q)
    launch("pair_backward", rows_t, outs, (a, grad, z), own, (norm_t, row_norm_t), sums=2, lam=lam)
    return outs


# --- graph level ---


def _gate_stride(s: Tensor) -> int:
    """Distance from one row of the gate to the next: 0 where one row serves all nodes."""
    return 0 if s.shape[0] == 1 else s.shape[1]


def gated_propagate(z: Tensor, s: Tensor, rows: CSR, norm: Tensor, save: bool) -> tuple[Tensor, Tensor]:
    """`out = z + s diff` with `diff = Âz - z`; `s` is `[N, D]` or `[1, D]`, and `diff` is empty unless saved."""
    z, s = checked(z, s)
    out = torch.empty_like(z)
    diff = torch.empty_like(z) if save else z.new_empty(0)
    outs = (out, diff) if save else (out,)
    launch("gated_forward", rows, outs, (z,), (z, s), (norm,), save=save, gate_stride=_gate_stride(s))
    return out, diff


def gated_propagate_backward(
    grad: Tensor, s: Tensor, diff: Tensor, rows_t: CSR, norm_t: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of `gated_propagate` for `z` and, one row per node, for `s`; sum those for a gate of one row."""
    grad, s, diff = checked(grad, s, diff)
    outs = torch.empty_like(grad), torch.empty_like(grad)
    own = (grad, s, diff)
    launch("gated_backward", rows_t, outs, (grad, s), own, (norm_t,), gate_stride=_gate_stride(s))
    return outs


# A program owns one head. It adds up the sums of blocks of rows, and reads `BLOCK` rows of the head's matrix at a time.


@triton.jit
def _total(sums, column, present, parts, columns, TILE: tl.constexpr, SIZE: tl.constexpr):
    """The sum of all rows of `[parts, columns]` in these columns."""
    total = tl.zeros([TILE, SIZE], tl.float32)
    for start in range(0, parts, TILE):
        part = start + tl.arange(0, TILE)
        mask = (part < parts)[:, None] & present[None, :]
        total += tl.load(sums + part.to(tl.int64)[:, None] * columns + column[None, :], mask=mask, other=0.0)
    return tl.sum(total, 0)


@kernel(do_not_specialize=("parts", "heads", "rows"))
def _graph_gate(
    sums, gate, lam, mean, sigma, s, parts, heads, rows,
    d: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The mean over rows, `σ` of its product with the head's matrix, and the gate."""
    head = tl.program_id(0)
    e = tl.arange(0, W)
    score = tl.zeros([W], tl.float32)
    for start in range(0, d, BLOCK):
        k = start + tl.arange(0, BLOCK)
        of_block = _total(sums, head * d + k, k < d, parts, heads * d, TILE, BLOCK) / rows
        tl.store(mean + head * d + k, of_block, mask=k < d)
        at = head.to(tl.int64) * (d * d) + k[:, None] * d + e[None, :]
        weight = tl.load(gate + at, mask=(k < d)[:, None] & (e < d)[None, :], other=0.0).to(tl.float32)
        score += tl.sum(of_block[:, None] * weight, 0)
    opened = sigmoid(score)
    tl.store(sigma + head * d + e, opened, mask=e < d)
    limit = tl.load(lam + head * d + e, mask=e < d, other=0.0).to(tl.float32)
    tl.store(s + head * d + e, limit * opened, mask=e < d)


@kernel(do_not_specialize=("parts", "heads", "rows"))
def _graph_gate_backward(
    sums, gate, lam, mean, sigma, grad_mean, grad_gate, parts, heads, rows,
    d: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The gradients of `_graph_gate` for a row of `z`, which is the same for all of them, and for the matrix."""
    head = tl.program_id(0)
    e = tl.arange(0, W)
    opened = tl.load(sigma + head * d + e, mask=e < d, other=0.0).to(tl.float32)
    limit = tl.load(lam + head * d + e, mask=e < d, other=0.0).to(tl.float32)
    slope = _total(sums, head * d + e, e < d, parts, heads * d, TILE, W) * limit * opened * (1.0 - opened)
    for start in range(0, d, BLOCK):
        k = start + tl.arange(0, BLOCK)
        mask = (k < d)[:, None] & (e < d)[None, :]
        at = head.to(tl.int64) * (d * d) + k[:, None] * d + e[None, :]
        weight = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(grad_mean + head * d + k, tl.sum(weight * slope[None, :], 1) / rows, mask=k < d)
        of_block = tl.load(mean + head * d + k, mask=k < d, other=0.0).to(tl.float32)
        tl.store(grad_gate + at, of_block[:, None] * slope[None, :], mask=mask)


def _graph_program(d: int) -> dict[str, int]:
    """Sizes of a program, by the columns of a head alone."""
    width = max(16, next_power_of_2(d))
    return {"d": d, "W": width, "BLOCK": max(1, min(width, 4096 // width)), "TILE": max(1, min(32, 4096 // width))}


def graph_gate(z: Tensor, gate: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`s = λ σ(mean_i(z_i) W_s)`, the mean and `σ`, all `[1, heads·d]`, with the gate `[heads, d, d]`."""
    (heads, _, d), columns = gate.shape, z.size(1)
    mean, sigma, s = (torch.empty(1, columns, dtype=z.dtype, device=z.device) for _ in range(3))
    sums = partial_sums(z.contiguous())
    _graph_gate[(heads,)](
        sums, gate.contiguous(), lam, mean, sigma, s, sums.size(0), heads, z.size(0), **_graph_program(d), num_warps=4
    )
    return s, mean, sigma


def graph_gate_backward(
    grad_s: Tensor, gate: Tensor, lam: Tensor, mean: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of `graph_gate` for every row of `z`, `[1, heads·d]`, and for the gate; `grad_s` is `[N, heads·d]`,
    to be summed."""
    (heads, _, d), rows = gate.shape, grad_s.size(0)
    grad_mean, grad_gate, sums = torch.empty_like(mean), torch.empty_like(gate), partial_sums(grad_s.contiguous())
    _graph_gate_backward[(heads,)](
        sums, gate.contiguous(), lam, mean, sigma, grad_mean, grad_gate, sums.size(0), heads, rows,
        **_graph_program(d), num_warps=4,
    )  # fmt: skip
    return grad_mean, grad_gate


# --- neighbor level: what follows the sums over neighbors ---
#
# A program owns a block of rows and the columns of as many heads as fit into `W` columns, each in 8, 16 or 32 of them,
# so that matrix units add up a head's products in the same order in any place. Their gates form one block-diagonal
# `[W, W]` matrix, one block per head: more arithmetic than necessary, but on matrix units. Adjacent programs own
# adjacent columns, so that memory is read contiguously.


@triton.jit
def _gate_matrix(block, heads, d: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    """Offsets of the upper halves of a program's gates in a `[W, W]` matrix, and a mask of the blocks."""
    SIZE: tl.constexpr = W // HEADS
    k = tl.arange(0, W)
    head = block * HEADS + k // SIZE
    there = (k % SIZE < d) & (head < heads)
    at = head.to(tl.int64)[:, None] * (2 * d * d) + (k % SIZE)[:, None] * d + (k % SIZE)[None, :]
    inside = (k // SIZE)[:, None] == (k // SIZE)[None, :]
    return at, inside & (there[:, None] & there[None, :])


@triton.jit
def _head_columns(block, heads, d: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    """The columns of a program's heads, `W / HEADS` places for each, and which of them exist."""
    SIZE: tl.constexpr = W // HEADS
    k = tl.arange(0, W)
    head = block * HEADS + k // SIZE
    return head * d + k % SIZE, (k % SIZE < d) & (head < heads)


@triton.jit
def _dot(x, y):
    """A product of float32 matrices with float32 precision, on matrix units."""
    return tl.dot(x, y, input_precision="tf32x3")


@triton.jit
def _finite(x):
    """`x` with 0 for what is not finite. A product with the zeros beside the blocks would be NaN, and reach the heads
    of other replicas."""
    return tl.where(tl.abs(x) <= 3.4028234e38, x, 0.0)


@triton.jit
def _offsets(block, first, rows, heads, d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    """Offsets of `[ROWS, W]` values starting at row `first`, and which of them exist."""
    row = first + tl.arange(0, ROWS)
    column, exists = _head_columns(block, heads, d, HEADS, W)
    at = row.to(tl.int64)[:, None] * (heads * d) + column[None, :]
    return at, (row < rows)[:, None] & exists[None, :]


@triton.jit
def _lambdas(lam, block, heads, d: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    column, exists = _head_columns(block, heads, d, HEADS, W)
    return tl.load(lam + column, mask=exists, other=0.0)[None, :]


@kernel(do_not_specialize=("rows", "heads", "blocks"))
def _gated_neighbor(
    z, propagated, mean, gate, lam, out, rows, heads, blocks,
    d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    block, part = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    gate_at, gate_inside = _gate_matrix(block, heads, d, HEADS, W)
    own = tl.load(gate + gate_at, mask=gate_inside, other=0.0).to(tl.float32)
    other = tl.load(gate + gate_at + d * d, mask=gate_inside, other=0.0).to(tl.float32)
    at, inside = _offsets(block, part * ROWS, rows, heads, d, ROWS, HEADS, W)
    mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
    theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
    taken = tl.load(propagated + at, mask=inside, other=0.0).to(tl.float32)
    s = _lambdas(lam, block, heads, d, HEADS, W) * sigmoid(_dot(_finite(mine), own) + _dot(_finite(theirs), other))
    tl.store(out + at, mine + s * (taken - mine), mask=inside)


@kernel(do_not_specialize=("rows", "heads", "blocks", "plane", "steps"))
def _gated_neighbor_backward(
    grad, z, propagated, mean, gate, lam, grad_z, grad_propagated, grad_mean, partial,
    rows, heads, blocks, plane, steps,
    d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    block, part = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    gate_at, gate_inside = _gate_matrix(block, heads, d, HEADS, W)
    own = tl.load(gate + gate_at, mask=gate_inside, other=0.0).to(tl.float32)
    other = tl.load(gate + gate_at + d * d, mask=gate_inside, other=0.0).to(tl.float32)
    weight = _lambdas(lam, block, heads, d, HEADS, W)
    sum_own = tl.zeros([W, W], tl.float32)
    sum_other = tl.zeros([W, W], tl.float32)
    for step in range(steps):
        at, inside = _offsets(block, (part * steps + step) * ROWS, rows, heads, d, ROWS, HEADS, W)
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
        theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
        taken = tl.load(propagated + at, mask=inside, other=0.0).to(tl.float32)
        sigma = sigmoid(_dot(_finite(mine), own) + _dot(_finite(theirs), other))
        s = weight * sigma
        slope = g * (taken - mine) * s * (1.0 - sigma)
        tl.store(grad_propagated + at, g * s, mask=inside)
        tl.store(grad_z + at, g * (1.0 - s) + _dot(_finite(slope), tl.trans(own)), mask=inside)
        tl.store(grad_mean + at, _dot(_finite(slope), tl.trans(other)), mask=inside)
        sum_own += _dot(tl.trans(mine), slope)
        sum_other += _dot(tl.trans(theirs), slope)
    at = part.to(tl.int64) * plane + gate_at
    tl.store(partial + at, sum_own, mask=gate_inside)
    tl.store(partial + at + d * d, sum_other, mask=gate_inside)


# The largest head whose gate, gradient and rows in flight fit into the shared memory of any GPU; wider heads use
# PyTorch's products.
WIDEST_HEAD = 32


def _neighbor_program(d: int) -> tuple[int, int, int, int]:
    """Columns, heads, rows and warps of a program: the fastest on an H200 for heads of up to 16 columns, where wider
    matrices cost more than they gain; for wider heads, half of the rows that would fit."""
    if d <= 16:
        return 16, 2 if d <= 8 else 1, 32, 1
    return 32, 1, 32, 2


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`: `[N, heads·d]`, with the gate `[heads, 2d, d]`."""
    heads, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return plain.gated_neighbor(z, propagated, mean, gate, lam)
    z, propagated, mean, gate = checked(z, propagated, mean, gate)
    out = torch.empty_like(z)
    width, group, rows, warps = _neighbor_program(d)
    blocks = cdiv(heads, group)
    _gated_neighbor[(blocks * cdiv(z.size(0), rows),)](
        z, propagated, mean, gate, lam, out, z.size(0), heads, blocks,
        d=d, ROWS=rows, HEADS=group, W=width, num_warps=warps,
    )  # fmt: skip
    return out


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` for `z`, `propagated`, `mean` and the gate."""
    heads, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return plain.gated_neighbor_backward(grad, z, propagated, mean, gate, lam)
    grad, z, propagated, mean, gate = checked(grad, z, propagated, mean, gate)
    grad_z, grad_propagated, grad_mean = (torch.empty_like(z) for _ in range(3))
    width, group, rows, warps = _neighbor_program(d)
    blocks = cdiv(heads, group)
    # Enough programs to fill a GPU with one replica, and no more partial sums than that needs.
    steps = max(1, min(32, z.size(0) * cdiv(heads // replicas(), group) // (rows * 1024)))
    chunks = cdiv(z.size(0), rows * steps)
    partial = torch.empty(chunks, *gate.shape, dtype=torch.float32, device=z.device)
    _gated_neighbor_backward[(blocks * chunks,)](
        grad, z, propagated, mean, gate, lam, grad_z, grad_propagated, grad_mean, partial,
        z.size(0), heads, blocks, gate.numel(), steps,
        d=d, ROWS=rows, HEADS=group, W=width, num_warps=warps,
    )  # fmt: skip
    return grad_z, grad_propagated, grad_mean, row_sums(partial.view(chunks, -1)).view(gate.shape).to(gate.dtype)
