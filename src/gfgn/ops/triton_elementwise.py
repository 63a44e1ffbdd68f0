"""Passes over dense tensors of replicas on CUDA, in Triton: dropout by hash, a step of Adam, a copy of some."""

# Triton's own functions cannot be annotated; the functions below them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops import heads as heads_module
from gfgn.ops.triton_kernels import _checked, _hash, _sigmoid

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


# --- the neighbour level: what follows the sums over neighbours, for heads that fit into registers ---


@triton.jit
def _sigma(z, mean, own, other):
    """`σ([z ‖ mean] W_s)`: `[ROWS, HEADS, D]` from features of that shape and matrices `[HEADS, D, D]`."""
    t = tl.sum(z[:, :, :, None] * own[None, :, :, :] + mean[:, :, :, None] * other[None, :, :, :], 2)
    return _sigmoid(t)


@triton.jit
def _tile(first, rows, columns, heads, d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr):
    """Offsets of `[ROWS, HEADS, D]` values from row `first` on, and which of them there are."""
    row = first + tl.arange(0, ROWS)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    k = tl.arange(0, D)
    at = row.to(tl.int64)[:, None, None] * columns + (head * d)[None, :, None] + k[None, None, :]
    inside = (row < rows)[:, None, None] & ((head < heads)[None, :, None] & (k < d)[None, None, :])
    return at, inside


@triton.jit
def _matrices(gate, heads, d: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr):
    """Both halves of the gates of a program's heads, `[HEADS, D, D]`."""
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    k = tl.arange(0, D)
    at = head.to(tl.int64)[:, None, None] * (2 * d * d) + k[None, :, None] * d + k[None, None, :]
    inside = (head < heads)[:, None, None] & ((k < d)[None, :, None] & (k < d)[None, None, :])
    own = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(gate + at + d * d, mask=inside, other=0.0).to(tl.float32)
    return own, other, at, inside


@triton.jit
def _lams(lam, heads, d: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    k = tl.arange(0, D)
    inside = (head < heads)[:, None] & (k < d)[None, :]
    return tl.load(lam + (head * d)[:, None] + k[None, :], mask=inside, other=0.0)[None, :, :]


@triton.jit(do_not_specialize=["rows", "heads"])
def _gated_neighbor(
    z, around, mean, gate, lam, out, rows, columns, heads,
    d: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    own, other, _, _ = _matrices(gate, heads, d, HEADS, D)
    weight = _lams(lam, heads, d, HEADS, D)
    at, inside = _tile(tl.program_id(0) * ROWS, rows, columns, heads, d, ROWS, HEADS, D)
    mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
    theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
    taken = tl.load(around + at, mask=inside, other=0.0).to(tl.float32)
    s = weight * _sigma(mine, theirs, own, other)
    tl.store(out + at, mine + s * (taken - mine), mask=inside)


@triton.jit(do_not_specialize=["rows", "heads", "plane"])
def _gated_neighbor_backward(
    grad, z, around, mean, gate, lam, grad_z, grad_around, grad_mean, partial, rows, columns, heads, plane,
    d: tl.constexpr, STEPS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    own, other, gate_at, gate_inside = _matrices(gate, heads, d, HEADS, D)
    weight = _lams(lam, heads, d, HEADS, D)
    # A thread adds up what its rows give to the gate's gradient; threads meet once, at the end.
    sum_own = tl.zeros([ROWS, HEADS, D, D], tl.float32)
    sum_other = tl.zeros([ROWS, HEADS, D, D], tl.float32)
    for step in range(STEPS):
        first = (tl.program_id(0) * STEPS + step) * ROWS
        at, inside = _tile(first, rows, columns, heads, d, ROWS, HEADS, D)
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        mine = tl.load(z + at, mask=inside, other=0.0).to(tl.float32)
        theirs = tl.load(mean + at, mask=inside, other=0.0).to(tl.float32)
        taken = tl.load(around + at, mask=inside, other=0.0).to(tl.float32)
        sigma = _sigma(mine, theirs, own, other)
        s = weight * sigma
        slope = g * (taken - mine) * s * (1.0 - sigma)
        tl.store(grad_around + at, g * s, mask=inside)
        to_own = tl.sum(slope[:, :, None, :] * own[None, :, :, :], 3)
        tl.store(grad_z + at, g * (1.0 - s) + to_own, mask=inside)
        tl.store(grad_mean + at, tl.sum(slope[:, :, None, :] * other[None, :, :, :], 3), mask=inside)
        sum_own += mine[:, :, :, None] * slope[:, :, None, :]
        sum_other += theirs[:, :, :, None] * slope[:, :, None, :]
    at = tl.program_id(0).to(tl.int64) * plane + gate_at
    tl.store(partial + at, tl.sum(sum_own, 0), mask=gate_inside)
    tl.store(partial + at + d * d, tl.sum(sum_other, 0), mask=gate_inside)


WIDEST_HEAD = 16
"""Columns of a head up to which its gate is kept in registers."""


def _shape(d: int) -> tuple[int, int, int]:
    """Rows, heads and columns of a tile."""
    width = max(2, triton.next_power_of_2(d))
    heads = max(1, 32 // width)  # a warp's worth of neighbouring columns
    return max(1, 4096 // (width * width * heads)), heads, width


def gated_neighbor(z: Tensor, around: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s around` with `s = λ σ([z ‖ mean] W_s)`: `[N, heads·d]`, with the gate `[heads, 2d, d]`."""
    heads_count, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return heads_module.gated_neighbor(z, around, mean, gate, lam)
    z, around, mean, gate = _checked(z, around, mean, gate)
    out = torch.empty_like(z)
    rows, heads, width = _shape(d)
    grid = (triton.cdiv(z.size(0), rows), triton.cdiv(heads_count, heads))
    _gated_neighbor[grid](
        z, around, mean, gate, lam, out, z.size(0), z.size(1), heads_count, d=d, ROWS=rows, HEADS=heads, D=width
    )  # fmt: skip
    return out


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, around: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` for `z`, `around`, `mean` and the gate."""
    heads_count, _, d = gate.shape
    if d > WIDEST_HEAD or z.numel() == 0:
        return heads_module.gated_neighbor_backward(grad, z, around, mean, gate, lam)
    grad, z, around, mean, gate = _checked(grad, z, around, mean, gate)
    grad_z, grad_around, grad_mean = (torch.empty_like(z) for _ in range(3))
    rows, heads, width = _shape(d)
    steps = max(1, min(32, z.size(0) // (16 * rows)))  # enough programs, and not too many partial sums
    chunks = triton.cdiv(z.size(0), rows * steps)
    partial = torch.empty(chunks, *gate.shape, dtype=torch.float32, device=z.device)
    _gated_neighbor_backward[(chunks, triton.cdiv(heads_count, heads))](
        grad, z, around, mean, gate, lam, grad_z, grad_around, grad_mean, partial,
        z.size(0), z.size(1), heads_count, gate.numel(), d=d, STEPS=steps, ROWS=rows, HEADS=heads, D=width,
    )  # fmt: skip
    return grad_z, grad_around, grad_mean, partial.sum(0).to(gate.dtype)


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
    """One step of Adam, in place, on parameters `[outer, R, inner]`; see `gfgn.ops.update.adam_`."""
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
