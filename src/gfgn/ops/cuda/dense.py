"""Passes over dense tensors of replicas on CUDA, in Triton: dropout by hash, a step of Adam, a copy of some."""

# Triton's own functions cannot be annotated; the functions below them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops import heads as heads_module
from gfgn.ops.cuda.kernels import _checked, _hash, _sigmoid

BLOCK = 1024


@triton.jit(do_not_specialize=["columns"])
def _dropout(x, out, key, threshold, scale, columns, width: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    present = column < columns
    replica = column // width
    number = row * width + (column - replica * width)
    keys = tl.load(key + replica, mask=present, other=0).to(tl.uint32)
    cut = tl.load(threshold + replica, mask=present, other=0).to(tl.uint32)
    at = row * columns + column
    value = tl.load(x + (number if SHARED else at), mask=present, other=0.0).to(tl.float32)
    value = value * tl.load(scale + replica, mask=present, other=0.0)
    tl.store(out + at, tl.where(_hash(number, keys) >= cut, value, 0.0), mask=present)


def dropout(x: Tensor, keys: Tensor, rate: Tensor, shared: bool) -> Tensor:
    """Drops values of `x`, `[N, R·D]`: number `n D + d` of replica `r` by a hash of it and `keys[r]`. If `shared`, `x`
    is `[N, D]`, the same for all."""
    (x,) = _checked(x)
    rows, columns = x.size(0), x.size(1) * (keys.numel() if shared else 1)
    out = x.new_empty(rows, columns)
    if out.numel() == 0:
        return out
    threshold = (rate * 2.0**32).floor().to(torch.int64)
    scale = (1.0 / (1.0 - rate)).to(torch.float32)
    block = min(BLOCK, triton.next_power_of_2(columns))
    grid = (rows, triton.cdiv(columns, block))
    _dropout[grid](x, out, keys, threshold, scale, columns, columns // keys.numel(), SHARED=shared, BLOCK=block)
    return out


# --- the neighbour level: what follows the sums over neighbours ---
#
# A program owns some rows and the columns of as many heads as fill `W` columns. Their gates become one `[W, W]` matrix
# with a block a head on its diagonal: more arithmetic than there is to do, but on matrix units. Neighbouring programs
# own neighbouring columns, so that memory is read in long stretches.


@triton.jit
def _gate_matrix(block, heads, d: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    """Offsets of the upper halves of a program's gates in a `[W, W]` matrix, and where the blocks are."""
    k = tl.arange(0, W)
    head = block * HEADS + k // d
    there = (k < HEADS * d) & (head < heads)
    at = head.to(tl.int64)[:, None] * (2 * d * d) + (k % d)[:, None] * d + (k % d)[None, :]
    inside = (k // d)[:, None] == (k // d)[None, :]
    return at, inside & (there[:, None] & there[None, :])


@triton.jit
def _dot(x, y):
    """A product of float32 matrices to float32's own precision, on matrix units."""
    return tl.dot(x, y, input_precision="tf32x3")


@triton.jit
def _places(
    block, first, rows, columns, heads, d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr
):
    """Offsets of `[ROWS, W]` values from row `first` on, and which of them there are."""
    row = first + tl.arange(0, ROWS)
    k = tl.arange(0, W)
    column = block * HEADS * d + k
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    return at, (row < rows)[:, None] & ((k < HEADS * d) & (column < heads * d))[None, :]


@triton.jit
def _lams(lam, block, heads, d: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr):
    column = block * HEADS * d + tl.arange(0, W)
    return tl.load(lam + column, mask=column < heads * d, other=0.0)[None, :]


@triton.jit(do_not_specialize=["rows", "heads", "blocks"])
def _gated_neighbor(
    z, propagated, mean, gate, lam, out, rows, columns, heads, blocks,
    d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    block, part = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    gate_at, gate_inside = _gate_matrix(block, heads, d, HEADS, W)
    own = tl.load(gate + gate_at, mask=gate_inside, other=0.0).to(tl.float32)
    other = tl.load(gate + gate_at + d * d, mask=gate_inside, other=0.0).to(tl.float32)
    at, inside = _places(block, part * ROWS, rows, columns, heads, d, ROWS, HEADS, W)
    mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
    theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
    taken = tl.load(propagated + at, mask=inside, other=0.0).to(tl.float32)
    s = _lams(lam, block, heads, d, HEADS, W) * _sigmoid(_dot(mine, own) + _dot(theirs, other))
    tl.store(out + at, mine + s * (taken - mine), mask=inside)


@triton.jit(do_not_specialize=["rows", "heads", "blocks", "plane", "steps"])
def _gated_neighbor_backward(
    grad, z, propagated, mean, gate, lam, grad_z, grad_propagated, grad_mean, partial,
    rows, columns, heads, blocks, plane, steps,
    d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    block, part = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    gate_at, gate_inside = _gate_matrix(block, heads, d, HEADS, W)
    own = tl.load(gate + gate_at, mask=gate_inside, other=0.0).to(tl.float32)
    other = tl.load(gate + gate_at + d * d, mask=gate_inside, other=0.0).to(tl.float32)
    weight = _lams(lam, block, heads, d, HEADS, W)
    sum_own = tl.zeros([W, W], tl.float32)
    sum_other = tl.zeros([W, W], tl.float32)
    for step in range(steps):
        at, inside = _places(block, (part * steps + step) * ROWS, rows, columns, heads, d, ROWS, HEADS, W)
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
        theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
        taken = tl.load(propagated + at, mask=inside, other=0.0).to(tl.float32)
        sigma = _sigmoid(_dot(mine, own) + _dot(theirs, other))
        s = weight * sigma
        slope = g * (taken - mine) * s * (1.0 - sigma)
        tl.store(grad_propagated + at, g * s, mask=inside)
        tl.store(grad_z + at, g * (1.0 - s) + _dot(slope, tl.trans(own)), mask=inside)
        tl.store(grad_mean + at, _dot(slope, tl.trans(other)), mask=inside)
        sum_own += _dot(tl.trans(mine), slope)
        sum_other += _dot(tl.trans(theirs), slope)
    at = part.to(tl.int64) * plane + gate_at
    tl.store(partial + at, sum_own, mask=gate_inside)
    tl.store(partial + at + d * d, sum_other, mask=gate_inside)


WIDEST_HEAD = 32
"""Columns of a head up to which its gate, its gradient and the rows in flight fit the memory of any GPU's core: wider
ones are left to PyTorch's products."""


class _Program(NamedTuple):
    """What a program of the neighbour level owns."""

    columns: int
    rows: int
    warps: int


def _program(d: int) -> _Program:
    """For heads of up to 16 columns the fastest on an H200, where a matrix wider than a head needs costs more than it
    fills; for wider ones, half the rows that would fit."""
    return _Program(16, 32, 1) if d <= 16 else _Program(32, 32, 2)


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`: `[N, heads·d]`, with the gate `[heads, 2d, d]`."""
    heads, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return heads_module.gated_neighbor(z, propagated, mean, gate, lam)
    z, propagated, mean, gate = _checked(z, propagated, mean, gate)
    out = torch.empty_like(z)
    width, rows, warps = _program(d)
    blocks = triton.cdiv(heads, width // d)
    _gated_neighbor[(blocks * triton.cdiv(z.size(0), rows),)](
        z, propagated, mean, gate, lam, out, z.size(0), z.size(1), heads, blocks,
        d=d, ROWS=rows, HEADS=width // d, W=width, num_warps=warps,
    )  # fmt: skip
    return out


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` for `z`, `propagated`, `mean` and the gate."""
    heads, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return heads_module.gated_neighbor_backward(grad, z, propagated, mean, gate, lam)
    grad, z, propagated, mean, gate = _checked(grad, z, propagated, mean, gate)
    grad_z, grad_propagated, grad_mean = (torch.empty_like(z) for _ in range(3))
    width, rows, warps = _program(d)
    blocks = triton.cdiv(heads, width // d)
    # Enough programs to fill a GPU, and no more partial sums than that takes.
    steps = max(1, min(32, z.size(0) * blocks // (rows * 1024)))
    chunks = triton.cdiv(z.size(0), rows * steps)
    partial = torch.empty(chunks, *gate.shape, dtype=torch.float32, device=z.device)
    _gated_neighbor_backward[(blocks * chunks,)](
        grad, z, propagated, mean, gate, lam, grad_z, grad_propagated, grad_mean, partial,
        z.size(0), z.size(1), heads, blocks, gate.numel(), steps,
        d=d, ROWS=rows, HEADS=width // d, W=width, num_warps=warps,
    )  # fmt: skip
    return grad_z, grad_propagated, grad_mean, partial.sum(0).to(gate.dtype)


# --- the optimiser ---


@triton.jit(do_not_specialize=["size", "replicas"])
def _adam(
    p, grad, m, v, scale, decay, rate, correction, beta1, beta2, eps, size, replicas,
    inner: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present = at < size
    replica = ((at // inner) % replicas).to(tl.int32)
    value = tl.load(p + at, mask=present, other=0.0)
    g = tl.load(grad + at, mask=present, other=0.0) * tl.load(scale + replica, mask=present, other=0.0)
    g += tl.load(decay + replica, mask=present, other=0.0) * value
    first = tl.load(m + at, mask=present, other=0.0) * beta1 + g * (1.0 - beta1)
    second = tl.load(v + at, mask=present, other=0.0) * beta2 + g * g * (1.0 - beta2)
    tl.store(m + at, first, mask=present)
    tl.store(v + at, second, mask=present)
    root = tl.sqrt(second) / tl.load(correction)
    value -= tl.load(rate + replica, mask=present, other=0.0) * first / (root + eps)
    tl.store(p + at, value, mask=present)


def adam(
    p: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    scale: Tensor,
    decay: Tensor,
    rate: Tensor,
    correction: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One step of Adam, in place, on parameters `[outer, R, inner]`; see `gfgn.ops.adam.adam_`."""
    if p.numel() == 0:
        return
    _, replicas, inner = p.shape
    _adam[(triton.cdiv(p.numel(), BLOCK),)](
        p, grad, m, v, scale, decay, rate, correction, beta1, beta2, eps, p.numel(), replicas, inner=inner, BLOCK=BLOCK
    )  # fmt: skip


@triton.jit(do_not_specialize=["size", "replicas"])
def _copy_where(source, target, chosen, size, replicas, inner: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present = at < size
    replica = ((at // inner) % replicas).to(tl.int32)
    wanted = tl.load(chosen + replica, mask=present, other=0) != 0
    tl.store(target + at, tl.load(source + at, mask=wanted), mask=wanted)


def copy_where(source: Tensor, target: Tensor, chosen: Tensor) -> None:
    """Copies the chosen replicas of `source` to `target`, both `[outer, R, inner]`; `chosen` is `[R]`, boolean. Only
    what is copied is read."""
    if target.numel() == 0:
        return
    _, replicas, inner = target.shape
    _copy_where[(triton.cdiv(target.numel(), BLOCK),)](
        source, target, chosen.to(torch.int32), target.numel(), replicas, inner=inner, BLOCK=BLOCK
    )
