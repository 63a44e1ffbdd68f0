"""Gated sums over the rows of a sparse pattern: the pair level, forward and backward.

The table holds `exp(−b)` rather than `b` (`exp(−a)` in the backward): a gate then costs one product and one reciprocal
per entry, and the exponentials are computed per node. In the kernels `exp_a` and `exp_b` stand for `exp(−a)` and
`exp(−b)`.

bfloat16 is loaded as float32 and rounded when it is stored. The table of its backward holds a node's gradient and `z`,
of 16 bits each, in one vector: an entry gathers two thirds of the bytes of float32.
"""

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu import arrays
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import (
    all_within,
    exp,
    is_bfloat16,
    join,
    load,
    load_masked,
    multiply_add,
    product_limit,
    read,
    select_within,
    split,
    store,
    store_masked,
    write,
    zeros,
)
from gfgn.ops.cpu.walk import plan_walk, prefetch_rows, prefetched_offset, run_kernel, run_walk
from gfgn.ops.csr import CSR


@inlined
def fast_gate(exp_a: Any, exp_b: Any) -> Any:
    """σ(a + b) where |a| and |b| are at most `product_limit`, so that the divisor is finite."""
    return 1.0 / multiply_add(exp_a, exp_b, 1.0)


@inlined
def safe_gate(a: Any, b: Any, exp_a: Any, exp_b: Any) -> Any:
    """σ(a + b) for `a` and `b` of any size.

    Where `fast_gate` can be used the result has its bits, so a number too large in one column does not show in another.
    """
    return 1.0 / select_within(a, b, product_limit(a), multiply_add(exp_a, exp_b, 1.0), exp((a + b) * -1.0) + 1.0)


# `large`: `[blocks]`, 1 where an `b` of the block exceeds `product_limit`.
PairForward = namedtuple("PairForward", "a b z lam norm row_norm large out p q save")


@inlined
def forward_pack(op: Any, walk: Any, tile: Any, node: int, packed: int) -> None:
    offset = node * walk.columns + tile.column
    prefetch_rows(walk, (op.b, op.z), offset)
    b = load_masked(op.b, offset, tile.active)
    if not all_within(b, product_limit(b)):
        write(1, op.large, tile.block)
    store(exp(b * -1.0), walk.table, packed)
    store(load_masked(op.z, offset, tile.active), walk.table, packed + LANES)


@inlined
def forward_step(op: Any, walk: Any, packed: int, e: int, s: Any, sums: Any) -> Any:
    """Adds an entry to Σ s·Â·z_j and Σ s·row_norm, and to the same with s(1−s) for s (z_i is outside the sums)."""
    x, q, y, r = sums
    slope = s - s * s
    message = load(walk.table, packed + LANES) * read(op.norm, e)
    row_norm = read(op.row_norm, e)
    return x + s * message, q + s * row_norm, y + slope * message, r + slope * row_norm


@inlined
def forward_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    offset = row * walk.columns + tile.column
    prefetch_rows(walk, (op.a,), offset)
    a = load_masked(op.a, offset, tile.active)
    exp_a = exp(a * -1.0)
    zero = zeros(op.z)
    x, q, y, r = zero, zero, zero, zero
    fast = read(op.large, tile.block) == 0 and all_within(a, product_limit(a))
    if fast and not op.save:
        for e in range(low, high):
            packed = prefetched_offset(walk, tile, e, 2)
            s = fast_gate(exp_a, load(walk.table, packed))
            x = x + s * (load(walk.table, packed + LANES) * read(op.norm, e))
            q = q + s * read(op.row_norm, e)
    elif fast:
        for e in range(low, high):
            packed = prefetched_offset(walk, tile, e, 2)
            s = fast_gate(exp_a, load(walk.table, packed))
            x, q, y, r = forward_step(op, walk, packed, e, s, (x, q, y, r))
    else:
        for e in range(low, high):
            packed = prefetched_offset(walk, tile, e, 2)
            b = load_masked(op.b, read(walk.idx, e) * walk.columns + tile.column, tile.active)
            s = safe_gate(a, b, exp_a, load(walk.table, packed))
            x, q, y, r = forward_step(op, walk, packed, e, s, (x, q, y, r))
    store(x, sums, at)
    store(q, sums, at + LANES)
    if op.save:
        store(y, sums, at + 2 * LANES)
        store(r, sums, at + 3 * LANES)


@inlined
def forward_finish(op: Any, walk: Any, tile: Any, row: int, at: int) -> None:
    offset = row * walk.columns + tile.column
    prefetch_rows(walk, (op.out,), offset)
    z = load_masked(op.z, offset, tile.active)
    q = load(walk.row_sums, at + LANES)
    change = load_masked(op.lam, tile.column, tile.active) * (load(walk.row_sums, at) - q * z)
    store_masked(z + change, op.out, offset, tile.active)
    if op.save:
        prefetch_rows(walk, (op.p, op.q), offset)
        p = load(walk.row_sums, at + 2 * LANES) - load(walk.row_sums, at + 3 * LANES) * z
        store_masked(p, op.p, offset, tile.active)
        store_masked(q, op.q, offset, tile.active)


@kernel
def pair_forward_kernel(op: Any, walk: Any) -> None:
    run_walk(forward_pack, forward_gather, forward_finish, as_pointers(op), as_pointers(walk))


def pair_forward(
    a: Tensor, b: Tensor, z: Tensor, lam: Tensor, norm: Tensor, row_norm: Tensor, rows: CSR, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j s t` with `s = σ(a_i + b_j)` and `t = norm_ij z_j − row_norm_ij z_i`.

    Args:
        a, b, z, lam: `[N, D]`, and `[D]`.
        norm, row_norm, rows: The sources of each target, with two values per entry.
        save: Whether to return `p` and `q` for the backward; they are empty otherwise.

    Returns:
        `out`, `p = Σ_j s (1 − s) t` and `q = Σ_j s row_norm_ij`, all `[N, D]`.
    """
    dtype = arrays.stored_dtype(z)
    walk = plan_walk(rows, z, fields=2, sums=4 if save else 2)
    out = arrays.empty(*z.shape, dtype=dtype)
    p, q = (arrays.empty(*(z.shape if save else (0,)), dtype=dtype) for _ in range(2))
    large = np.zeros(walk.blocks, dtype=np.uint8)
    inputs = (arrays.flat(x, dtype) for x in (a, b, z))
    weights = (arrays.flat(x, arrays.compute_dtype(z)) for x in (lam, norm, row_norm))
    op = PairForward._make((*inputs, *weights, large, *map(arrays.flat, (out, p, q)), save))
    run_kernel(pair_forward_kernel, op, walk)
    return out.to(z.dtype), p.to(z.dtype), q.to(z.dtype)


# `large`: `[blocks]`, 1 where an `a` of the block exceeds `product_limit`.
PairBackward = namedtuple("PairBackward", "grad a b z p q lam norm row_norm large grad_a grad_b grad_z")


@inlined
def backward_pack(op: Any, walk: Any, tile: Any, node: int, packed: int) -> None:
    offset = node * walk.columns + tile.column
    prefetch_rows(walk, (op.a, op.grad, op.z), offset)
    a = load_masked(op.a, offset, tile.active)
    if not all_within(a, product_limit(a)):
        write(1, op.large, tile.block)
    grad = load_masked(op.grad, offset, tile.active)
    store(exp(a * -1.0), walk.table, packed)
    z = load_masked(op.z, offset, tile.active)
    if is_bfloat16(op.z):
        store(join(grad, z), walk.table, packed + LANES)
    else:
        store(grad, walk.table, packed + LANES)
        store(grad * z, walk.table, packed + 2 * LANES)


@inlined
def load_gradient(op: Any, walk: Any, packed: int) -> Any:
    """The gradient of a node, and its product with z."""
    if is_bfloat16(op.z):
        grad, z = split(load(walk.table, packed + LANES))
        return grad, grad * z
    return load(walk.table, packed + LANES), load(walk.table, packed + 2 * LANES)


@inlined
def backward_step(op: Any, walk: Any, packed: int, e: int, s: Any, sums: Any) -> Any:
    """Adds an entry to Σ s·Â·grad_i and, with s(1−s) for s, to Σ Â·grad_i and Σ row_norm·z_i·grad_i."""
    x, y, r = sums
    slope = s - s * s
    grad, own = load_gradient(op, walk, packed)
    message = grad * read(op.norm, e)
    return x + s * message, y + slope * message, r + slope * (own * read(op.row_norm, e))


@inlined
def backward_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    offset = row * walk.columns + tile.column
    prefetch_rows(walk, (op.b,), offset)
    b = load_masked(op.b, offset, tile.active)
    exp_b = exp(b * -1.0)
    zero = zeros(op.z)
    x, y, r = zero, zero, zero
    fields = 2 if is_bfloat16(op.z) else 3
    if read(op.large, tile.block) == 0 and all_within(b, product_limit(b)):
        for e in range(low, high):
            packed = prefetched_offset(walk, tile, e, fields)
            s = fast_gate(exp_b, load(walk.table, packed))
            x, y, r = backward_step(op, walk, packed, e, s, (x, y, r))
    else:
        for e in range(low, high):
            packed = prefetched_offset(walk, tile, e, fields)
            a = load_masked(op.a, read(walk.idx, e) * walk.columns + tile.column, tile.active)
            s = safe_gate(a, b, exp_b, load(walk.table, packed))
            x, y, r = backward_step(op, walk, packed, e, s, (x, y, r))
    store(x, sums, at)
    store(y, sums, at + LANES)
    store(r, sums, at + 2 * LANES)


@inlined
def backward_finish(op: Any, walk: Any, tile: Any, row: int, at: int) -> None:
    offset = row * walk.columns + tile.column
    prefetch_rows(walk, (op.p, op.q, op.grad_a, op.grad_b, op.grad_z), offset)
    lam = load_masked(op.lam, tile.column, tile.active)
    grad = load_masked(op.grad, offset, tile.active)
    z = load_masked(op.z, offset, tile.active)
    store_masked(lam * (grad * load_masked(op.p, offset, tile.active)), op.grad_a, offset, tile.active)
    slope = load(walk.row_sums, at + LANES) * z - load(walk.row_sums, at + 2 * LANES)
    store_masked(lam * slope, op.grad_b, offset, tile.active)
    change = load(walk.row_sums, at) - grad * load_masked(op.q, offset, tile.active)
    store_masked(grad + lam * change, op.grad_z, offset, tile.active)


@kernel
def pair_backward_kernel(op: Any, walk: Any) -> None:
    run_walk(backward_pack, backward_gather, backward_finish, as_pointers(op), as_pointers(walk))


def pair_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    lam: Tensor,
    norm_t: Tensor,
    row_norm_t: Tensor,
    rows_t: CSR,
    reuse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `pair_forward` with respect to `a`, `b` and `z`.

    Args:
        grad: The gradient of `out`.
        a, b, z, p, q, lam: As given to `pair_forward`, and as returned by it.
        norm_t, row_norm_t, rows_t: The targets of each source, with two values per entry.
        reuse: Whether `p`, `b` and `q` may be overwritten; unused here.
    """
    dtype = arrays.stored_dtype(z)
    walk = plan_walk(rows_t, z, fields=2 if dtype == torch.bfloat16 else 3, sums=3)
    results = [arrays.empty(*z.shape, dtype=dtype) for _ in range(3)]
    large = np.zeros(walk.blocks, dtype=np.uint8)
    inputs = (arrays.flat(x, dtype) for x in (grad, a, b, z, p, q))
    weights = (arrays.flat(x, arrays.compute_dtype(z)) for x in (lam, norm_t, row_norm_t))
    op = PairBackward._make((*inputs, *weights, large, *map(arrays.flat, results)))
    run_kernel(pair_backward_kernel, op, walk)
    grad_a, grad_b, grad_z = (x.to(z.dtype) for x in results)
    return grad_a, grad_b, grad_z
